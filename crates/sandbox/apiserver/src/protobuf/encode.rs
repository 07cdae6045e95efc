//! Encoder of protobuf responses.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kcm_api::protobuf::MessageBuilder;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::PREFIX;
use crate::{
    json::{list_at, str_at},
    schema::{Presence, SCHEMA, Schema, Struct, StructId, Type, Wire},
};

/// Number of items of a list that are encoded before other tasks run.
const ITEMS: usize = 100;

/// Message under construction, with methods that can be chained by value.
#[derive(Debug, Default)]
pub struct Message(MessageBuilder);

impl Message {
    /// Adds a number.
    pub fn varint(mut self, number: u32, value: u64) -> Self {
        self.0.varint(number, value);
        self
    }

    /// Adds text, bytes or a message.
    pub fn bytes(mut self, number: u32, bytes: impl AsRef<[u8]>) -> Self {
        self.0.bytes(number, bytes);
        self
    }

    /// Bytes of the message.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

/// Encodes an object with `apiVersion` and `kind` in an envelope: an object of a built-in kind, a list of such objects, a
/// `Status`, or a `PartialObjectMetadata`. Returns `None` for others.
///
/// As upstream, plain scalars are written even if they are zero. Fields that the kind does not have are not written.
///
/// ```
/// # use kcm_apiserver::protobuf;
/// let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
/// let body = protobuf::encode(&namespace).unwrap();
/// assert_eq!(protobuf::decode(&body)?["metadata"]["name"], "team");
/// # Ok::<(), protobuf::ProtobufError>(())
/// ```
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (str_at(object, &["apiVersion"]), str_at(object, &["kind"]));
    Some(envelope(api_version, kind, message(api_version, kind, object)?))
}

/// Start of the text of a list, with undecoded items.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Value,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// As [`encode`], of a JSON text. Items of a list are decoded one after the other, because a decoded object takes ten times
/// the memory of its text. Other tasks run in between.
pub(crate) async fn encode_text(text: &[u8]) -> Option<Vec<u8>> {
    let Ok(List { api_version, kind, metadata, items }) = serde_json::from_slice(text) else {
        return encode(&serde_json::from_slice(text).ok()?);
    };
    let element = kind.strip_suffix("List")?;
    let element_type = struct_of(api_version, element);
    let mut list = Message::default().bytes(1, list_meta(&metadata));
    for (index, item) in items.into_iter().enumerate() {
        if index % ITEMS == ITEMS - 1 {
            tokio::task::yield_now().await;
        }
        let item: Value = serde_json::from_str(item.get()).ok()?;
        let item = match element_type {
            Some(id) => structure(&SCHEMA, id, item.as_object()?),
            None => message(api_version, element, &item)?,
        };
        list = list.bytes(2, item);
    }
    Some(envelope(api_version, kind, list))
}

/// Puts an object in an envelope: `runtime.Unknown`.
pub(crate) fn envelope(api_version: &str, kind: &str, object: impl AsRef<[u8]>) -> Vec<u8> {
    let meta = Message::default().bytes(1, api_version).bytes(2, kind);
    let unknown = Message::default().bytes(1, meta).bytes(2, object).bytes(3, "").bytes(4, "");
    [PREFIX, unknown.as_ref()].concat()
}

/// `true` if objects of the kind can be encoded.
pub(crate) fn is_encodable(api_version: &str, kind: &str) -> bool {
    struct_of(api_version, kind).is_some()
}

/// Definitions are not encoded: their schemas are recursive.
fn struct_of(api_version: &str, kind: &str) -> Option<StructId> {
    SCHEMA.kind(api_version, kind).filter(|_| kind != "CustomResourceDefinition")
}

fn message(api_version: &str, kind: &str, object: &Value) -> Option<Message> {
    match (api_version, kind) {
        ("v1", "Status") => Some(status(object)),
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => {
            Some(metadata(&object["metadata"]))
        }
        _ => match (kind.strip_suffix("List"), &object["items"]) {
            (Some(element), Value::Array(items)) => {
                let list = Message::default().bytes(1, list_meta(&object["metadata"]));
                items
                    .iter()
                    .try_fold(list, |list, item| Some(list.bytes(2, message(api_version, element, item)?)))
            }
            _ => Some(structure(&SCHEMA, struct_of(api_version, kind)?, object.as_object()?)),
        },
    }
}

/// `PartialObjectMetadata{1 metadata}`.
fn metadata(metadata: &Value) -> Message {
    let pod = SCHEMA.kind("v1", "Pod").map(|id| SCHEMA.get(id));
    let ty = pod.and_then(|pod| pod.field("metadata")).map(|field| &field.ty);
    match (ty, metadata) {
        (Some(Type::Struct(id)), Value::Object(fields)) => {
            Message::default().bytes(1, structure(&SCHEMA, *id, fields))
        }
        _ => Message::default(),
    }
}

/// `ListMeta{2 resourceVersion, 3 continue, 4 remainingItemCount}`.
fn list_meta(metadata: &Value) -> Message {
    let message = Message::default()
        .bytes(2, str_at(metadata, &["resourceVersion"]))
        .bytes(3, str_at(metadata, &["continue"]));
    match metadata["remainingItemCount"].as_u64() {
        Some(count) => message.varint(4, count),
        None => message,
    }
}

/// `Status{2 status, 3 message, 4 reason, 5 details, 6 code}`.
fn status(status: &Value) -> Message {
    let mut message = Message::default();
    for (number, name) in [(2, "status"), (3, "message"), (4, "reason")] {
        message = message.bytes(number, str_at(status, &[name]));
    }
    let details = &status["details"];
    if details.is_object() {
        let mut inner = Message::default();
        for (number, name) in [(1, "name"), (2, "group"), (3, "kind"), (6, "uid")] {
            inner = inner.bytes(number, str_at(details, &[name]));
        }
        for cause in list_at(details, &["causes"]) {
            let fields = [(1, "reason"), (2, "message"), (3, "field")];
            let cause = fields.iter().fold(Message::default(), |message, (number, name)| {
                message.bytes(*number, str_at(cause, &[name]))
            });
            inner = inner.bytes(4, cause);
        }
        let seconds = details["retryAfterSeconds"].as_u64().unwrap_or_default();
        message = message.bytes(5, inner.varint(5, seconds));
    }
    message.varint(6, status["code"].as_u64().unwrap_or_default())
}

fn structure(schema: &Schema, id: StructId, object: &Map<String, Value>) -> Message {
    let within = schema.get(id);
    fields(schema, within, &within.wire, object)
}

fn fields(
    schema: &Schema,
    within: &Struct,
    wire: &BTreeMap<u32, Wire>,
    object: &Map<String, Value>,
) -> Message {
    let mut message = Message::default();
    for (&number, wire) in wire {
        message = match wire {
            Wire::Inline(_, inner) => message.bytes(number, fields(schema, within, inner, object)),
            Wire::Field(position) => match within.fields.get(*position) {
                None => message,
                Some(field) => match (object.get(field.name), &field.ty) {
                    (Some(Value::Array(list)), Type::List(ty)) => {
                        list.iter().fold(message, |message, value| single(schema, message, number, ty, value))
                    }
                    (Some(Value::Object(map)), Type::Map(ty)) => {
                        map.iter().fold(message, |message, (key, value)| {
                            message.bytes(number, entry(schema, key, ty, value))
                        })
                    }
                    (Some(value), ty) if !value.is_null() => single(schema, message, number, ty, value),
                    (_, Type::Bool | Type::Int32 | Type::Int64) if field.presence != Presence::Given => {
                        message.varint(number, 0)
                    }
                    // An absent time is not written: an empty one sets pointers such as `deletionTimestamp`.
                    (_, Type::Text) if field.presence != Presence::Given => message.bytes(number, ""),
                    _ => message,
                },
            },
        };
    }
    message
}

/// Entry of a map. A list as value has an intermediate message: `ExtraValue{1 items}`.
fn entry(schema: &Schema, key: &str, ty: &Type, value: &Value) -> Message {
    let entry = Message::default().bytes(1, key);
    match (ty, value) {
        (Type::List(ty), Value::Array(list)) => {
            let items =
                list.iter().fold(Message::default(), |items, value| single(schema, items, 1, ty, value));
            entry.bytes(2, items)
        }
        (ty, value) => single(schema, entry, 2, ty, value),
    }
}

/// Adds a value. A value that does not match its type is not written.
#[expect(clippy::cast_sign_loss, reason = "negative numbers have the sign bit set")]
fn single(schema: &Schema, message: Message, number: u32, ty: &Type, value: &Value) -> Message {
    let encoded = match (ty, value) {
        (Type::Bool, Value::Bool(value)) => return message.varint(number, u64::from(*value)),
        (Type::Int32 | Type::Int64, Value::Number(value)) => {
            return message.varint(number, value.as_i64().unwrap_or_default() as u64);
        }
        (Type::Text, Value::String(text)) => return message.bytes(number, text),
        (Type::Bytes, Value::String(text)) => {
            return message.bytes(number, STANDARD.decode(text).unwrap_or_default());
        }
        (Type::Time | Type::MicroTime, Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(time) => Message::default()
                .varint(1, time.as_second() as u64)
                .varint(2, time.subsec_nanosecond() as u64),
            Err(_) => Message::default(),
        },
        (Type::Quantity, Value::String(text)) => Message::default().bytes(1, text),
        (Type::IntOrString, Value::String(text)) => {
            Message::default().varint(1, 1).varint(2, 0).bytes(3, text)
        }
        (Type::IntOrString, Value::Number(value)) => {
            Message::default().varint(1, 0).varint(2, value.as_i64().unwrap_or_default() as u64).bytes(3, "")
        }
        (Type::Any, value) => Message::default().bytes(1, value.to_string()),
        (Type::Struct(id), Value::Object(fields)) => structure(schema, *id, fields),
        _ => return message,
    };
    message.bytes(number, encoded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Clients treat an object with an empty `deletionTimestamp` as terminating.
    #[test]
    fn absent_time_is_not_written() {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}});
        let body = encode(&object).unwrap();
        // Tags of `creationTimestamp` and `deletionTimestamp` with length 0.
        for field in [[8 << 3 | 2, 0], [9 << 3 | 2, 0]] {
            assert!(!body.windows(2).any(|bytes| bytes == field), "{body:x?}");
        }
    }

    #[tokio::test]
    async fn text_is_encoded_as_its_value() {
        let items: Vec<Value> =
            (0..ITEMS + 1).map(|number| json!({"metadata": {"name": number.to_string()}})).collect();
        let metadata = json!({"resourceVersion": "7", "remainingItemCount": 2});
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items});
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}});
        let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "rows": []});
        for object in [list, pod, table] {
            assert_eq!(
                encode_text(object.to_string().as_bytes()).await,
                encode(&object),
                "{}",
                object["kind"]
            );
        }
        assert_eq!(encode_text(b"{").await, None);
    }
}
