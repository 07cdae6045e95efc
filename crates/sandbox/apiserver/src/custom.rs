//! Custom resources: kinds that CustomResourceDefinitions define at run time.
//!
//! [`CustomResources`] is an immutable snapshot of all established definitions. The registry replaces it when a
//! definition changes. Requests for built-in resources do not read it.
//!
//! Upstream counterpart: `k8s.io/apiextensions-apiserver`.
//!
//! This module and [`crate::validate`] use each other: definitions are validated as other built-in objects, which includes
//! their default values, and custom objects have the metadata of built-in objects.

mod conversion;
mod names;
mod validate;
mod values;
mod version;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Object, Resource,
    field_error::FieldError,
    json::{bool_at, list_at, str_at},
    structural_schema::{Schema, texts},
};

pub(crate) use conversion::WebhookConversion;
pub(crate) use version::{CustomVersion, ScalePaths, priority};

/// All custom resources that are served.
#[derive(Debug, Default)]
pub(crate) struct CustomResources {
    by_name: BTreeMap<(String, String), Arc<CustomResource>>,
    by_resource: HashMap<Resource, Arc<CustomResource>>,
}

/// A custom resource with its served versions.
#[derive(Debug)]
pub(crate) struct CustomResource {
    pub(crate) resource: Resource,
    /// Definition that it was built from.
    definition: Arc<Object>,
    pub(crate) names: Names,
    /// Served versions, the preferred first.
    pub(crate) versions: Vec<Arc<CustomVersion>>,
    storage: Arc<CustomVersion>,
    /// `true` if the definition is being deleted.
    is_terminating: bool,
    /// Cancelled when the definition changes. Watches end then, as upstream.
    retired: CancellationToken,
}

/// Accepted names of a custom resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) singular: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
}

impl CustomResources {
    /// Returns a snapshot of `definitions`. Unchanged resources are taken from `old`.
    pub(crate) fn new(definitions: &[Arc<Object>], old: &Self) -> Self {
        let mut new = Self::default();
        for definition in definitions.iter().filter(|definition| is_established(definition.value())) {
            let Some(resource) = resource_of(definition) else {
                tracing::error!(
                    definition = definition.name(),
                    "Too many custom resources; definition is not served"
                );
                continue;
            };
            let unchanged = old.by_resource.get(&resource).filter(|old| old.is_current(definition));
            let custom = match unchanged {
                Some(unchanged) => Arc::clone(unchanged),
                None => match CustomResource::new(resource, definition) {
                    Some(custom) => Arc::new(custom),
                    None => continue,
                },
            };
            let name = (resource.group().to_owned(), resource.plural().to_owned());
            new.by_name.insert(name, Arc::clone(&custom));
            new.by_resource.insert(resource, custom);
        }
        new
    }

    /// Ends the watches of resources that `new` does not serve in the same way.
    pub(crate) fn retire(&self, new: &Self) {
        for (resource, old) in &self.by_resource {
            if !new.by_resource.get(resource).is_some_and(|new| Arc::ptr_eq(new, old)) {
                old.retired.cancel();
            }
        }
    }

    /// Returns the resource with this group and plural name.
    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<CustomResource>> {
        self.by_name.get(&(group.to_owned(), plural.to_owned()))
    }

    pub(crate) fn get(&self, resource: Resource) -> Option<&Arc<CustomResource>> {
        self.by_resource.get(&resource)
    }

    /// All resources, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<CustomResource>> {
        self.by_name.values()
    }
}

impl CustomResource {
    fn new(resource: Resource, definition: &Arc<Object>) -> Option<Self> {
        let value = definition.value();
        let retired = CancellationToken::new();
        let versions = list_at(value, &["spec", "versions"]);
        let is_terminating = definition.is_deleting();
        let storage = str_at(versions.iter().find(|version| bool_at(version, &["storage"]))?, &["name"]);
        let schemas = Arc::new(version::schemas(resource, versions));
        let conversion = WebhookConversion::of(value).map(Arc::new);
        let build = |version: &Value| {
            let version =
                CustomVersion::new(resource, definition, version, storage, &schemas, retired.clone());
            Arc::new(version.with_conversion(conversion.clone()))
        };
        let all: Vec<Arc<CustomVersion>> = versions.iter().map(build).collect();
        let storage = all.iter().find(|version| version.version == storage).cloned()?;
        let is_served = |name: &str| {
            versions.iter().any(|version| str_at(version, &["name"]) == name && bool_at(version, &["served"]))
        };
        let mut served: Vec<_> = all.into_iter().filter(|version| is_served(&version.version)).collect();
        served.sort_by_key(|version| Reverse(priority(&version.version)));
        Some(Self {
            resource,
            definition: Arc::clone(definition),
            names: Names::of(value),
            versions: served,
            storage,
            is_terminating,
            retired,
        })
    }

    /// `true` if the resource is as `definition` describes it.
    fn is_current(&self, definition: &Object) -> bool {
        let same = |field| self.definition.value().get(field) == definition.value().get(field);
        self.definition.uid() == definition.uid()
            && same("spec")
            && self.names == Names::of(definition.value())
            && self.is_terminating == definition.is_deleting()
    }

    /// Returns the served version with this name.
    pub(crate) fn version(&self, name: &str) -> Option<&Arc<CustomVersion>> {
        self.versions.iter().find(|version| version.version == name)
    }

    /// Returns the served version with this `apiVersion`, or else the storage version.
    pub(crate) fn version_or_storage(&self, api_version: &str) -> &Arc<CustomVersion> {
        self.versions.iter().find(|version| version.api_version == api_version).unwrap_or(&self.storage)
    }
}

impl Names {
    fn of(definition: &Value) -> Self {
        let accepted = definition.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
        Self {
            singular: str_at(accepted, &["singular"]).to_owned(),
            list_kind: str_at(accepted, &["listKind"]).to_owned(),
            short_names: texts(accepted, "shortNames"),
            categories: texts(accepted, "categories"),
        }
    }
}

fn is_established(definition: &Value) -> bool {
    list_at(definition, &["status", "conditions"]).iter().any(|condition| {
        str_at(condition, &["type"]) == "Established" && str_at(condition, &["status"]) == "True"
    })
}

/// Returns the resource that a definition defines. `None` if there are too many custom resources in this process.
pub(crate) fn resource_of(definition: &Object) -> Option<Resource> {
    let text = |path: &[&str]| str_at(definition.value(), path);
    Resource::custom(
        text(&["spec", "group"]),
        text(&["spec", "names", "plural"]),
        text(&["spec", "names", "kind"]),
        text(&["spec", "scope"]) == "Namespaced",
    )
}

/// Returns the definitions whose accepted names or conditions must change, with their new state.
pub(crate) fn renamed(definitions: &[Arc<Object>], now: &str) -> Option<(Arc<Object>, Value)> {
    definitions.iter().find_map(|definition| {
        let new = names::with_accepted_names(definition.value(), definitions, now)?;
        Some((Arc::clone(definition), new))
    })
}

/// Result of [`check_default`].
#[derive(Debug)]
pub(crate) struct DefaultErrors {
    pub(crate) has_unknown_fields: bool,
    pub(crate) errors: Vec<FieldError>,
}

/// Validates a default value against its schema.
pub(crate) fn check_default(default: &Value, schema: &Value) -> DefaultErrors {
    let schema = Schema::parse(schema);
    let mut pruned = default.clone();
    let removed = values::prune_value(&mut pruned, &schema);
    DefaultErrors {
        has_unknown_fields: !removed.is_empty(),
        errors: validate::against_schema(default, None, &schema, ""),
    }
}
