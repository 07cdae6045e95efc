//! Kinds that are stored without any effect, as a table.
//!
//! `stored_kinds.json` has one row per kind: names, subresources, status of a new object, defaults, required fields and
//! enumerations. A test of `test/e2e` records it from kube-apiserver. The fields of the kinds are in
//! `schema/types.txt`, as those of all other built-in kinds.
//!
//! A tree of defaults has the form of the object. Its members are fields that are set if they are absent, except:
//!
//! | Member | |
//! |---|---|
//! | `"?field"` | defaults below a field, if the field is present |
//! | `"!field"` | field of which zero means absent |
//! | `"@field"` | the defaults beside it apply only if this field is absent or has one of these values |
//! | `[{…}]` | defaults of each item of a list |

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    Subresource, User,
    apply::status_lacks_metadata,
    defaults,
    field_error::FieldError,
    json::{at, bool_at, copy, map_at_mut, set, str_at},
    resource::Definition,
    selectable_field::SelectableField,
    strategy::Strategy,
    validate::{self, NameRule},
};

const TABLE: &str = include_str!("stored_kinds.json");

/// Kind with rules of its own: the server sets the user, and the spec does not change.
const SIGNING_REQUEST: &str = "CertificateSigningRequest";

/// Row of the table.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    #[serde(default)]
    short_names: Vec<&'static str>,
    #[serde(default)]
    categories: Vec<&'static str>,
    namespaced: bool,
    #[serde(default)]
    subresources: Vec<&'static str>,
    /// Names of selectable fields.
    #[serde(default)]
    fields: Vec<&'static str>,
    /// Status of a new object. `None` for kinds without status.
    status: Option<Value>,
    /// `true` if objects have a generation.
    #[serde(default)]
    generation: bool,
    /// `true` if an update requires a resource version.
    #[serde(default)]
    conditional: bool,
    /// `true` if an update creates an object that does not exist.
    #[serde(default)]
    created: bool,
    /// `true` if a removal returns the object.
    #[serde(default)]
    returned: bool,
    /// `true` if dependents are orphaned by default.
    #[serde(default)]
    orphans: bool,
    /// Rule for names: `label`, `path`, or empty for a DNS subdomain.
    #[serde(default)]
    names: &'static str,
    /// Path of the pod template, if there is one.
    #[serde(default)]
    template: &'static str,
    /// Text of [`Rules`].
    rules: &'static RawValue,
}

/// A kind that is only stored.
pub(crate) struct StoredKind {
    row: Row,
    selectable: Vec<SelectableField>,
    rules: OnceLock<Rules>,
}

/// Defaults and validation, which are read when the first object of the kind is written.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Rules {
    /// Trees, which are applied in this order.
    #[serde(default)]
    defaults: Vec<Map<String, Value>>,
    /// Paths of required fields, with the detail of the error.
    #[serde(default)]
    pub(crate) required: Vec<(String, String)>,
    /// Paths of fields with the values that they may have.
    #[serde(default)]
    pub(crate) values: Vec<(String, Vec<String>)>,
}

/// Returns the rows as definitions of resources, which remain for the life of the process.
pub(crate) fn definitions() -> impl Iterator<Item = &'static Definition> {
    // The table is part of the program. A test reads it.
    let rows: Vec<Row> = serde_json::from_str(TABLE).unwrap_or_default();
    rows.into_iter().map(|row| &*Box::leak(Box::new(definition(row))))
}

fn definition(row: Row) -> Definition {
    let selectable = row.fields.iter().map(|name| {
        let path: Vec<&'static str> = name.split('.').collect();
        SelectableField { name, paths: Vec::leak(vec![&*Vec::leak(path)]), absent: "" }
    });
    let stored = StoredKind { selectable: selectable.collect(), row, rules: OnceLock::new() };
    let stored: &'static StoredKind = Box::leak(Box::new(stored));
    let Row { group, version, kind, plural, singular, short_names, categories, .. } = &stored.row;
    let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
    let subresources =
        Subresource::ALL.into_iter().filter(|part| stored.row.subresources.contains(&part.name()));
    Definition {
        group,
        version,
        kind,
        plural,
        singular,
        short_names,
        categories,
        namespaced: stored.row.namespaced,
        subresources: Vec::leak(subresources.collect()),
        type_header: String::leak(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\"")),
        api_version: String::leak(api_version),
        served_versions: &[],
        strategy: stored,
        stored: Some(stored),
    }
}

impl StoredKind {
    fn rules(&self) -> &Rules {
        self.rules.get_or_init(|| serde_json::from_str(self.row.rules.get()).unwrap_or_default())
    }

    /// Sets the defaults of a decoded object.
    pub(crate) fn apply_defaults(&self, object: &mut Value) {
        let Value::Object(members) = object else { return };
        for tree in &self.rules().defaults {
            set_defaults(members, tree);
        }
        if !self.row.template.is_empty() {
            let path: Vec<&str> = self.row.template.split('.').collect();
            defaults::pod_template(map_at_mut(object, &path));
        }
    }

    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let rule = match self.row.names {
            "label" => NameRule::Label,
            "path" => NameRule::PathSegment,
            _ => NameRule::Subdomain,
        };
        let mut errors = validate::stored_metadata(object, self.row.namespaced, rule);
        errors.extend(validate::stored(object, self.row.template, self.rules()));
        errors
    }

    pub(crate) fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate::metadata_update(new, old, true);
        errors.extend(validate::stored(new, self.row.template, self.rules()));
        errors
    }
}

/// Sets the defaults of a tree.
fn set_defaults(members: &mut Map<String, Value>, tree: &Map<String, Value>) {
    let applies = tree.iter().all(|(name, values)| {
        let Some(found) = name.strip_prefix('@').and_then(|name| members.get(name)) else { return true };
        found.is_null() || values.as_array().is_some_and(|values| values.contains(found))
    });
    if !applies {
        return;
    }
    for (name, default) in tree {
        if name.starts_with('@') {
            continue;
        }
        if let Some(name) = name.strip_prefix('?') {
            if let Some(member) = members.get_mut(name) {
                set_below(member, default);
            }
            continue;
        }
        let (name, zero) = name.strip_prefix('!').map_or((name.as_str(), None), |name| (name, Some(0)));
        match members.get_mut(name) {
            Some(member) if !member.is_null() && member != "" && zero.is_none_or(|zero| *member != zero) => {
                set_below(member, default);
            }
            _ => {
                members.insert(name.to_owned(), without_conditions(default));
            }
        }
    }
}

/// Sets the defaults below a field that is present.
fn set_below(value: &mut Value, tree: &Value) {
    match (value, tree) {
        (Value::Object(members), Value::Object(tree)) => set_defaults(members, tree),
        (Value::Array(items), Value::Array(tree)) => {
            if let [tree @ Value::Object(_)] = tree.as_slice() {
                items.iter_mut().for_each(|item| set_below(item, tree));
            }
        }
        _ => {}
    }
}

/// Returns the value of an absent field.
fn without_conditions(tree: &Value) -> Value {
    let Value::Object(tree) = tree else { return tree.clone() };
    let plain = tree.iter().filter(|(name, _)| !name.starts_with(['@', '?']));
    Value::Object(plain.map(|(name, value)| (name.clone(), without_conditions(value))).collect())
}

impl Strategy for StoredKind {
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        self.row.status.clone()
    }

    fn has_generation(&self) -> bool {
        self.row.generation
    }

    fn increments_generation(&self, new: &Value, old: &Value) -> bool {
        let content = |object: &Value| {
            let mut object = object.clone();
            for field in ["metadata", "status"] {
                crate::json::remove(&mut object, &[field]);
            }
            object
        };
        let labels = |object| at(object, &["metadata", "labels"]);
        self.row.generation
            && (content(new) != content(old)
                || (self.row.kind == "EndpointSlice" && labels(new) != labels(old)))
    }

    fn prepare_create(&self, object: &mut Value, user: Option<&User>) {
        if self.row.kind == SIGNING_REQUEST {
            set_requester(object, user);
        }
        if self.row.kind == "Job" {
            if !bool_at(object, &["spec", "manualSelector"]) {
                select_own_pods(object);
            }
            if at(object, &["metadata", "labels"]).is_none() {
                let labels = at(object, &["spec", "template", "metadata", "labels"]).cloned();
                labels.into_iter().for_each(|labels| set(object, &["metadata", "labels"], labels));
            }
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.row.kind == SIGNING_REQUEST {
            copy(new, old, &["spec"]);
        }
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        if status_lacks_metadata(self.row.kind) {
            for field in ["annotations", "deletionTimestamp", "finalizers", "labels", "ownerReferences"] {
                copy(new, old, &["metadata", field]);
            }
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        !self.row.conditional
    }

    fn allows_create_on_update(&self) -> bool {
        self.row.created
    }

    fn selectable_fields(&self) -> &[SelectableField] {
        &self.selectable
    }

    fn deletion_returns_object(&self) -> bool {
        self.row.returned
    }

    fn orphans_by_default(&self) -> bool {
        self.row.orphans
    }
}

/// Sets the user that requests a certificate, in place of what the client has sent.
///
/// Upstream counterpart: `csrStrategy.PrepareForCreate`.
fn set_requester(request: &mut Value, user: Option<&User>) {
    let spec = map_at_mut(request, &["spec"]);
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    if let Some(Value::Object(user)) = user.map(User::to_value) {
        spec.extend(user);
    }
}

/// Sets the selector of a Job and the labels of its pods.
///
/// Upstream counterpart: `generateSelector`.
fn select_own_pods(job: &mut Value) {
    const UID: &str = "batch.kubernetes.io/controller-uid";
    let text = |field: &str| str_at(job, &["metadata", field]).to_owned();
    let (uid, name) = (text("uid"), text("name"));
    for (label, value) in
        [(UID, &uid), ("controller-uid", &uid), ("batch.kubernetes.io/job-name", &name), ("job-name", &name)]
    {
        set(job, &["spec", "template", "metadata", "labels", label], value.as_str());
    }
    if at(job, &["spec", "selector"]).is_none() {
        set(job, &["spec", "selector"], json!({}));
    }
    set(job, &["spec", "selector", "matchLabels", UID], uid);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SCHEMA;

    #[test]
    fn rows_and_rules_are_valid() {
        let rows: Vec<Row> = serde_json::from_str(TABLE).unwrap();
        assert!(rows.len() > 40);
        for row in rows {
            let definition = definition(row);
            assert!(SCHEMA.kind(definition.api_version, definition.kind).is_some(), "{}", definition.kind);
            serde_json::from_str::<Rules>(definition.stored.unwrap().row.rules.get()).unwrap();
        }
    }

    #[test]
    fn defaults_of_absent_and_present_fields() {
        let tree = json!({
            "?spec": {
                "strategy": {"@type": ["Rolling"], "type": "Rolling", "rolling": {"max": 1}},
                "?ports": [{"protocol": "TCP"}],
                "!queues": 64,
            },
        });
        let check = |object: Value, expected: Value| {
            let mut found = object.clone();
            set_below(&mut found, &tree);
            assert_eq!(found, expected, "{object}");
        };
        check(json!({}), json!({}));
        let whole = json!({"type": "Rolling", "rolling": {"max": 1}});
        check(json!({"spec": {}}), json!({"spec": {"strategy": whole, "queues": 64}}));
        check(
            json!({"spec": {"strategy": {"type": "OnDelete"}, "queues": 0, "ports": [{}, {"protocol": "UDP"}]}}),
            json!({"spec": {"strategy": {"type": "OnDelete"}, "queues": 64,
                "ports": [{"protocol": "TCP"}, {"protocol": "UDP"}]}}),
        );
        check(
            json!({"spec": {"strategy": {"rolling": {}}, "queues": 1}}),
            json!({"spec": {"strategy": whole, "queues": 1}}),
        );
    }
}
