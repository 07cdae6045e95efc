//! Label selectors.

use serde_json::Value;

use super::{
    metadata, names,
    path::{Errors, Path},
    read::{list, text, texts},
};

/// Validates a label selector.
pub(super) fn label_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    metadata::labels(selector, "matchLabels", path, errors);
    let path = path.child("matchExpressions");
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = path.index(index);
        let has_values = !list(expression, "values").is_empty();
        match text(expression, "operator") {
            "In" | "NotIn" if !has_values => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.required(&path.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if has_values => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&path.child("values"), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
        }
        errors.rule(&path.child("key"), text(expression, "key"), names::qualified_name);
        for (index, value) in texts(expression, "values").enumerate() {
            errors.rule(&path.child("values").index(index), value, names::label_value);
        }
    }
}
