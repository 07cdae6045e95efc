//! Kinds that are only stored: names, required fields, enumerations and pod templates.

use std::cmp::Ordering;

use serde_json::Value;

use super::{
    metadata::{self, Naming},
    names,
    path::{Errors, Path},
    pod,
    read::{get, given, list, text},
    webhooks, workload,
};
use crate::{field_error::FieldError, stored_kind::Rules};

/// Rule for the names of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    Subdomain,
    Label,
    /// Segment of a path.
    PathSegment,
}

/// Returns the errors in the metadata of a new object.
pub(crate) fn metadata(object: &Value, is_namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let rule = match rule {
        NameRule::Subdomain => names::dns_subdomain,
        NameRule::Label => names::dns_label,
        NameRule::PathSegment => names::path_segment,
    };
    let mut errors = Errors::default();
    metadata::create(object, &Naming { is_namespaced, rule, is_built_in: true }, &mut errors);
    errors.0
}

/// Returns the errors of a change of the approval of a signing request by a write of its status.
///
/// Upstream counterpart: `ValidateCertificateSigningRequestStatusUpdate`.
pub(crate) fn approval_unchanged(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let path = Path::new("status");
    let path = path.child("conditions");
    for approval in ["Approved", "Denied"] {
        let of_type = |object| -> Vec<&Value> {
            let conditions = list(get(object, "status"), "conditions");
            conditions.iter().filter(|condition| text(condition, "type") == approval).collect()
        };
        let (new, old) = (of_type(new), of_type(old));
        let change = match new.len().cmp(&old.len()) {
            Ordering::Less => "remove",
            Ordering::Greater => "add",
            Ordering::Equal if new != old => "modify",
            Ordering::Equal => continue,
        };
        errors.forbidden(&path, format!("updates may not {change} a condition of type {approval:?}"));
    }
    errors.0
}

/// Returns the errors in the other members of an object. `template` is the path of its pod template, or empty.
pub(crate) fn content(object: &Value, template: &str, rules: &Rules) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if let Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") =
        get(object, "kind").as_str()
    {
        webhooks::configuration(object, &mut errors);
        return errors.0;
    }
    for (path, detail) in &rules.required {
        visit(object, path, None, &mut |value, path| {
            if is_empty(value) {
                errors.required(path, detail);
            }
        });
    }
    for (path, supported) in &rules.values {
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        let is_required = rules.required.iter().any(|(required, _)| required == path);
        visit(object, path, None, &mut |value, path| {
            if let Some(text) = value.as_str().filter(|text| !supported.contains(text))
                && !(is_required && text.is_empty())
            {
                errors.not_supported(path, text, &supported);
            }
        });
    }
    if template == "spec.template" && given(get(object, "spec"), "selector").is_some() {
        let kind = get(object, "kind").as_str().unwrap_or_default().to_lowercase();
        workload::selector_and_labels(get(object, "spec"), &kind, &mut errors);
    }
    if !template.is_empty() {
        visit(object, template, None, &mut |template, path| pod::template(template, path, &mut errors));
    }
    errors.0
}

/// `true` if Go does not distinguish the value from an absent field.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Calls `check` with each value at a path such as `spec.ports[].name`, null if its parent does not have it.
fn visit(value: &Value, path: &str, parent: Option<&Path<'_>>, check: &mut dyn FnMut(&Value, &Path<'_>)) {
    let (step, rest) = path.split_once('.').map_or((path, None), |(step, rest)| (step, Some(rest)));
    let name = step.trim_end_matches("[]");
    let path = parent.map_or_else(|| Path::new(name), |parent| parent.child(name));
    let mut descend = |value: &Value, path: &Path<'_>| match rest {
        Some(rest) if value.is_object() => visit(value, rest, Some(path), check),
        Some(_) => {}
        None => check(value, path),
    };
    if step.len() == name.len() {
        descend(get(value, name), &path);
    } else {
        for (index, item) in list(value, name).iter().enumerate() {
            descend(item, &path.index(index));
        }
    }
}
