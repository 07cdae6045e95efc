//! Object metadata: names, labels, annotations, owners, finalizers.
//!
//! Upstream counterpart: `apimachinery/pkg/api/validation/objectmeta.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    names,
    path::{Errors, Path},
    read::{entries, flag, get, given, integer, list, text, texts},
};

const METADATA: Path<'static> = Path::new("metadata");

/// Maximum total size of the keys and values of all annotations in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Naming rule and scope of a kind.
pub(super) struct Naming {
    pub(super) is_namespaced: bool,
    pub(super) rule: fn(&str) -> Vec<String>,
    /// `true` for a built-in kind, whose finalizers without a domain must be those of Kubernetes.
    pub(super) is_built_in: bool,
}

impl Naming {
    /// Returns the rules of `kind`.
    pub(super) fn of(kind: &str) -> Self {
        let rule = match kind {
            "Namespace" => names::dns_label,
            "Service" => names::dns_1035_label,
            _ => names::dns_subdomain,
        };
        Self {
            is_namespaced: !matches!(
                kind,
                "Namespace" | "Node" | "PriorityClass" | "CustomResourceDefinition"
            ),
            rule,
            is_built_in: true,
        }
    }
}

/// Validates the metadata of a new object.
pub(super) fn create(object: &Value, naming: &Naming, errors: &mut Errors) {
    let metadata = get(object, "metadata");
    let (name, base) = (text(metadata, "name"), text(metadata, "generateName"));
    if !base.is_empty() {
        for detail in (naming.rule)(&mask_trailing_dash(base)) {
            errors.invalid(&METADATA.child("generateName"), base, detail);
        }
    }
    if !name.is_empty() {
        errors.rule(&METADATA.child("name"), name, naming.rule);
    } else if base.is_empty() {
        errors.required(&METADATA.child("name"), "name or generateName is required");
    }
    namespace(metadata, naming, errors);
    errors.not_negative(&METADATA.child("generation"), integer(metadata, "generation"));
    common(metadata, &METADATA, errors);
    finalizers(metadata, &METADATA, errors);
    if naming.is_built_in {
        built_in_finalizers(object, errors);
    }
}

/// Masks the trailing dash of a name prefix.
///
/// Upstream counterpart: `maskTrailingDash`.
fn mask_trailing_dash(base: &str) -> String {
    let mut name = base.to_owned();
    if name.len() > 1 && name.ends_with('-') {
        name.pop();
        name.pop();
        name.push('a');
    }
    name
}

fn namespace(metadata: &Value, naming: &Naming, errors: &mut Errors) {
    let (path, namespace) = (METADATA.child("namespace"), text(metadata, "namespace"));
    match (naming.is_namespaced, namespace.is_empty()) {
        (true, true) => errors.required(&path, ""),
        (true, false) => errors.rule(&path, namespace, names::dns_label),
        (false, true) => {}
        (false, false) => errors.forbidden(&path, "not allowed on this type"),
    }
}

/// Validates the metadata of an updated object.
///
/// As upstream, where `rest.BeforeUpdate` and the strategy both validate it, errors are reported twice.
pub(super) fn update(object: &Value, old: &Value, is_built_in: bool, errors: &mut Errors) {
    let (new, old) = (get(object, "metadata"), get(old, "metadata"));
    errors.not_negative(&METADATA.child("generation"), integer(new, "generation"));
    let mut of_both = Errors::default();
    common(new, &METADATA, &mut of_both);
    errors.0.extend(of_both.0.iter().cloned());
    finalizers(new, &METADATA, errors);
    let mut changes_and_values = Errors::default();
    changes(new, old, &mut changes_and_values);
    changes_and_values.0.append(&mut of_both.0);
    errors.0.extend(changes_and_values.0.iter().cloned());
    errors.0.append(&mut changes_and_values.0);
    if is_built_in {
        built_in_finalizers(object, errors);
    }
}

/// Validates the changes of metadata.
///
/// Upstream counterpart: `ValidateObjectMetaAccessorUpdate`, which validates the values as well.
fn changes(new: &Value, old: &Value, errors: &mut Errors) {
    if given(old, "deletionTimestamp").is_some() {
        let before: BTreeSet<&str> = texts(old, "finalizers").collect();
        let added: BTreeSet<&str> = texts(new, "finalizers").filter(|name| !before.contains(name)).collect();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.forbidden(&METADATA.child("finalizers"), detail);
        }
    }
    if integer(new, "generation").unwrap_or(0) < integer(old, "generation").unwrap_or(0) {
        let generation = get(new, "generation").clone();
        errors.invalid(&METADATA.child("generation"), generation, "must not be decremented");
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        errors.immutable(&METADATA.child(field), get(new, field), get(old, field));
    }
}

/// Validates metadata on create and update, and in pod templates.
pub(super) fn common(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels(metadata, "labels", path, errors);
    annotations(metadata, path, errors);
    owners(metadata, path, errors);
}

/// Validates the metadata of a pod template.
pub(super) fn template(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels(metadata, "labels", path, errors);
    annotations(metadata, path, errors);
}

/// Validates a map of labels or a map selector.
pub(super) fn labels(within: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child(field);
    for (key, value) in entries(within, field) {
        errors.rule(&path, key, names::qualified_name);
        errors.rule(&path, value.as_str().unwrap_or_default(), names::label_value);
    }
}

fn annotations(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("annotations");
    let mut size = 0;
    for (key, value) in entries(metadata, "annotations") {
        for detail in names::qualified_name(&key.to_lowercase()) {
            errors.invalid(&path, key.as_str(), detail);
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > MAX_ANNOTATIONS {
        errors.too_long(&path, MAX_ANNOTATIONS);
    }
}

fn owners(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("ownerReferences");
    let mut controller: Option<String> = None;
    for owner in list(metadata, "ownerReferences") {
        if text(owner, "apiVersion").is_empty() {
            errors.invalid(&path.child("apiVersion"), "", "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                errors.invalid(&path.child(field), "", "must not be empty");
            }
        }
        if (text(owner, "apiVersion"), text(owner, "kind")) == ("v1", "Event") {
            errors.invalid(&path, owner.clone(), "/v1, Kind=Event is disallowed from being an owner");
        }
        if flag(owner, "controller") {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {this}"
                    );
                    errors.invalid(&path, get(metadata, "ownerReferences").clone(), detail);
                }
            }
        }
    }
}

/// Validates finalizers of a built-in kind.
///
/// Upstream counterpart: `validateKubeFinalizerName`.
fn built_in_finalizers(object: &Value, errors: &mut Errors) {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    /// Groups without this rule.
    const WITHOUT_RULE: [&str; 6] = [
        "admissionregistration.k8s.io/",
        "apiextensions.k8s.io/",
        "apiregistration.k8s.io/",
        "coordination.k8s.io/",
        "node.k8s.io/",
        "policy/",
    ];
    let (metadata, api_version) = (get(object, "metadata"), text(object, "apiVersion"));
    if WITHOUT_RULE.iter().any(|group| api_version.starts_with(group)) {
        return;
    }
    let path = METADATA.child("finalizers");
    for (index, finalizer) in texts(metadata, "finalizers").enumerate() {
        if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&path.index(index), finalizer, detail);
        }
    }
}

fn finalizers(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("finalizers");
    for finalizer in texts(metadata, "finalizers") {
        errors.rule(&path, finalizer, names::qualified_name);
    }
    let has = |name: &str| texts(metadata, "finalizers").any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(&path, get(metadata, "finalizers").clone(), detail);
    }
}
