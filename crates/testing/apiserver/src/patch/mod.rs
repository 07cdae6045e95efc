//! Patches: RFC 6902 (JSON patch), RFC 7396 (merge patch) and Kubernetes' strategic merge.
//!
//! A patch is applied to a copy; one that fails has done nothing. What comes out still has to be decoded,
//! defaulted and checked: a patch can say anything. Server-side apply is no patch in this sense.
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

/// How many operations a JSON patch may have.
const MAX_OPERATIONS: usize = 10_000;

/// Sum of the sizes (bytes) of what the `copy` operations of a JSON patch may copy. Equals the limit of a request's body, as
/// upstream (`jsonpatch.AccumulatedCopySizeLimit`).
const MAX_COPIED: usize = 3 << 20;

/// Maximum depth of a value after an operation of a JSON patch. Equals the limit of serde_json, and so of a request's body.
/// Values are dropped and written by recursion.
const MAX_DEPTH: usize = 128;

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
/// When the patch is no patch (400), has more than 10,000 operations (413), or one of them fails, copies more than 3 MiB
/// together with those before it, or nests values more than 128 levels deep (422).
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
        // `patched` is dropped if an operation fails: the operations before it need not be undone.
        json_patch::patch_unsafe(&mut patched, std::slice::from_ref(operation))
            .map_err(|_| PatchError::unprocessable())?;
    }
    Ok(patched)
}

/// Depth that `operation` gives the place it writes to; 0 if it only reads or removes.
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

/// Levels of arrays and objects in `value`.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// `target` with an RFC 7396 merge patch applied.
pub fn merge(target: &Value, patch: &Value) -> Value {
    let mut patched = target.clone();
    json_patch::merge(&mut patched, patch);
    patched
}
