//! CustomResourceDefinitions.
//!
//! Upstream counterpart: `apiextensions-apiserver/pkg/apis/apiextensions/validation`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    definition_schema, names,
    path::{Errors, Path},
    read::{flag, get, given, list, text, texts},
    webhooks,
};
use crate::{
    json::{at, bool_at, str_at},
    json_path::JsonPath,
};

const SPEC: Path<'static> = Path::new("spec");
const STORED_VERSIONS: &str = "storedVersions";

/// Types of printer columns.
const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
/// Maximum number of selectable fields of a version.
const MAX_SELECTABLE_FIELDS: usize = 8;

/// Annotation that approves a definition in a group of the Kubernetes community.
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Validates the spec and status of a new definition.
pub(super) fn create(definition: &Value, errors: &mut Errors) {
    let (name, spec) = (str_at(definition, &["metadata", "name"]), get(definition, "spec"));
    if name != format!("{}.{}", str_at(spec, &["names", "plural"]), text(spec, "group")) {
        let path = Path::new("metadata");
        errors.invalid(&path.child("name"), name, "must be spec.names.plural+\".\"+spec.group");
    }
    content(definition, errors);
    approval(definition, errors);
}

/// Validates the spec and status of an updated definition.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    content(new, errors);
    let (new_spec, old_spec) = (get(new, "spec"), get(old, "spec"));
    let names = SPEC.child("names");
    let name = |spec, field| get(get(spec, "names"), field);
    if is_established(old) {
        errors.immutable(&SPEC.child("scope"), get(new_spec, "scope"), get(old_spec, "scope"));
        errors.immutable(&names.child("kind"), name(new_spec, "kind"), name(old_spec, "kind"));
    }
    errors.immutable(&SPEC.child("group"), get(new_spec, "group"), get(old_spec, "group"));
    errors.immutable(&names.child("plural"), name(new_spec, "plural"), name(old_spec, "plural"));
    let annotation = |definition| at(definition, &["metadata", "annotations", APPROVAL]).cloned();
    if annotation(new) != annotation(old) {
        approval(new, errors);
    }
}

fn is_established(definition: &Value) -> bool {
    list(get(definition, "status"), "conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Established" && text(condition, "status") == "True")
}

fn content(definition: &Value, errors: &mut Errors) {
    let spec = get(definition, "spec");
    let group = text(spec, "group");
    if group.is_empty() {
        errors.required(&SPEC.child("group"), "");
    } else if let wrong = names::dns_subdomain(group)
        && !wrong.is_empty()
    {
        errors.invalid(&SPEC.child("group"), group, wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid(&SPEC.child("group"), group, "should be a domain with at least one dot");
    }
    errors.one_of(&SPEC.child("scope"), text(spec, "scope"), &["Cluster", "Namespaced"]);

    let given: Vec<&Value> = list(spec, "versions").iter().collect();
    let versions_path = SPEC.child("versions");
    for (index, version) in given.iter().enumerate() {
        if at(version, &["schema", "openAPIV3Schema"]).is_none() {
            let path = versions_path.index(index);
            errors.required(&path.child("schema").child("openAPIV3Schema"), "");
        }
    }
    for (index, version) in given.iter().enumerate() {
        let path = versions_path.index(index);
        let name = text(version, "name");
        let wrong = names::dns_1035_label(name);
        if !wrong.is_empty() {
            errors.invalid(&path.child("name"), name, wrong.join(","));
        }
        deprecation(version, &path, errors);
    }
    per_version(&given, errors);

    let printed = || Value::Array(given.iter().map(|version| go_version(version)).collect());
    let mut seen: Vec<&str> = given.iter().map(|version| text(version, "name")).collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        errors.invalid(&versions_path, printed(), "must contain unique version names");
    }
    if given.iter().filter(|version| flag(version, "storage")).count() != 1 {
        errors.invalid(&versions_path, printed(), "must have exactly one version marked as storage version");
    }
    required_names(get(spec, "names"), errors);
    conversion(get(spec, "conversion"), errors);
    if flag(spec, "preserveUnknownFields") {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.invalid(&SPEC.child("preserveUnknownFields"), true, detail);
    }
    stored_versions(definition, &given, errors);
}

/// A version as upstream prints it: the internal type, without the fields that all versions share.
fn go_version(version: &Value) -> Value {
    json!({
        "Name": text(version, "name"), "Served": flag(version, "served"), "Storage": flag(version, "storage"),
        "Deprecated": flag(version, "deprecated"), "DeprecationWarning": version.get("deprecationWarning"),
        "Schema": null, "Subresources": null, "AdditionalPrinterColumns": null, "SelectableFields": null,
    })
}

fn deprecation(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let mut invalid = |detail| errors.invalid(&path.child("deprecationWarning"), warning, detail);
    if !flag(version, "deprecated") {
        return invalid("can only be set for deprecated versions");
    }
    if warning.len() > 256 {
        invalid("must be <= 256 characters long");
    }
    if warning.is_empty() {
        invalid("must not be an empty string");
    }
    if warning.chars().any(char::is_control) {
        invalid("must only contain printable UTF-8 characters");
    }
}

/// Validates what each version may define.
///
/// As upstream, what is equal in all versions is reported once, below `spec`, under its name in `v1beta1`.
fn per_version(versions: &[&Value], errors: &mut Errors) {
    let shared = |field: &str| {
        versions.windows(2).all(|pair| pair[0].get(field) == pair[1].get(field))
            && versions.iter().all(|version| version.get(field).is_some())
    };
    let versions_path = SPEC.child("versions");
    let each = |field: &str, name: &str, check: &mut dyn FnMut(&Value, &Value, &Path<'_>)| {
        let is_shared = shared(field);
        let taken = if is_shared { 1 } else { versions.len() };
        for (index, version) in versions.iter().enumerate().take(taken) {
            let Some(value) = version.get(field) else { continue };
            if is_shared {
                check(version, value, &SPEC.child(name));
            } else {
                let path = versions_path.index(index);
                check(version, value, &path.child(field));
            }
        }
    };
    each("schema", "validation", &mut |version, validation, path| {
        if let Some(schema) = validation.get("openAPIV3Schema") {
            let has_status = at(version, &["subresources", "status"]).is_some();
            definition_schema::check(schema, has_status, &path.child("openAPIV3Schema"), errors);
        }
    });
    each("subresources", "subresources", &mut |_, subresources, path| {
        if let Some(scale) = subresources.get("scale") {
            scale_paths(scale, &path.child("scale"), errors);
        }
    });
    each("additionalPrinterColumns", "additionalPrinterColumns", &mut |_, columns, path| {
        for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
            printer_column(column, &path.index(index), errors);
        }
    });
    each("selectableFields", "selectableFields", &mut |version, fields, path| {
        let schema = at(version, &["schema", "openAPIV3Schema"]).unwrap_or(&Value::Null);
        selectable_fields(fields.as_array().map_or(&[], Vec::as_slice), schema, path, errors);
    });
}

/// Upstream counterpart: `ValidateCustomResourceSelectableFields`. Names in quotes are not supported.
fn selectable_fields(fields: &[Value], schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: [&str; 3] = ["string", "boolean", "integer"];
    let mut unique = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let (json_path, path) = (text(field, "jsonPath"), path.index(index));
        let path = path.child("jsonPath");
        let Some(name) = json_path.strip_prefix('.') else {
            if json_path.is_empty() {
                errors.required(&path, "");
            } else {
                let detail = "is an invalid path: expected [ or . but got: ";
                let first = json_path.split(['.', '[', ']']).next().unwrap_or_default();
                errors.invalid(&path, json_path, format!("{detail}{first}"));
            }
            continue;
        };
        let member = |schema: &'_ Value, name: &str| schema.get("properties")?.get(name).cloned();
        let Some(found) = name.split('.').try_fold(schema.clone(), |schema, name| member(&schema, name))
        else {
            errors.invalid(&path, json_path, "is an invalid path: does not refer to a valid field");
            continue;
        };
        if name.split('.').next() == Some("metadata") {
            errors.invalid(&path, json_path, "must not point to fields in metadata");
        }
        if !TYPES.contains(&text(&found, "type")) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.invalid(&path, json_path, detail);
        }
        if !unique.insert(name) {
            errors.duplicate(&path, json_path);
        }
    }
    if unique.len() > MAX_SELECTABLE_FIELDS {
        errors.too_many(path, unique.len(), MAX_SELECTABLE_FIELDS);
    }
}

fn printer_column(column: &Value, path: &Path<'_>, errors: &mut Errors) {
    errors.present(&path.child("name"), text(column, "name"));
    let (ty, format) = (text(column, "type"), text(column, "format"));
    if ty.is_empty() {
        errors.required(&path.child("type"), &format!("must be one of {COLUMN_TYPES}"));
    } else if !COLUMN_TYPES.split(',').any(|known| known == ty) {
        errors.invalid(&path.child("type"), ty, format!("must be one of {COLUMN_TYPES}"));
    }
    if !format.is_empty() && !COLUMN_FORMATS.split(',').any(|known| known == format) {
        errors.invalid(&path.child("format"), format, format!("must be one of {COLUMN_FORMATS}"));
    }
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        errors.required(&path.child("JSONPath"), "");
    } else {
        simple_json_path(json_path, &path.child("JSONPath"), errors);
    }
}

/// Validates the syntax of a path. Returns `true` if it is valid.
/// DEVIATION: upstream accepts a printer column whose path it cannot evaluate, and prints nothing.
fn simple_json_path(json_path: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let valid = json_path.starts_with('.');
    if !valid {
        errors.invalid(path, json_path, "must be a simple json path starting with .");
    } else if let Err(reason) = JsonPath::parse(json_path) {
        errors.invalid(path, json_path, reason);
        return false;
    }
    valid
}

fn scale_paths(scale: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let (json_path, path) = (text(scale, field), path.child(field));
        if json_path.is_empty() {
            errors.required(&path, "");
        } else if simple_json_path(json_path, &path, errors) && !json_path.starts_with(root) {
            let root = root.trim_end_matches('.');
            errors.invalid(&path, json_path, format!("should be a json path under {root}"));
        }
    }
    let (json_path, path) = (text(scale, "labelSelectorPath"), path.child("labelSelectorPath"));
    if !json_path.is_empty()
        && simple_json_path(json_path, &path, errors)
        && ![".spec.", ".status."].iter().any(|root| json_path.starts_with(root))
    {
        errors.invalid(&path, json_path, "should be a json path under either .spec or .status");
    }
}

fn required_names(given: &Value, errors: &mut Errors) {
    let path = SPEC.child("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        errors.present(&path.child(field), text(given, field));
    }
    for field in ["plural", "singular"] {
        label(text(given, field), &path.child(field), errors);
    }
    for field in ["kind", "listKind"] {
        let kind = text(given, field);
        let wrong = names::dns_1035_label(&kind.to_lowercase());
        if !kind.is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.invalid(&path.child(field), kind, detail);
        }
    }
    for field in ["shortNames", "categories"] {
        let path = path.child(field);
        for (index, name) in texts(given, field).enumerate() {
            label(name, &path.index(index), errors);
        }
    }
    let kind = text(given, "kind");
    if !kind.is_empty() && kind == text(given, "listKind") {
        errors.invalid(&path.child("listKind"), kind, "kind and listKind may not be the same");
    }
}

fn label(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let wrong = names::dns_1035_label(name);
    if !name.is_empty() && !wrong.is_empty() {
        errors.invalid(path, name, wrong.join(","));
    }
}

fn conversion(conversion: &Value, errors: &mut Errors) {
    let path = SPEC.child("conversion");
    let strategy = text(conversion, "strategy");
    match strategy {
        "None" => {
            if conversion.get("webhook").is_some() {
                let detail = "should not be set when strategy is not set to Webhook";
                errors.forbidden(&path.child("webhookClientConfig"), detail);
            }
        }
        "Webhook" => {
            let webhook = get(conversion, "webhook");
            // The internal type has other names.
            let config_path = path.child("webhookClientConfig");
            match given(webhook, "clientConfig") {
                Some(config) => webhooks::client_config(config, &config_path, errors),
                None => errors.required(&config_path, "required when strategy is set to Webhook"),
            }
            const VERSIONS: &str = "conversionReviewVersions";
            if list(webhook, VERSIONS).is_empty() {
                errors.required(&path.child(VERSIONS), "");
            }
            webhooks::review_versions(webhook, VERSIONS, &path, errors);
        }
        other => errors.one_of(&path.child("strategy"), other, &["None", "Webhook"]),
    }
}

fn stored_versions(definition: &Value, versions: &[&Value], errors: &mut Errors) {
    let status = Path::new("status");
    let path = status.child(STORED_VERSIONS);
    let stored: Vec<&str> = texts(get(definition, "status"), STORED_VERSIONS).collect();
    if stored.is_empty() {
        return errors.invalid(&path, Value::Null, "must have at least one stored version");
    }
    for version in versions {
        let name = text(version, "name");
        if bool_at(version, &["storage"]) && !stored.contains(&name) {
            errors.invalid(&path, json!(stored), format!("must have the storage version {name}"));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| text(version, "name") == *name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.invalid(&path.index(index), *name, detail);
        }
    }
}

/// Requires an approval of definitions in groups of the Kubernetes community.
fn approval(definition: &Value, errors: &mut Errors) {
    let group = str_at(definition, &["spec", "group"]);
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !is_protected {
        return;
    }
    let metadata = Path::new("metadata");
    let annotations = metadata.child("annotations");
    let path = annotations.key(APPROVAL);
    match at(definition, &["metadata", "annotations", APPROVAL]).and_then(Value::as_str) {
        None | Some("") => {
            let detail = format!(
                "protected groups must have approval annotation {APPROVAL:?}, see \
                 https://github.com/kubernetes/enhancements/pull/1111"
            );
            errors.required(&path, &detail);
        }
        Some(value) if value.starts_with("unapproved") || value.contains("://") => {}
        Some(value) => {
            let detail = format!(
                "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting \
                 with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            );
            errors.invalid(&path, value, detail);
        }
    }
}
