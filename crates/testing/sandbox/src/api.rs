//! The embedded server as the stand-ins see it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_api::{ObjectKey, Time};
use kcm_apiserver::{
    ApiServer, ApiStatus, DeleteOptions, ListOptions, Object, PatchType, Propagation, Resource, Subresource,
    WatchEvent, WatchStart, Watcher, WriteOptions,
};
use kcm_clock::Clock;
use serde_json::{Value, json};
use tracing::debug;

use crate::pace::Pace;

/// Number of changes that [`Changes::next_all`] reports at a time, once the initial state has been reported.
const BATCH: usize = 4096;

/// The server, and the time.
#[derive(Debug)]
pub(crate) struct Api {
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
}

/// Something happened to an object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) object: Arc<Object>,
    /// State that was reported before, if any.
    pub(crate) old: Option<Arc<Object>>,
    /// It is no more; `object` is its last state.
    pub(crate) gone: bool,
}

/// What happens, beginning with what there is.
///
/// It never misses that an object is gone, also when it was too slow for the server's history.
pub(crate) struct Changes {
    server: Arc<ApiServer>,
    resource: Option<Resource>,
    watcher: Watcher,
    /// What was reported and is still there, by UID.
    known: BTreeMap<String, Arc<Object>>,
    /// Of those, what has not been seen again since starting over.
    missing: Option<BTreeMap<String, Arc<Object>>>,
    /// Deletions found out by starting over.
    late: Vec<Arc<Object>>,
    /// `true` once the initial state has been reported.
    is_synced: bool,
    pace: Pace,
}

impl Api {
    pub(crate) fn new(server: Arc<ApiServer>, clock: Arc<dyn Clock>) -> Self {
        Self { server, clock }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now().into()
    }

    /// The time with the six digits that leases have.
    pub(crate) fn micro_time(&self) -> String {
        format!("{:.6}", self.clock.now())
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }

    /// Watches one resource, or all.
    pub(crate) fn watch(&self, resource: Option<Resource>) -> Changes {
        Changes::of(Arc::clone(&self.server), resource, Arc::clone(&self.clock))
    }

    pub(crate) fn get(&self, resource: Resource, key: &ObjectKey) -> Result<Arc<Object>, ApiStatus> {
        self.server.get(resource, &key.namespace, &key.name)
    }

    /// The object with this UID, if it is still there.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<Object>> {
        self.server.by_uid(uid)
    }

    /// What names the object with this UID as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Arc<Object>> {
        self.server.dependents(uid)
    }

    /// Everything in a namespace, of all resources.
    pub(crate) fn all_in(&self, namespace: &str) -> Vec<Arc<Object>> {
        Resource::all()
            .filter(|resource| resource.is_namespaced())
            .flat_map(|resource| self.list(resource, namespace))
            .collect()
    }

    pub(crate) fn list(&self, resource: Resource, namespace: &str) -> Vec<Arc<Object>> {
        // The newest state is always there to be listed.
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
        self.server.create(resource, namespace, object, &WriteOptions::default())
    }

    /// A strategic merge patch of the object itself.
    pub(crate) fn patch(&self, object: &Object, patch: &Value) -> Result<(), ApiStatus> {
        self.patch_part(object, None, patch)
    }

    /// A strategic merge patch of the object's status.
    pub(crate) fn patch_status(&self, object: &Object, patch: &Value) -> Result<(), ApiStatus> {
        self.patch_part(object, Some(Subresource::Status), patch)
    }

    fn patch_part(&self, object: &Object, part: Option<Subresource>, patch: &Value) -> Result<(), ApiStatus> {
        let (resource, namespace, name) = (object.resource(), object.namespace(), object.name());
        let options = WriteOptions::default();
        self.server
            .patch(resource, namespace, name, part, PatchType::Strategic, patch.clone(), &options)
            .map(drop)
    }

    /// Binds a pod to a node.
    pub(crate) fn bind(&self, pod: &Object, node: &str) -> Result<(), ApiStatus> {
        self.server.bind(pod.namespace(), pod.name(), node).map(drop)
    }

    /// Asks for this very object to go.
    pub(crate) fn delete(&self, object: &Object, propagation: Propagation) -> Result<(), ApiStatus> {
        let options =
            DeleteOptions { propagation: Some(propagation), ..DeleteOptions::with_uid(object.uid()) };
        self.delete_with(object, &options)
    }

    /// Removes this very object: what a kubelet does when the containers are gone.
    pub(crate) fn remove(&self, object: &Object) -> Result<(), ApiStatus> {
        self.delete_with(object, &DeleteOptions::now(object.uid()))
    }

    fn delete_with(&self, object: &Object, options: &DeleteOptions) -> Result<(), ApiStatus> {
        self.server.delete(object.resource(), object.namespace(), object.name(), options).map(drop)
    }

    /// Lets an emptied namespace go.
    pub(crate) fn finalize(&self, namespace: &Object) -> Result<(), ApiStatus> {
        let mut emptied = namespace.value().clone();
        emptied["spec"]["finalizers"] = json!([]);
        self.server.finalize(emptied, &WriteOptions::default()).map(drop)
    }

    /// Writes an event about an object. One that cannot be written is not worth a failure.
    pub(crate) fn event(&self, object: &Object, type_: &str, reason: &str, message: &str, component: &str) {
        let now = self.clock.now();
        let namespace = if object.namespace().is_empty() { "default" } else { object.namespace() };
        let time = Time::new(now);
        let event = json!({
            "metadata": { "name": format!("{}.{:x}", object.name(), now.as_nanosecond()), "namespace": namespace },
            "involvedObject": {
                "apiVersion": object.resource().api_version(), "kind": object.resource().kind(),
                "namespace": object.namespace(), "name": object.name(), "uid": object.uid(),
                "resourceVersion": object.revision().to_string(),
            },
            "type": type_, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": time, "lastTimestamp": time,
            "source": { "component": component }, "reportingComponent": component, "reportingInstance": "",
        });
        if let Err(error) = self.create(Resource::EVENTS, namespace, event) {
            debug!(?object, reason, %error, "event not written");
        }
    }
}

impl Changes {
    fn of(server: Arc<ApiServer>, resource: Option<Resource>, clock: Arc<dyn Clock>) -> Self {
        let watcher = start(&server, resource);
        let (known, late, pace) = (BTreeMap::new(), Vec::new(), Pace::new(clock));
        Self { server, resource, watcher, known, missing: None, late, is_synced: false, pace }
    }

    /// Returns the next change, or `None` once the server is gone. Yields to other tasks at times, so that changes that
    /// come without end do not keep a `select!` from its other branches.
    ///
    /// # Cancel safety
    ///
    /// A change is taken only as it is returned.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        loop {
            self.pace.spend(1).await;
            if let Some(change) = self.late() {
                return Some(change);
            }
            let event = match self.watcher.try_next() {
                Ok(Some(event)) => Ok(event),
                Ok(None) => {
                    self.pace.rested();
                    self.watcher.next().await
                }
                Err(error) => Err(error),
            };
            match event {
                Ok(event) => {
                    if let Some(change) = self.note(&event) {
                        return Some(change);
                    }
                }
                Err(error) if error.is_expired() => {
                    self.is_synced = false;
                    self.watcher = start(&self.server, self.resource);
                    self.missing = Some(self.known.clone());
                }
                Err(_) => return None,
            }
        }
    }

    /// Waits for the next change, then calls `see` with it and with those that are there already: the whole initial
    /// state, later up to [`BATCH`] at a time. Returns `false` once the server is gone.
    ///
    /// # Cancel safety
    ///
    /// `see` is called with each change that is taken.
    pub(crate) async fn next_all(&mut self, mut see: impl FnMut(&Change)) -> bool {
        let Some(change) = self.next().await else { return false };
        see(&change);
        self.rest(see).await;
        true
    }

    /// Pace of the stand-in that reads the changes.
    pub(crate) fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }

    /// As [`next_all`](Self::next_all), without a wait for the first change.
    pub(crate) async fn rest(&mut self, mut see: impl FnMut(&Change)) {
        let mut seen = 0;
        while (!self.is_synced || seen < BATCH)
            && let Some(change) = self.try_next()
        {
            see(&change);
            seen += 1;
            self.pace.spend(1).await;
        }
    }

    /// The next change, if there is one already.
    fn try_next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.late() {
                return Some(change);
            }
            // What is wrong with the watch is dealt with in `next`.
            let event = self.watcher.try_next().ok().flatten()?;
            if let Some(change) = self.note(&event) {
                return Some(change);
            }
        }
    }

    fn late(&mut self) -> Option<Change> {
        self.late.pop().map(|object| Change { old: Some(Arc::clone(&object)), object, gone: true })
    }

    fn note(&mut self, event: &WatchEvent) -> Option<Change> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let object = Arc::clone(object);
                if let Some(missing) = &mut self.missing {
                    missing.remove(object.uid());
                }
                let old = self.known.insert(object.uid().to_owned(), Arc::clone(&object));
                Some(Change { object, old, gone: false })
            }
            WatchEvent::Deleted(object) => {
                let old = self.known.remove(object.uid());
                Some(Change { object: Arc::clone(object), old, gone: true })
            }
            WatchEvent::InitialEventsEnd(_) => {
                self.is_synced = true;
                for (uid, object) in self.missing.take().into_iter().flatten() {
                    self.known.remove(&uid);
                    self.late.push(object);
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

/// The text at `pointer`, empty where there is none.
pub(crate) fn field<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The element of the list at `pointer` whose `type` is `type_`.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// Namespace and name of an object.
pub(crate) fn key_of(object: &Object) -> ObjectKey {
    ObjectKey::new(object.namespace(), object.name())
}
