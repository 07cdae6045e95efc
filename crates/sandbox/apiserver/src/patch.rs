//! Patches: JSON patch (RFC 6902), JSON merge patch (RFC 7396) and Kubernetes' strategic merge patch.
//!
//! A patch is applied to a copy. The result must be decoded, defaulted and validated by the caller. Server-side apply is
//! in a separate module.
//!
//! Upstream counterpart: `apiserver/pkg/endpoints/handlers/patch.go` and
//! `apimachinery/pkg/util/strategicpatch`.

use serde_json::Value;
use thiserror::Error;

use crate::json::type_name;

mod json;
mod merge_keys;
mod strategic;
#[cfg(test)]
mod tests;

pub use json::json_patch;
pub use strategic::strategic;

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

/// Applies a JSON merge patch (RFC 7396) to `target` and returns the result.
///
/// As upstream, members that are null are also removed from new lists, but not from a list that replaces an object.
///
/// # Errors
///
/// 400 if the patch is no object.
///
/// Upstream counterpart: `gopkg.in/evanphx/json-patch.v4`, `merge.go`.
pub fn merge(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let message = match patch {
        Value::Object(_) => {
            let mut patched = target.clone();
            merge_into(&mut patched, patch);
            return Ok(patched);
        }
        Value::Null => "Invalid JSON Patch".to_owned(),
        other => {
            let found = type_name(other);
            format!(
                "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            )
        }
    };
    Err(PatchError::bad_request(message))
}

fn merge_into(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(members), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    members.remove(name);
                } else {
                    merge_into(members.entry(name.as_str()).or_insert(Value::Null), value);
                }
            }
        }
        (target @ Value::Object(_), patch) => *target = patch.clone(),
        (target, patch) => *target = without_nulls(patch),
    }
}

/// Returns `value` without members that are null. Elements of lists that are null remain.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, member)| !member.is_null());
            members.map(|(name, member)| (name.clone(), without_nulls(member))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}
