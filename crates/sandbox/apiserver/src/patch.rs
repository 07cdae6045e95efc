//! Patches: JSON patch (RFC 6902), JSON merge patch (RFC 7396) and Kubernetes' strategic merge patch.
//!
//! A patch is applied to a copy. The result must be decoded, defaulted and validated by the caller. Server-side apply is
//! in a separate module.
//!
//! Upstream counterpart: `apiserver/pkg/endpoints/handlers/patch.go` and
//! `apimachinery/pkg/util/strategicpatch`.

use json_patch::PatchOperation;
use serde_json::Value;
use thiserror::Error;

use crate::json::estimated_len;

mod merge_keys;
mod strategic;
#[cfg(test)]
mod tests;

pub use strategic::strategic;

/// Maximum number of operations of a JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// Maximum total size in bytes of the values copied by the `copy` operations of a JSON patch. Equals the limit of a
/// request's body, as upstream (`jsonpatch.AccumulatedCopySizeLimit`).
const MAX_COPIED: usize = 3 << 20;

/// Maximum depth of a value after an operation of a JSON patch. Equals the limit of serde_json, and so of a request's body.
/// Values are dropped and written by recursion.
const MAX_DEPTH: usize = 128;

/// Failed patch, with upstream's response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct PatchError {
    /// HTTP status code.
    pub code: u16,
    /// `reason` of the Status.
    pub reason: &'static str,
    /// `message` of the Status.
    pub message: String,
}

impl PatchError {
    fn bad_request(message: impl Into<String>) -> Self {
        Self { code: 400, reason: "BadRequest", message: message.into() }
    }

    /// 422 for a patch that cannot be applied to the object.
    fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request".to_owned();
        Self { code: 422, reason: "Invalid", message }
    }
}

/// Applies a JSON patch (RFC 6902) to `target` and returns the result.
///
/// # Errors
///
/// 400 if the patch is malformed, 413 if it has more than 10,000 operations, 422 if an operation fails, the operations
/// copy more than 3 MiB in total, or values are nested more than 128 levels deep.
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
    let json_patch::Patch(operations) = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::bad_request(format!("error decoding patch: {error}")))?;
    let (mut patched, mut copied) = (target.clone(), 0);
    for operation in &operations {
        if let PatchOperation::Copy(copy) = operation {
            copied += patched.pointer(copy.from.as_str()).map_or(0, estimated_len);
        }
        if copied > MAX_COPIED || depth_after(&patched, operation) > MAX_DEPTH {
            return Err(PatchError::unprocessable());
        }
        // Operations before a failed one need no rollback: `patched` is dropped.
        json_patch::patch_unsafe(&mut patched, std::slice::from_ref(operation))
            .map_err(|_| PatchError::unprocessable())?;
    }
    Ok(patched)
}

/// Returns the depth of the value that `operation` writes. 0 for operations that only read or remove.
fn depth_after(target: &Value, operation: &PatchOperation) -> usize {
    let written = match operation {
        PatchOperation::Add(add) => Some(&add.value),
        PatchOperation::Replace(replace) => Some(&replace.value),
        PatchOperation::Move(movement) => target.pointer(movement.from.as_str()),
        PatchOperation::Copy(copy) => target.pointer(copy.from.as_str()),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
    };
    written.map_or(0, |value| operation.path().count() + depth(value))
}

/// Returns the nesting depth of arrays and objects in `value`.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Applies a JSON merge patch (RFC 7396) to `target` and returns the result.
pub fn merge(target: &Value, patch: &Value) -> Value {
    let mut patched = target.clone();
    json_patch::merge(&mut patched, patch);
    patched
}
