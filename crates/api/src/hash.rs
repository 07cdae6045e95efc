//! placeholder
use serde_json::Value;
/// A template that cannot be hashed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot hash pod template: {0}")]
pub struct HashError(pub String);
/// hash
pub fn compute(_template: &Value, _collision_count: Option<i32>) -> Result<String, HashError> {
    Err(HashError("not built".into()))
}
