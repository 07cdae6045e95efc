//! Decoding: from JSON to the object in the form the API's types give it.
//!
//! What comes in is what somebody typed, or what a patch made of an object. What goes out is what upstream
//! would have after reading it into its Go types and writing it again, with object keys in order:
//!
//! * fields that the type does not have are left out, and reported;
//! * of repeated fields the last counts, and the repetition is reported;
//! * `null` is the same as absent;
//! * a plain (non-pointer) value that is zero or empty is absent where Go has `omitempty`: `paused: false`,
//!   `args: []`; behind a pointer it stays: `replicas: 0`, `securityContext: {}`;
//! * what Go always writes is always there: `strategy: {}`, `resources: {}`, `status: {}`, a port's
//!   `containerPort: 0`. DEVIATION: where Go writes `null` (an unset list or time without `omitempty`) the
//!   field stays absent; readers cannot tell the two apart;
//! * quantities are canonical (`1000m` becomes `1`), times whole seconds in UTC, micro times keep six digits.
//!
//! Decoding what decoding gave changes nothing, so equal objects are equal [`Value`]s.
//!
//! Upstream counterpart: `runtime/serializer/json` with `sigs.k8s.io/json`. Neither defaults nor checks of
//! content belong here: see [`crate::defaults`] and [`crate::validate`].

use serde::de::DeserializeSeed;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::schema::{Presence, SCHEMA, Schema, StructId, Type};

mod scalar;
mod seed;
#[cfg(test)]
mod tests;

use seed::{Context, Root};

/// An object in its types' form, and what had to be dropped on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object. `apiVersion` and `kind` are set, whether they were given or not.
    pub object: Value,
    /// Unknown and repeated fields in upstream's words, in the order they were met:
    /// `unknown field "spec.repliccas"`. Each is named once, and at most a hundred are.
    pub findings: Vec<String>,
}

/// A body that is no object of its kind. The text is the message of upstream's answer, 400 `BadRequest`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The kind is not one this server knows.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The group and version asked for.
        api_version: String,
        /// The kind asked for.
        kind: String,
    },
    /// The text is not JSON.
    #[error(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
         error: {detail} ({summary})"
    )]
    Syntax {
        /// The kind asked for.
        kind: String,
        /// What the parser says.
        detail: String,
        /// The beginning of the text.
        summary: String,
    },
    /// The object says it is of another version.
    #[error("the API version in the data ({found}) does not match the expected API version ({expected})")]
    ApiVersion {
        /// What the object says.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// The object says it is of another kind.
    #[error(
        "{found} in version {version:?} cannot be handled as a {kind}: converting ({found}) to ({kind}): \
         unknown conversion"
    )]
    Kind {
        /// What the object says.
        found: String,
        /// What was asked for.
        kind: String,
        /// The version, without the group.
        version: String,
    },
    /// A value is not of its field's type.
    #[error("{kind} in version {version:?} cannot be handled as a {kind}: {detail}")]
    Type {
        /// The kind asked for.
        kind: String,
        /// Its version, without the group.
        version: String,
        /// What is wrong, in Go's words.
        detail: String,
    },
}

/// Decodes a JSON text.
///
/// # Errors
///
/// When it is not JSON, or a value in it is not of its field's type, or it says that it is of another kind.
///
/// ```
/// # use kcm_apiserver::strict;
/// let decoded = strict::decode("apps/v1", "Deployment", br#"{"spec": {"repliccas": 2, "replicas": 0}}"#)?;
/// assert_eq!(decoded.findings, [r#"unknown field "spec.repliccas""#]);
/// assert_eq!(decoded.object["spec"]["replicas"], 0);
/// # Ok::<(), strict::DecodeError>(())
/// ```
pub fn decode(api_version: &str, kind: &str, raw: &[u8]) -> Result<Decoded, DecodeError> {
    let root = find(api_version, kind)?;
    let mut context = Context::new(&SCHEMA);
    let mut deserializer = serde_json::Deserializer::from_slice(raw);
    let object = Root { id: root, context: &mut context }
        .deserialize(&mut deserializer)
        .and_then(|object| deserializer.end().map(|()| object));
    finish(api_version, kind, context, object, || summary(raw))
}

/// Decodes a value that was parsed already, such as the result of a patch. Repeated fields were lost when it
/// was parsed.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_value(api_version: &str, kind: &str, object: Value) -> Result<Decoded, DecodeError> {
    let root = find(api_version, kind)?;
    let mut context = Context::new(&SCHEMA);
    let object = Root { id: root, context: &mut context }.deserialize(object);
    finish(api_version, kind, context, object, String::new)
}

/// The message of upstream's 400 for `findings` under `fieldValidation=Strict`.
pub fn strict_message(api_version: &str, kind: &str, findings: &[String]) -> String {
    format!(
        "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {}",
        version_of(api_version),
        findings.join(", ")
    )
}

fn find(api_version: &str, kind: &str) -> Result<StructId, DecodeError> {
    SCHEMA.kind(api_version, kind).ok_or_else(|| DecodeError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })
}

fn finish(
    api_version: &str,
    kind: &str,
    context: Context<'_>,
    object: Result<Value, serde_json::Error>,
    summary: impl FnOnce() -> String,
) -> Result<Decoded, DecodeError> {
    let (findings, type_error) = context.into_findings();
    let mut object = match (object, type_error) {
        (_, Some(detail)) => {
            let version = version_of(api_version).to_owned();
            return Err(DecodeError::Type { kind: kind.to_owned(), version, detail });
        }
        (Err(error), None) => {
            let (detail, summary) = (error.to_string(), summary());
            return Err(DecodeError::Syntax { kind: kind.to_owned(), detail, summary });
        }
        (Ok(object), None) => object,
    };
    if let Value::Object(fields) = &mut object {
        identify(fields, api_version, kind)?;
    }
    Ok(Decoded { object, findings })
}

/// Checks what the object says it is, and says it where the object does not.
fn identify(fields: &mut Map<String, Value>, api_version: &str, kind: &str) -> Result<(), DecodeError> {
    let found = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    // Every group has DeleteOptions, and clients name whichever they like.
    if kind != "DeleteOptions"
        && let Some(found) = found("apiVersion").filter(|found| *found != api_version)
    {
        let (found, expected) = (found.to_owned(), api_version.to_owned());
        return Err(DecodeError::ApiVersion { found, expected });
    }
    if let Some(found) = found("kind").filter(|found| *found != kind) {
        let (found, kind, version) = (found.to_owned(), kind.to_owned(), version_of(api_version).to_owned());
        return Err(DecodeError::Kind { found, kind, version });
    }
    fields.insert("apiVersion".to_owned(), Value::from(api_version));
    fields.insert("kind".to_owned(), Value::from(kind));
    Ok(())
}

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or(api_version)
}

/// The beginning of a body, for an error message.
fn summary(raw: &[u8]) -> String {
    const SHOWN: usize = 30;
    let start = raw.get(..SHOWN).unwrap_or(raw);
    let dots = if raw.len() > SHOWN { " ..." } else { "" };
    match raw.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{dots}")
        }
    }
}

/// What Go writes for a field of this type that nobody set, if it writes anything.
fn zero(schema: &Schema, ty: &Type) -> Option<Value> {
    match ty {
        Type::Bool => Some(Value::Bool(false)),
        Type::Int32 | Type::Int64 | Type::IntOrString => Some(Value::from(0)),
        Type::Text => Some(Value::String(String::new())),
        Type::Quantity => Some(Value::from("0")),
        Type::Struct(id) => {
            let mut fields = Map::new();
            complete(schema, *id, &mut fields);
            Some(Value::Object(fields))
        }
        Type::Bytes | Type::Time | Type::MicroTime | Type::Any | Type::List(_) | Type::Map(_) => None,
    }
}

/// Adds the fields that Go always writes.
fn complete(schema: &Schema, id: StructId, fields: &mut Map<String, Value>) {
    for field in schema.get(id).fields.iter().filter(|field| field.presence == Presence::Always) {
        if !fields.contains_key(field.name)
            && let Some(value) = zero(schema, &field.ty)
        {
            fields.insert(field.name.to_owned(), value);
        }
    }
}
