//! Encoder of messages.

use buffa::encoding::{WireType, encode_varint};

use super::PREFIX;

/// Message under construction.
///
/// ```
/// use kcm_api::protobuf::{MessageBuilder, envelope, object_name, open_envelope};
///
/// let mut metadata = MessageBuilder::default();
/// metadata.bytes(1, b"team");
/// let mut namespace = MessageBuilder::default();
/// namespace.bytes(1, &metadata);
/// let body = envelope("v1", "Namespace", &namespace);
/// assert_eq!(object_name(open_envelope(&body)?).0, "team");
/// # Ok::<(), kcm_api::ProtobufError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageBuilder(Vec<u8>);

impl MessageBuilder {
    /// Adds a `bool` or an integer. Negative integers are extended to 64 bits.
    pub fn varint(&mut self, number: u32, value: u64) -> &mut Self {
        self.key(number, WireType::Varint);
        encode_varint(value, &mut self.0);
        self
    }

    /// Adds a `string`, `bytes` or a message.
    pub fn bytes(&mut self, number: u32, content: impl AsRef<[u8]>) -> &mut Self {
        let content = content.as_ref();
        self.key(number, WireType::LengthDelimited);
        encode_varint(content.len() as u64, &mut self.0);
        self.0.extend_from_slice(content);
        self
    }

    /// Adds fields that are already encoded.
    pub fn fields(&mut self, fields: impl AsRef<[u8]>) -> &mut Self {
        self.0.extend_from_slice(fields.as_ref());
        self
    }

    /// Returns the message.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, number: u32, wire_type: WireType) {
        encode_varint(u64::from(number) << 3 | wire_type as u64, &mut self.0);
    }
}

impl AsRef<[u8]> for MessageBuilder {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Puts an object in an envelope.
///
/// Upstream counterpart: `runtime.Unknown`.
pub fn envelope(api_version: &str, kind: &str, object: impl AsRef<[u8]>) -> Vec<u8> {
    let object = object.as_ref();
    let mut type_meta = MessageBuilder::default();
    type_meta.bytes(1, api_version).bytes(2, kind);
    let mut body = Vec::with_capacity(object.len() + api_version.len() + kind.len() + 32);
    body.extend_from_slice(PREFIX);
    let mut unknown = MessageBuilder(body);
    unknown.bytes(1, &type_meta).bytes(2, object);
    unknown.into_vec()
}
