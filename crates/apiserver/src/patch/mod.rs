//! Patches: RFC 6902 (JSON patch), RFC 7396 (merge patch) and Kubernetes' strategic merge.
//!
//! A patch is applied to a copy; one that fails has done nothing. What comes out still has to be decoded,
//! defaulted and checked: a patch can say anything. Server-side apply is no patch in this sense.
//!
//! Upstream counterpart: `apiserver/pkg/endpoints/handlers/patch.go` and
//! `apimachinery/pkg/util/strategicpatch`.

use serde_json::Value;
use thiserror::Error;

mod merge_keys;
mod strategic;
#[cfg(test)]
mod tests;

pub use strategic::strategic;

/// How many operations a JSON patch may have.
const MAX_OPERATIONS: usize = 10_000;

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

impl PatchError {
    fn bad_request(message: impl Into<String>) -> Self {
        Self { code: 400, reason: "BadRequest", message: message.into() }
    }

    /// A patch that can be read but does not go with the object.
    fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request".to_owned();
        Self { code: 422, reason: "Invalid", message }
    }
}

/// `target` with an RFC 6902 patch applied.
///
/// # Errors
///
/// When the patch is no patch (400), has more than 10,000 operations (413), or one of them fails (422).
pub fn json_patch(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let count = patch.as_array().map_or(0, Vec::len);
    if count > MAX_OPERATIONS {
        return Err(PatchError {
            code: 413,
            reason: "RequestEntityTooLarge",
            message: format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got \
                 {count}"
            ),
        });
    }
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::bad_request(format!("error decoding patch: {error}")))?;
    let mut patched = target.clone();
    json_patch::patch(&mut patched, &operations).map_err(|_| PatchError::unprocessable())?;
    Ok(patched)
}

/// `target` with an RFC 7396 merge patch applied.
pub fn merge(target: &Value, patch: &Value) -> Value {
    let mut patched = target.clone();
    json_patch::merge(&mut patched, patch);
    patched
}
