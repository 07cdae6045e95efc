//! Protobuf encoding of the Kubernetes API: wire format, envelopes, events and errors.
//!
//! Field numbers are those of the `generated.proto` files of `k8s.io/apimachinery`.
//!
//! Upstream counterpart: `runtime/serializer/protobuf`.

use std::borrow::Cow;

use buffa::{
    DecodeError,
    encoding::{Tag, WireType, decode_varint, skip_field},
    types::borrow_bytes,
};
use thiserror::Error;

use crate::{Status, StatusCause, StatusDetails};

mod builder;
mod objects;
pub(crate) mod pod_template;
mod scalars;
#[cfg(test)]
mod tests;

pub use builder::{MessageBuilder, envelope};

/// Media type of the encoding.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Magic number at the start of an object. No JSON text starts with it.
pub(crate) const PREFIX: &[u8] = b"k8s\0";

/// Input that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// The magic number at the start of an object is missing.
    #[error("not a protobuf object: the prefix is missing")]
    Prefix,
    /// The input is malformed, or a field has the wrong type.
    #[error(transparent)]
    Malformed(MalformedMessage),
    /// The object in the envelope is encoded or compressed in another way.
    #[error("encoding {0:?} of the object in the protobuf envelope is not supported")]
    Encoding(String),
    /// The message has a field that this version does not define. It would be lost.
    #[error("unknown field {number} of {message}")]
    UnknownField {
        /// Type of the message.
        message: Box<str>,
        /// Field number.
        number: u32,
    },
    /// A value has no counterpart in JSON.
    #[error("invalid value of {0}")]
    Value(Box<str>),
    /// A time is out of range.
    #[error("time {0}")]
    Time(String),
    /// The type is decoded from JSON only.
    #[error("the type has no protobuf decoder")]
    Unsupported,
}

/// Error in the wire format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct MalformedMessage(DecodeError);

pub(crate) fn malformed(error: DecodeError) -> ProtobufError {
    ProtobufError::Malformed(MalformedMessage(error))
}

/// Fields of a message in the order of the input, as number and value. Ends after an error.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads the fields of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Fields that were not yet read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn read(&mut self) -> Result<(u32, Value<'a>), DecodeError> {
        let rest = &mut self.rest;
        let tag = Tag::decode(rest)?;
        let content = match tag.wire_type() {
            WireType::Varint => Content::Varint(decode_varint(rest)?),
            WireType::LengthDelimited => Content::Bytes(borrow_bytes(rest)?),
            _ => {
                skip_field(tag, rest)?;
                Content::Other
            }
        };
        Ok((tag.field_number(), Value { tag, content }))
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Result<(u32, Value<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field.map_err(malformed))
    }
}

/// Value of a field.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    tag: Tag,
    content: Content<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Content<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes, or a group. No Kubernetes type has such fields.
    Other,
}

impl<'a> Value<'a> {
    fn varint(self) -> Result<u64, ProtobufError> {
        match self.content {
            Content::Varint(value) => Ok(value),
            _ => Err(self.mismatch(WireType::Varint)),
        }
    }

    /// Returns the value of a `bool`.
    ///
    /// # Errors
    ///
    /// If it has another wire type.
    pub fn bool(self) -> Result<bool, ProtobufError> {
        Ok(self.varint()? != 0)
    }

    /// Returns the value of an `int32`.
    ///
    /// # Errors
    ///
    /// If it has another wire type.
    #[expect(clippy::cast_possible_truncation, reason = "protobuf truncates")]
    pub fn int32(self) -> Result<i32, ProtobufError> {
        Ok(self.varint()? as i32)
    }

    /// Returns the value of an `int64`.
    ///
    /// # Errors
    ///
    /// If it has another wire type.
    #[expect(clippy::cast_possible_wrap, reason = "negative numbers have the sign bit set")]
    pub fn int64(self) -> Result<i64, ProtobufError> {
        Ok(self.varint()? as i64)
    }

    /// Returns the content of `bytes`.
    ///
    /// # Errors
    ///
    /// If it has another wire type.
    pub fn bytes(self) -> Result<&'a [u8], ProtobufError> {
        match self.content {
            Content::Bytes(bytes) => Ok(bytes),
            _ => Err(self.mismatch(WireType::LengthDelimited)),
        }
    }

    /// Returns the content of a `string`.
    ///
    /// # Errors
    ///
    /// If it has another wire type or is not UTF-8.
    pub fn text(self) -> Result<&'a str, ProtobufError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| malformed(DecodeError::InvalidUtf8))
    }

    /// Returns the content of a `string`. Replaces bytes that are not UTF-8 by U+FFFD, as the JSON of an API server does.
    ///
    /// # Errors
    ///
    /// If it has another wire type.
    pub fn lossy_text(self) -> Result<Cow<'a, str>, ProtobufError> {
        self.bytes().map(String::from_utf8_lossy)
    }

    /// Returns the fields of a message.
    ///
    /// # Errors
    ///
    /// If it has another wire type.
    pub fn message(self) -> Result<Message<'a>, ProtobufError> {
        Ok(Message::new(self.bytes()?))
    }

    fn mismatch(self, expected: WireType) -> ProtobufError {
        malformed(buffa::encoding::wire_type_mismatch(self.tag, expected))
    }
}

/// `true` if `body` is an object in an envelope, and not JSON.
pub fn is_enveloped(body: &[u8]) -> bool {
    body.starts_with(PREFIX)
}

/// Returns the message of an object in an envelope.
///
/// Upstream counterpart: `runtime.Unknown`.
///
/// # Errors
///
/// If `body` is not an envelope, or the object in it is compressed or not protobuf.
pub fn open_envelope(body: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut raw: &[u8] = &[];
    for field in Message::new(body.strip_prefix(PREFIX).ok_or(ProtobufError::Prefix)?) {
        match field? {
            (2, value) => raw = value.bytes()?,
            (3, value) if !value.text()?.is_empty() => {
                return Err(ProtobufError::Encoding(value.text()?.to_owned()));
            }
            (4, value) if !matches!(value.text()?, "" | CONTENT_TYPE) => {
                return Err(ProtobufError::Encoding(value.text()?.to_owned()));
            }
            _ => {}
        }
    }
    Ok(raw)
}

/// Event of a watch.
///
/// Upstream counterpart: `metav1.WatchEvent`.
#[derive(Debug, Clone, Default)]
pub struct WatchFrame<'a> {
    /// Type, such as `ADDED`.
    pub type_: &'a str,
    /// Object in its envelope.
    pub object: &'a [u8],
}

impl<'a> WatchFrame<'a> {
    /// Reads a frame of the stream, without its length.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub fn read(frame: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut event = Self::default();
        for field in Message::new(frame) {
            match field? {
                (1, value) => event.type_ = value.text()?,
                (2, value) => {
                    for field in value.message()? {
                        if let (1, value) = field? {
                            event.object = value.bytes()?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }
}

/// Part of the metadata that objects of all kinds have.
#[derive(Debug, Clone, Default)]
pub struct Identity<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.namespace`. Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// `metadata.resourceVersion`.
    pub resource_version: &'a str,
    /// Annotations.
    pub annotations: Vec<(&'a str, &'a str)>,
}

impl<'a> Identity<'a> {
    /// Reads the message of an object of any kind.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub fn read(message: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut identity = Self::default();
        identity.add(message)?;
        Ok(identity)
    }

    fn add(&mut self, message: &'a [u8]) -> Result<(), ProtobufError> {
        for field in Message::new(message) {
            let (1, metadata) = field? else { continue };
            for field in metadata.message()? {
                match field? {
                    (1, value) => self.name = value.text()?,
                    (3, value) => self.namespace = value.text()?,
                    (6, value) => self.resource_version = value.text()?,
                    (12, value) => {
                        let (mut key, mut content) = ("", "");
                        for field in value.message()? {
                            match field? {
                                (1, value) => key = value.text()?,
                                (2, value) => content = value.text()?,
                                _ => {}
                            }
                        }
                        self.annotations.push((key, content));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Returns the name (`namespace/name` if it has a namespace) and the resource version of an object of any kind, as
/// [`object_name`](crate::object_name) does for JSON.
///
/// For objects that cannot be decoded. It returns what precedes the first error.
pub fn object_name(message: &[u8]) -> (String, Option<String>) {
    let mut identity = Identity::default();
    // An error ends the search. What was found before it is used.
    let _ = identity.add(message);
    let Identity { name, namespace, resource_version, .. } = identity;
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    (name, (!resource_version.is_empty()).then(|| resource_version.to_owned()))
}

impl Status {
    /// Decodes the body of an error response from its protobuf message, without envelope.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub fn decode_protobuf(message: &[u8]) -> Result<Self, ProtobufError> {
        let mut status = Self::default();
        for field in Message::new(message) {
            match field? {
                (2, value) => status.status = value.text()?.to_owned(),
                (3, value) => status.message = value.text()?.to_owned(),
                (4, value) => status.reason = value.text()?.to_owned(),
                (5, value) => status.details = Some(status_details(value.message()?)?),
                (6, value) => status.code = u16::try_from(value.int32()?).unwrap_or(0),
                _ => {}
            }
        }
        Ok(status)
    }
}

fn status_details(message: Message<'_>) -> Result<StatusDetails, ProtobufError> {
    let mut details = StatusDetails::default();
    for field in message {
        match field? {
            (1, value) => details.name = value.text()?.to_owned(),
            (2, value) => details.group = value.text()?.to_owned(),
            (3, value) => details.kind = value.text()?.to_owned(),
            (4, value) => {
                let mut cause = StatusCause::default();
                for field in value.message()? {
                    match field? {
                        (1, value) => cause.reason = value.text()?.to_owned(),
                        (2, value) => cause.message = value.text()?.to_owned(),
                        (3, value) => cause.field = value.text()?.to_owned(),
                        _ => {}
                    }
                }
                details.causes.push(cause);
            }
            // Go writes zero if there is none.
            (5, value) => {
                details.retry_after_seconds =
                    u32::try_from(value.int32()?).ok().filter(|seconds| *seconds > 0);
            }
            (6, value) => details.uid = value.text()?.to_owned(),
            _ => {}
        }
    }
    Ok(details)
}
