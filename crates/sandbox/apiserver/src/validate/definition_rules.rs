//! Validation rules in the schema of a CustomResourceDefinition.
//!
//! Upstream counterpart: `ValidateCustomResourceDefinitionOpenAPISchema`, and `schema/cel/compilation.go`.

use serde_json::Value;

use super::{
    path::{Errors, Path},
    read::{list, text},
};
use crate::{
    cel::Declaration,
    field_error::{ErrorType, FieldError},
    json::{at, bool_at, write_json},
    structural_schema::Schema,
};

const VALIDATIONS: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Validates the rules of a schema.
///
/// DEVIATION: upstream also limits the estimated cost of the rules.
pub(super) fn check(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if has_rules(schema) {
        below(schema, true, None, path, errors);
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.contains_key(VALIDATIONS) || members.values().any(has_rules),
        Value::Array(schemas) => schemas.iter().any(has_rules),
        _ => false,
    }
}

/// Validates the rules below a schema, then its own. `uncorrelatable` is the path of the outermost list around it whose items
/// have no identity.
fn below(
    schema: &Value,
    is_root: bool,
    uncorrelatable: Option<&Path<'_>>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let is_resource = |schema: &Value| bool_at(schema, &["x-kubernetes-embedded-resource"]);
    if let Some(additional) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
        let path = path.child("additionalProperties");
        below(additional, is_resource(additional), uncorrelatable, &path, errors);
    }
    let properties_path = path.child("properties");
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        below(property, is_resource(property), uncorrelatable, &properties_path.key(name), errors);
    }
    if let Some(items) = schema.get("items").filter(|schema| schema.is_object()) {
        let is_keyed = text(schema, "x-kubernetes-list-type") == "map";
        let uncorrelatable = uncorrelatable.or(Some(path).filter(|_| !is_keyed));
        below(items, is_resource(items), uncorrelatable, &path.child("items"), errors);
    }
    let all_of_path = path.child("allOf");
    for (index, nested) in list(schema, "allOf").iter().enumerate() {
        // The types are those of the schema around it.
        own(nested, schema, is_root, uncorrelatable, &all_of_path.index(index), errors);
    }
    own(schema, schema, is_root, uncorrelatable, path, errors);
}

/// Validates the rules of `schema` on values of `typed`.
fn own(
    schema: &Value,
    typed: &Value,
    is_root: bool,
    uncorrelatable: Option<&Path<'_>>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let rules = list(schema, VALIDATIONS);
    if rules.is_empty() {
        return;
    }
    let typed = Schema::parse(typed);
    let before = errors.0.len();
    let rules_path = path.child(VALIDATIONS);
    for (index, rule) in rules.iter().enumerate() {
        form(rule, &typed, &rules_path.index(index), errors);
    }
    if errors.0.len() > before {
        return;
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = &rules_path.index(index);
        let has_optional_old_self = bool_at(rule, &["optionalOldSelf"]);
        let declaration = Declaration { schema: &typed, is_root, has_optional_old_self };
        let uses_old_self = match declaration.check(text(rule, "rule"), true) {
            Ok(uses_old_self) => uses_old_self,
            Err(error) => {
                refuse(&path.child("rule"), rule, &error, errors);
                false
            }
        };
        let message = text(rule, "messageExpression");
        if !message.is_empty()
            && let Err(error) = declaration.check(message, false)
        {
            refuse(&path.child("messageExpression"), rule, &format!("messageExpression {error}"), errors);
        }
        match (uses_old_self, uncorrelatable) {
            (true, Some(place)) => {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {place}"
                );
                errors.invalid(&path.child("rule"), text(rule, "rule"), detail);
            }
            (false, _) if at(rule, &["optionalOldSelf"]).is_some() => {
                let detail = "may not be set if oldSelf is not used in rule";
                errors.invalid(&path.child("optionalOldSelf"), has_optional_old_self, detail);
            }
            _ => {}
        }
    }
}

/// Adds an error about a rule, which is printed in the order of its fields.
fn refuse(path: &Path<'_>, rule: &Value, detail: &str, errors: &mut Errors) {
    let mut shown = Vec::new();
    for (shown_name, name) in [
        ("{\"Rule\":", "rule"),
        (",\"Message\":", "message"),
        (",\"MessageExpression\":", "messageExpression"),
        (",\"Reason\":", "reason"),
        (",\"FieldPath\":", "fieldPath"),
        (",\"OptionalOldSelf\":", "optionalOldSelf"),
    ] {
        let is_pointer = matches!(name, "reason" | "optionalOldSelf");
        let absent = if is_pointer { Value::Null } else { Value::from("") };
        shown.extend_from_slice(shown_name.as_bytes());
        write_json(&mut shown, rule.get(name).unwrap_or(&absent));
    }
    let detail = format!("{}}}: {detail}", String::from_utf8_lossy(&shown));
    errors.0.push(FieldError {
        field: path.to_string(),
        error_type: ErrorType::Invalid,
        value: None,
        detail,
    });
}

/// Validates a rule without its expressions.
fn form(rule: &Value, schema: &Schema, path: &Path<'_>, errors: &mut Errors) {
    let (expression, message) = (text(rule, "rule").trim(), text(rule, "message").trim());
    let message_path = path.child("message");
    if expression.is_empty() {
        errors.required(&path.child("rule"), "rule is not specified");
    } else if message.is_empty() && !text(rule, "message").is_empty() {
        errors.invalid(&message_path, text(rule, "message"), "must be non-empty if specified");
    } else if message.contains(['\n', '\r']) {
        errors.invalid(&message_path, text(rule, "message"), "must not contain line breaks");
    } else if expression.contains(['\n', '\r']) && message.is_empty() {
        errors.required(&message_path, "message must be specified if rule contains line breaks");
    }
    let evaluated = text(rule, "messageExpression");
    if !evaluated.is_empty() && evaluated.trim().is_empty() {
        errors.required(&path.child("messageExpression"), "messageExpression must be non-empty if specified");
    }
    let reason = text(rule, "reason");
    if !reason.is_empty() && !REASONS.contains(&reason) {
        errors.not_supported(&path.child("reason"), reason, &REASONS);
    }
    let field_path = text(rule, "fieldPath");
    if field_path.is_empty() {
        return;
    }
    let mut invalid = |detail: &str| errors.invalid(&path.child("fieldPath"), field_path, detail);
    if field_path.trim().is_empty() {
        invalid("must be non-empty if specified");
    }
    if field_path.contains(['\n', '\r']) {
        invalid("must not contain line breaks");
    }
    if !is_field_path(field_path, schema) {
        invalid("must be a valid path");
    }
}

/// `true` if a path such as `.spec['a.b']` names a field of the schema.
fn is_field_path(path: &str, schema: &Schema) -> bool {
    let (mut rest, mut schema) = (path, schema);
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix('.') {
            after.split_at(after.find(['.', '[']).unwrap_or(after.len()))
        } else {
            let Some(quoted) = rest.strip_prefix("['").and_then(|rest| rest.split_once("']")) else {
                return false;
            };
            quoted
        };
        let Some(member) = schema.member(name) else { return false };
        (rest, schema) = (after, member);
    }
    true
}
