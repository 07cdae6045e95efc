//! Access to the embedded API server for the simulated components.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_api::{ObjectKey, Time};
pub(crate) use kcm_apiserver::json::condition;
use kcm_apiserver::{
    ApiServer, ApiStatus, DeleteOptions, DeletionPropagation, ListOptions, Object, Patch, Resource,
    Subresource, WatchEvent, WatchStart, Watcher, WriteOptions,
};
use kcm_clock::{Clock, Timestamp};
use serde_json::{Map, Value, json};
use tracing::debug;

use crate::yield_budget::YieldBudget;

/// Maximum number of changes that [`Changes::next_all`] reports at a time after the initial state.
const BATCH: usize = 4096;

/// In-process access to the API server, and the clock.
#[derive(Debug)]
pub(crate) struct Api {
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    /// Name of the component in `metadata.managedFields`.
    manager: &'static str,
}

/// Change of an object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) object: Arc<Object>,
    /// State that was reported before, if any.
    pub(crate) old: Option<Arc<Object>>,
    /// `true` if the object was deleted; `object` is its last state.
    pub(crate) deleted: bool,
}

/// Event about a pod, without its times and count. Equal drafts are counted in one event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventDraft {
    pub(crate) type_: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Field path of the container.
    pub(crate) container: Option<String>,
    pub(crate) component: &'static str,
}

impl EventDraft {
    pub(crate) fn normal(reason: &str, message: String) -> Self {
        let component = "kubelet";
        Self { type_: "Normal", reason: reason.to_owned(), message, container: None, component }
    }

    pub(crate) fn warning(reason: &str, message: String) -> Self {
        Self { type_: "Warning", ..Self::normal(reason, message) }
    }

    /// Failure of the controller that attaches volumes.
    pub(crate) fn attach(message: String) -> Self {
        Self { component: "attachdetach-controller", ..Self::warning("FailedAttachVolume", message) }
    }

    pub(crate) fn in_field(self, path: String) -> Self {
        Self { container: Some(path), ..self }
    }
}

/// Stream of changes, starting with the current state.
///
/// No deletion is missed: if the watch expires, the stream lists again and reports objects that are missing.
pub(crate) struct Changes {
    server: Arc<ApiServer>,
    resource: Option<Resource>,
    watcher: Watcher,
    /// Objects that were reported and not deleted, by UID.
    reported: BTreeMap<String, Arc<Object>>,
    /// Objects of `reported` that the current relist has not returned yet.
    missing: Option<BTreeMap<String, Arc<Object>>>,
    /// Deletions found by a relist.
    missed_deletions: Vec<Arc<Object>>,
    /// `true` once the initial state has been reported.
    is_synced: bool,
    budget: YieldBudget,
}

impl Api {
    pub(crate) fn new(server: Arc<ApiServer>, clock: Arc<dyn Clock>) -> Self {
        Self { server, clock, manager: "kube-controller-manager" }
    }

    /// Returns the access of a component with this name.
    pub(crate) fn of(&self, manager: &'static str) -> Arc<Self> {
        Arc::new(Self { server: Arc::clone(&self.server), clock: Arc::clone(&self.clock), manager })
    }

    fn options(&self) -> WriteOptions {
        WriteOptions { field_manager: Some(self.manager.to_owned()), ..WriteOptions::default() }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now().into()
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        self.clock.now()
    }

    /// The current time with six fractional digits, as in leases.
    pub(crate) fn micro_time(&self) -> String {
        format!("{:.6}", self.clock.now())
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }

    /// Watches `resource`, or all resources if `None`.
    pub(crate) fn watch(&self, resource: Option<Resource>) -> Changes {
        Changes::new(Arc::clone(&self.server), resource, Arc::clone(&self.clock))
    }

    pub(crate) fn get(&self, resource: Resource, key: &ObjectKey) -> Result<Arc<Object>, ApiStatus> {
        self.server.get(resource, &key.namespace, &key.name)
    }

    /// Returns the object with this UID, if it exists.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<Object>> {
        self.server.by_uid(uid)
    }

    /// Returns the objects that have an owner reference to `uid`.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Arc<Object>> {
        self.server.dependents(uid)
    }

    /// Returns `status.used` of a ResourceQuota.
    pub(crate) fn quota_usage(&self, quota: &Object) -> Map<String, Value> {
        self.server.quota_usage(quota)
    }

    /// Returns all objects in a namespace.
    pub(crate) fn all_in(&self, namespace: &str) -> Vec<Arc<Object>> {
        self.server
            .resources()
            .into_iter()
            .filter(|resource| resource.is_namespaced())
            .flat_map(|resource| self.list(resource, namespace))
            .collect()
    }

    pub(crate) fn list(&self, resource: Resource, namespace: &str) -> Vec<Arc<Object>> {
        // A list of the newest state cannot expire.
        self.server
            .list(resource, Some(namespace), &ListOptions::default())
            .map_or_else(|_| Vec::new(), |l| l.items)
    }

    pub(crate) fn create(
        &self,
        resource: Resource,
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Object>, ApiStatus> {
        self.server.create(resource, namespace, object, &self.options())
    }

    /// Applies a JSON merge patch to the object, if it is still at this version. Custom resources have no other patch
    /// that the garbage collector could use.
    pub(crate) fn merge_metadata(&self, object: &Object, mut metadata: Value) -> Result<(), ApiStatus> {
        metadata["uid"] = object.uid().into();
        metadata["resourceVersion"] = object.revision().to_string().into();
        let (resource, namespace, name) = (object.resource(), object.namespace(), object.name());
        let (patch, options) = (json!({ "metadata": metadata }), self.options());
        self.server.patch(resource, namespace, name, None, Patch::merge(patch), &options).map(drop)
    }

    /// Applies a strategic merge patch to the object.
    pub(crate) fn patch(&self, object: &Object, patch: &Value) -> Result<(), ApiStatus> {
        self.patch_part(object, None, patch)
    }

    /// Applies a strategic merge patch to the status of the object.
    pub(crate) fn patch_status(&self, object: &Object, patch: &Value) -> Result<(), ApiStatus> {
        self.patch_part(object, Some(Subresource::Status), patch)
    }

    fn patch_part(&self, object: &Object, part: Option<Subresource>, patch: &Value) -> Result<(), ApiStatus> {
        let (resource, namespace, name) = (object.resource(), object.namespace(), object.name());
        let options = self.options();
        self.server
            .patch(resource, namespace, name, part, Patch::strategic(patch.clone()), &options)
            .map(drop)
    }

    /// Binds a pod to a node.
    pub(crate) fn bind(&self, pod: &Object, node: &str) -> Result<(), ApiStatus> {
        self.server.bind(pod.namespace(), pod.name(), node).map(drop)
    }

    /// Deletes the object, with its UID as precondition.
    pub(crate) fn delete(&self, object: &Object, propagation: DeletionPropagation) -> Result<(), ApiStatus> {
        let options =
            DeleteOptions { propagation: Some(propagation), ..DeleteOptions::with_uid(object.uid()) };
        self.delete_with(object, &options)
    }

    /// Deletes the object immediately, as a kubelet does once the containers have stopped.
    pub(crate) fn remove(&self, object: &Object) -> Result<(), ApiStatus> {
        self.delete_with(object, &DeleteOptions::now(object.uid()))
    }

    fn delete_with(&self, object: &Object, options: &DeleteOptions) -> Result<(), ApiStatus> {
        self.server.delete(object.resource(), object.namespace(), object.name(), options).map(drop)
    }

    /// Removes the finalizers of an empty namespace.
    pub(crate) fn finalize(&self, namespace: &Object) -> Result<(), ApiStatus> {
        let mut emptied = namespace.value().clone();
        emptied["spec"]["finalizers"] = json!([]);
        self.server.finalize(emptied, &self.options()).map(drop)
    }

    /// Creates an event about a pod with the kubelet as source. Returns its name. A failure is only logged.
    pub(crate) fn record_event(
        &self,
        pod: &Object,
        draft: &EventDraft,
        host: &str,
        number: u64,
    ) -> Option<String> {
        let (now, component) = (self.clock.now(), draft.component);
        let time = Time::new(now);
        // The number separates events of the same instant.
        let name = format!("{}.{:x}", pod.name(), now.as_nanosecond() + i128::from(number));
        let mut event = json!({
            "metadata": { "name": name, "namespace": pod.namespace() },
            "involvedObject": {
                "apiVersion": pod.api_version(), "kind": pod.resource().kind(), "namespace": pod.namespace(),
                "name": pod.name(), "uid": pod.uid(), "resourceVersion": pod.revision().to_string(),
            },
            "type": draft.type_, "reason": draft.reason, "message": draft.message, "count": 1,
            "firstTimestamp": time, "lastTimestamp": time,
            "source": { "component": component, "host": host },
            "reportingComponent": component, "reportingInstance": host,
        });
        if let Some(container) = &draft.container {
            event["involvedObject"]["fieldPath"] = container.as_str().into();
        }
        match self.create(Resource::EVENTS, pod.namespace(), event) {
            Ok(_) => Some(name),
            Err(error) => {
                debug!(?pod, reason = draft.reason, %error, "Failed to create event");
                None
            }
        }
    }

    /// Records that an event has happened `count` times, the last time now.
    pub(crate) fn count_event(&self, pod: &Object, name: &str, count: u32) -> Result<(), ApiStatus> {
        let patch = json!({ "count": count, "lastTimestamp": self.now() });
        let (namespace, options) = (pod.namespace(), self.options());
        self.server.patch(Resource::EVENTS, namespace, name, None, Patch::merge(patch), &options).map(drop)
    }

    /// Creates an event about an object. A failure is only logged.
    pub(crate) fn event(&self, object: &Object, type_: &str, reason: &str, message: &str, component: &str) {
        let now = self.clock.now();
        let namespace = if object.namespace().is_empty() { "default" } else { object.namespace() };
        let time = Time::new(now);
        let event = json!({
            "metadata": { "name": format!("{}.{:x}", object.name(), now.as_nanosecond()), "namespace": namespace },
            "involvedObject": {
                "apiVersion": object.api_version(), "kind": object.resource().kind(),
                "namespace": object.namespace(), "name": object.name(), "uid": object.uid(),
                "resourceVersion": object.revision().to_string(),
            },
            "type": type_, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": time, "lastTimestamp": time,
            "source": { "component": component }, "reportingComponent": component, "reportingInstance": "",
        });
        if let Err(error) = self.create(Resource::EVENTS, namespace, event) {
            debug!(?object, reason, %error, "Failed to create event");
        }
    }
}

impl Changes {
    fn new(server: Arc<ApiServer>, resource: Option<Resource>, clock: Arc<dyn Clock>) -> Self {
        let watcher = start(&server, resource);
        let (reported, missed_deletions, budget) = (BTreeMap::new(), Vec::new(), YieldBudget::new(clock));
        Self {
            server,
            resource,
            watcher,
            reported,
            missing: None,
            missed_deletions,
            is_synced: false,
            budget,
        }
    }

    /// Returns the next change, or `None` once the server has stopped. Yields to other tasks regularly, so that a
    /// continuous flow of changes does not starve the other branches of a `select!`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no change is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        loop {
            self.budget.spend(1).await;
            if let Some(change) = self.next_missed_deletion() {
                return Some(change);
            }
            let event = match self.watcher.try_next() {
                Ok(Some(event)) => Ok(event),
                Ok(None) => {
                    self.budget.reset();
                    self.watcher.next().await
                }
                Err(error) => Err(error),
            };
            match event {
                Ok(event) => {
                    if let Some(change) = self.record(&event) {
                        return Some(change);
                    }
                }
                Err(error) if error.is_expired() => {
                    self.is_synced = false;
                    self.watcher = start(&self.server, self.resource);
                    self.missing = Some(self.reported.clone());
                }
                Err(_) => return None,
            }
        }
    }

    /// Waits for the next change, then calls `see` with it and with the changes that are already available: the whole
    /// initial state, later up to [`BATCH`] at a time. Returns `false` once the server has stopped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: `see` is called with each change that is removed from the stream.
    pub(crate) async fn next_all(&mut self, mut see: impl FnMut(&Change)) -> bool {
        let Some(change) = self.next().await else { return false };
        see(&change);
        self.drain(see).await;
        true
    }

    /// Yield budget of the component that reads the changes.
    pub(crate) fn budget(&mut self) -> &mut YieldBudget {
        &mut self.budget
    }

    /// Calls `see` with the changes that are already available, as [`next_all`](Self::next_all).
    pub(crate) async fn drain(&mut self, mut see: impl FnMut(&Change)) {
        let mut seen = 0;
        while (!self.is_synced || seen < BATCH)
            && let Some(change) = self.try_next()
        {
            see(&change);
            seen += 1;
            self.budget.spend(1).await;
        }
    }

    /// Returns the next change if one is available.
    fn try_next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.next_missed_deletion() {
                return Some(change);
            }
            // `next` handles errors of the watch.
            let event = self.watcher.try_next().ok().flatten()?;
            if let Some(change) = self.record(&event) {
                return Some(change);
            }
        }
    }

    fn next_missed_deletion(&mut self) -> Option<Change> {
        self.missed_deletions.pop().map(|object| Change {
            old: Some(Arc::clone(&object)),
            object,
            deleted: true,
        })
    }

    fn record(&mut self, event: &WatchEvent) -> Option<Change> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let object = Arc::clone(object);
                if let Some(missing) = &mut self.missing {
                    missing.remove(object.uid());
                }
                // Compact, because all objects are kept.
                let old = self.reported.insert(object.uid().to_owned(), object.compact());
                Some(Change { object, old, deleted: false })
            }
            WatchEvent::Deleted(object) => {
                let old = self.reported.remove(object.uid());
                Some(Change { object: Arc::clone(object), old, deleted: true })
            }
            WatchEvent::InitialEventsEnd(_) => {
                self.is_synced = true;
                for (uid, object) in self.missing.take().into_iter().flatten() {
                    self.reported.remove(&uid);
                    self.missed_deletions.push(object);
                }
                None
            }
        }
    }
}

fn start(server: &ApiServer, resource: Option<Resource>) -> Watcher {
    match resource {
        Some(resource) => server.watch(resource, None, WatchStart::Initial),
        None => server.watch_everything(WatchStart::Initial),
    }
}

/// The string at `pointer`, or an empty string.
pub(crate) fn field<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Namespace and name of an object.
pub(crate) fn key_of(object: &Object) -> ObjectKey {
    ObjectKey::new(object.namespace(), object.name())
}
