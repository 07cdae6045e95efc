//! The values that fields get when nobody sets them.

use serde_json::Value;

/// Fills in what `kind` defaults.
pub fn apply(_kind: &str, _object: &mut Value) {}
