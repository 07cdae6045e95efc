//! Pod template hashes of recorded templates.

use kcm_api::PodTemplate;
use serde_json::Value;

/// Returns the hash of the template of `case`, or an error message.
pub fn answer(case: &Value) -> String {
    let collision_count = case["collisionCount"].as_i64().and_then(|count| i32::try_from(count).ok());
    let template = match PodTemplate::from_value(&case["template"]) {
        Ok(template) => template,
        Err(error) => return error.to_string(),
    };
    template.compute_hash(collision_count).unwrap_or_else(|error| error.to_string())
}
