//! Encoder of the specs of pod templates.

use super::MessageBuilder;
use crate::{
    IntOrString,
    decoded::{Decoded, DecodedStruct},
    quantity::Quantity,
    schema::{Schema, Shape, Struct, TypeId, Version},
};

/// Encodes `spec` of a pod template, a `PodSpec`. Returns `None` if it has a field or a value that this version does not
/// define: protobuf cannot carry it.
pub(crate) fn encode(template: &str) -> Option<Vec<u8>> {
    let schema = Schema::of(Version::default());
    let mut template = Decoded::template(schema, &mut serde_json::Deserializer::from_str(template)).ok()?;
    let Decoded::Struct(_) = &template else { return None };
    match template.at_mut(schema, &["spec"])? {
        Decoded::Unset => Some(Vec::new()),
        Decoded::Struct(spec) => {
            let Shape::Struct(root) = &schema.type_(schema.root()).shape else { return None };
            let type_ = root.fields.iter().find(|field| field.json.as_deref() == Some("spec"))?.type_;
            let Shape::Struct(shape) = &schema.type_(type_).shape else { return None };
            Encoder { schema }.message(shape, spec).map(MessageBuilder::into_vec)
        }
        _ => None,
    }
}

struct Encoder<'s> {
    schema: &'s Schema,
}

impl Encoder<'_> {
    fn message(&self, shape: &Struct, object: &DecodedStruct<'_>) -> Option<MessageBuilder> {
        if !object.unknown.is_empty() {
            return None;
        }
        let mut message = MessageBuilder::default();
        for (field, value) in shape.fields.iter().zip(&object.fields) {
            if !matches!(value, Decoded::Unset) {
                self.field(&mut message, field.number?, field.type_, value)?;
            }
        }
        Some(message)
    }

    fn field(
        &self,
        message: &mut MessageBuilder,
        number: u32,
        type_: TypeId,
        value: &Decoded<'_>,
    ) -> Option<()> {
        match (&self.schema.type_(self.schema.pointee(type_)).shape, value) {
            (Shape::List(inner), Decoded::List(items)) => {
                for item in items {
                    self.single(message, number, *inner, item)?;
                }
                Some(())
            }
            (Shape::Map(inner), Decoded::Map(entries)) => {
                for (key, value) in entries {
                    let mut entry = MessageBuilder::default();
                    entry.bytes(1, &**key);
                    self.single(&mut entry, 2, *inner, value)?;
                    message.bytes(number, &entry);
                }
                Some(())
            }
            _ => self.single(message, number, type_, value),
        }
    }

    /// Adds a value that is neither list nor map. An unset one is the zero value of its type: as an item, it counts.
    #[expect(clippy::cast_sign_loss, reason = "negative numbers have the sign bit set")]
    fn single(
        &self,
        message: &mut MessageBuilder,
        number: u32,
        type_: TypeId,
        value: &Decoded<'_>,
    ) -> Option<()> {
        let mut inner = MessageBuilder::default();
        match (&self.schema.type_(self.schema.pointee(type_)).shape, value) {
            (Shape::Bool, Decoded::Bool(value)) => {
                message.varint(number, u64::from(*value));
                return Some(());
            }
            (Shape::Int32 | Shape::Int64, Decoded::Int(value)) => {
                message.varint(number, *value as u64);
                return Some(());
            }
            (Shape::Bool | Shape::Int32 | Shape::Int64, Decoded::Unset) => {
                message.varint(number, 0);
                return Some(());
            }
            (Shape::Text, Decoded::Text(text)) => {
                message.bytes(number, &**text);
                return Some(());
            }
            (Shape::Struct(shape), Decoded::Struct(object)) => inner = self.message(shape, object)?,
            (Shape::Quantity, Decoded::Quantity(quantity)) => {
                inner.bytes(1, quantity.to_string());
            }
            (Shape::Quantity, Decoded::Unset) => {
                inner.bytes(1, Quantity::default().to_string());
            }
            (Shape::IntOrString, Decoded::IntOrString(IntOrString::Int(value))) => {
                inner.varint(1, 0).varint(2, i64::from(*value) as u64);
            }
            (Shape::IntOrString, Decoded::IntOrString(IntOrString::String(text))) => {
                inner.varint(1, 1).bytes(3, text);
            }
            (Shape::Time, Decoded::Time(time)) => {
                let nanoseconds = time.as_nanosecond().rem_euclid(1_000_000_000);
                let seconds = time.as_nanosecond().div_euclid(1_000_000_000);
                inner.varint(1, i64::try_from(seconds).ok()? as u64);
                inner.varint(2, u64::try_from(nanoseconds).ok()?);
            }
            (Shape::RawJson, Decoded::RawJson(json)) => {
                inner.bytes(1, &**json);
            }
            (Shape::Text | Shape::Struct(_) | Shape::IntOrString | Shape::Time, Decoded::Unset) => {}
            // A value of the wrong type. No type has lists of lists.
            _ => return None,
        }
        message.bytes(number, &inner);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::recorded;

    fn spec(spec: &serde_json::Value) -> Option<Vec<u8>> {
        encode(&json!({ "spec": spec }).to_string())
    }

    #[test]
    fn fields_have_their_numbers() {
        let encoded = spec(
            &json!({"nodeName": "n", "priority": 0, "hostNetwork": true, "containers": [{"name": "c"}]}),
        );
        let expected = [
            &[2 << 3 | 2, 3, 1 << 3 | 2, 1, b'c'][..],
            &[10 << 3 | 2, 1, b'n'],
            &[11 << 3, 1],
            &[25 << 3 & 0x7f | 0x80, 1, 0],
        ];
        let mut encoded = encoded.unwrap();
        encoded.sort_unstable();
        let mut expected = expected.concat();
        expected.sort_unstable();
        assert_eq!(encoded, expected);
    }

    #[test]
    fn templates_without_spec_are_empty() {
        assert_eq!(encode("{}"), Some(Vec::new()));
        assert_eq!(spec(&json!({})), Some(Vec::new()));
        assert_eq!(spec(&json!(null)), Some(Vec::new()));
    }

    /// An unknown field would be lost, at whatever depth.
    #[test]
    fn unknown_fields_and_wrong_types_are_not_encoded() {
        for lost in [
            json!({"futureField": 1}),
            json!({"containers": [{"name": "c", "futureField": null, "env": [{"name": "E", "futureField": {}}]}]}),
            json!({"volumes": [{"name": "v", "futureSource": {}}]}),
            json!({"affinity": {"nodeAffinity": {"futureField": []}}}),
            json!({"priority": "high"}),
            json!({"priority": 1.5}),
            json!({"priority": i64::MAX}),
            json!({"overhead": {"cpu": "many"}}),
            json!({"containers": "c"}),
            json!(5),
        ] {
            assert_eq!(spec(&lost), None, "{lost}");
        }
        // Null is unset, also where the name is unknown.
        assert!(spec(&json!({"futureField": null, "nodeName": null})).is_some());
        assert_eq!(encode("{"), None);
        assert_eq!(encode("null"), None);
    }

    #[test]
    fn recorded_templates_are_encoded() {
        for case in recorded::cases() {
            assert!(encode(&case.template.to_string()).is_some(), "{}", case.template);
        }
    }
}
