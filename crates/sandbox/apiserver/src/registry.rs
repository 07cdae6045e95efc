//! Verbs on stored objects.
//!
//! Upstream counterpart: `apiserver/pkg/registry` (`generic/registry.Store`, `rest.BeforeCreate` and others). Rules of
//! single kinds are in [`crate::strategy`].
//!
//! The registry is independent of HTTP. Its input are objects decoded by [`crate::strict`], its output [`Object`]s.

mod admission;
mod apply;
mod batch;
mod create;
pub(crate) mod definitions;
mod delete;
mod modify;
pub(crate) mod quota;
mod restore;
pub(crate) mod served_versions;
mod subresources;

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use kcm_clock::{Clock, Random};
use serde_json::{Map, Value};

use crate::{
    ApiStatus, Object, Resource, StatusReason,
    admission::{Admission, policies::Policies},
    custom::CustomResources,
    json::{at, list_at, map_at_mut, remove, set, str_at},
    kind::Kind,
    store::Store,
};

pub(crate) use create::new_uid;
pub(crate) use delete::Deleted;
pub use modify::Patch;
pub(crate) use modify::{PATCHES_OF_CUSTOM_RESOURCES, WriteScope, WriteTarget};
pub use quota::pod_resources;
pub(crate) use subresources::scale_of;

/// Maximum size of an object in bytes, as etcd's request limit.
const OBJECT_LIMIT: usize = 3 << 19;

/// Verbs on a store.
pub(crate) struct Registry {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// If `true`, quotas charge the usage in their status until the quota controller updates it.
    pub(crate) charge_quota_status: bool,
    /// If `true`, objects have managed fields from their creation on.
    pub(crate) managed_fields: bool,
    /// Progress of the removal of expired objects.
    expiry: parking_lot::Mutex<batch::Expiry>,
    pub(crate) policies: Policies,
    custom: parking_lot::RwLock<Arc<CustomResources>>,
    /// Held while the server adapts to changed definitions.
    definitions: parking_lot::Mutex<()>,
}

/// Result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Arc<Object>,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
}

impl Registry {
    pub(crate) fn new(store: Store, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let expiry = parking_lot::Mutex::new(batch::Expiry::new(clock.now()));
        let registry = Self {
            store,
            clock,
            random,
            charge_quota_status: false,
            managed_fields: true,
            expiry,
            policies: Policies::default(),
            custom: parking_lot::RwLock::default(),
            definitions: parking_lot::Mutex::new(()),
        };
        registry.load_definitions();
        registry
    }

    pub(crate) fn get(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Object>, ApiStatus> {
        let key = crate::store::key(namespace, name);
        self.store.get(resource, &key).ok_or_else(|| ApiStatus::not_found(resource, name))
    }

    /// Current time, truncated to seconds.
    fn now(&self) -> String {
        seconds(self.clock.now())
    }

    /// Time of a write. A write that is repeated with the answers of webhooks keeps its time.
    fn time(&self, admission: Option<&Admission<'_>>) -> String {
        admission.map_or_else(|| self.now(), |admission| seconds(admission.time()))
    }
}

/// Formats a time as `metav1.Time`.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Rejects an object whose type, namespace or name does not match the request.
fn check_address(
    kind: &Kind,
    namespace: &str,
    name: Option<&str>,
    object: &mut Value,
) -> Result<(), ApiStatus> {
    let given_kind = str_at(object, &["kind"]);
    if given_kind != kind.name() || str_at(object, &["apiVersion"]) != kind.api_version() {
        let given = str_at(object, &["apiVersion"]);
        return Err(ApiStatus::bad_request(format!(
            "{given_kind} in version {given:?} cannot be handled as a {}: the API version in the data ({given}) does \
             not match the expected API version ({})",
            kind.name(),
            kind.api_version()
        )));
    }
    check_name(kind, namespace, name, object)
}

/// Rejects an object whose namespace or name does not match the request.
fn check_name(kind: &Kind, namespace: &str, name: Option<&str>, object: &mut Value) -> Result<(), ApiStatus> {
    if kind.resource.is_namespaced() {
        check_namespace(namespace, object)?;
    }
    if let Some(name) = name {
        let given = str_at(object, &["metadata", "name"]);
        if given.is_empty() {
            return Err(ApiStatus::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        if given != name {
            return Err(ApiStatus::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
    }
    if kind.resource.is_namespaced() {
        set(object, &["metadata", "namespace"], namespace);
    } else {
        remove(object, &["metadata", "namespace"]);
    }
    Ok(())
}

/// Rejects an object of another namespace than that of the request.
pub(crate) fn check_namespace(namespace: &str, object: &Value) -> Result<(), ApiStatus> {
    match str_at(object, &["metadata", "namespace"]) {
        given if given.is_empty() || given == namespace => Ok(()),
        _ => Err(ApiStatus::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// Removes `metadata` fields that clients cannot set.
fn drop_server_fields(object: &mut Value) {
    let metadata: &mut Map<String, Value> = map_at_mut(object, &["metadata"]);
    metadata.remove("selfLink");
}

/// Removes all but the first of several references to the same owner. Returns a warning if there are any.
fn deduplicate_owners(object: &mut Value) -> Option<String> {
    let owners = list_at(object, &["metadata", "ownerReferences"]);
    if owners.len() < 2 {
        return None;
    }
    let mut seen = BTreeSet::new();
    let mut repeated: Vec<&str> = Vec::new();
    let mut kept: Vec<Value> = Vec::new();
    for owner in owners {
        if seen.insert(owner.to_string()) {
            kept.push(owner.clone());
        } else {
            repeated.push(str_at(owner, &["uid"]));
        }
    }
    if repeated.is_empty() {
        return None;
    }
    let warning = format!(
        ".metadata.ownerReferences contains duplicate entries, of which the first is kept; duplicate UID(s) observed: \
         {}",
        repeated.join(", ")
    );
    set(object, &["metadata", "ownerReferences"], kept);
    Some(warning)
}

/// Rejects an object that is too large. Removes its managed fields if it is not too large without them.
fn check_size(object: &mut Value) -> Result<(), ApiStatus> {
    let mut size = crate::json::estimated_len(object);
    if size > OBJECT_LIMIT && crate::apply::take_managed_fields(object).is_some() {
        size = crate::json::estimated_len(object);
    }
    if size <= OBJECT_LIMIT {
        return Ok(());
    }
    let message =
        format!("Request entity too large: the object takes {size} bytes, the limit is {OBJECT_LIMIT}");
    Err(ApiStatus::new(StatusReason::RequestEntityTooLarge, message))
}

fn has_members(object: &Value, path: &[&str]) -> bool {
    match at(object, path) {
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        _ => false,
    }
}
