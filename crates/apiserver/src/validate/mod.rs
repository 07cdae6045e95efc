//! What an object must be like to be stored.

use serde_json::Value;

mod error;

pub use error::{Cause, ErrorType, FieldError, aggregate};

/// What is wrong with a new object.
pub fn create(_kind: &str, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with replacing `old` by `new`.
pub fn update(_kind: &str, _new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with replacing `old` by `new` through `/status`.
pub fn update_status(_kind: &str, _new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}
