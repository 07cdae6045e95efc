//! Messages of single values.

use jiff::Timestamp;

use super::{MessageBuilder, ProtobufError, Value};
use crate::IntOrString;

/// Returns the message of an [`IntOrString`].
pub(super) fn int_or_string(value: &IntOrString) -> MessageBuilder {
    let mut message = MessageBuilder::default();
    match value {
        IntOrString::Int(number) => message.varint(1, 0).varint(2, i64::from(*number).cast_unsigned()),
        IntOrString::String(text) => message.varint(1, 1).bytes(3, text),
    };
    message
}

/// Reads an [`IntOrString`].
pub(super) fn decode_int_or_string(value: Value<'_>) -> Result<IntOrString, ProtobufError> {
    let (mut type_, mut number, mut string) = (0, 0, "");
    for field in value.message()? {
        match field? {
            (1, value) => type_ = value.int64()?,
            (2, value) => number = value.int32()?,
            (3, value) => string = value.text()?,
            (number, _) => return Err(ProtobufError::UnknownField { message: "IntOrString".into(), number }),
        }
    }
    match type_ {
        0 => Ok(IntOrString::Int(number)),
        1 => Ok(IntOrString::String(string.to_owned())),
        _ => Err(ProtobufError::Value("IntOrString".into())),
    }
}

/// Reads a `Time`. As upstream, zero is unset. As in JSON, fractions of seconds are dropped.
pub(super) fn time(value: Value<'_>) -> Result<Option<Timestamp>, ProtobufError> {
    let mut seconds = 0;
    for field in value.message()? {
        match field? {
            (1, value) => seconds = value.int64()?,
            (2, value) => drop(value.int32()?),
            (number, _) => return Err(ProtobufError::UnknownField { message: "Time".into(), number }),
        }
    }
    let time = Timestamp::from_second(seconds).map_err(|error| ProtobufError::Time(error.to_string()))?;
    Ok((seconds != 0).then_some(time))
}
