use std::{
    fmt,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use serde_json::{Value, json};

use crate::{
    ApiService, ApiStatus, AuditSink, DataError, DeleteOptions, Faults, HistoryLimits, ListOptions, Object,
    ObjectList, PatchType, Resource, Selection, Subresource, WatchCacheLag, WatchStart, Watcher,
    WriteOptions,
    http::documents::Documents,
    json::str_at,
    registry::{Part, Patch, Registry, scale_of},
    store::{Disk, Store, WatchCache},
    strict,
};

/// Where container logs come from: a function of the pod and the container's name.
pub type LogSource = Arc<dyn Fn(&Object, &str) -> String + Send + Sync>;

/// Revisions start above 0, which has a meaning of its own.
const FIRST_REVISION: u64 = 1;

/// What an [`ApiServer`] is made of. [`Config::default`] is for real use; tests pass a clock and a seed.
pub struct Config {
    /// Times that go into objects, and the waiting of watches.
    pub clock: Arc<dyn Clock>,
    /// Uids and generated names.
    pub random: Arc<dyn Random>,
    /// What `/version` says, `v` and all.
    pub advertise_version: String,
    /// How much history is kept.
    pub history: HistoryLimits,
    /// Told about every HTTP request.
    pub audit: Option<AuditSink>,
    /// What is done to HTTP requests on purpose.
    pub faults: Faults,
    /// What a container's log says.
    pub logs: LogSource,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clock: Arc::new(RealClock::new()),
            random: Arc::new(SeededRandom::from_entropy()),
            advertise_version: format!("v1.32.0+kcm.{}", env!("CARGO_PKG_VERSION")),
            history: HistoryLimits::default(),
            audit: None,
            faults: Faults::default(),
            logs: Arc::new(|pod, container| {
                format!(
                    "(simulated) container {container} of pod {}/{} runs no program\n",
                    pod.namespace(),
                    pod.name()
                )
            }),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("clock", &self.clock)
            .field("advertise_version", &self.advertise_version)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

/// An API server, in memory or on a data directory.
///
/// Namespaces are given as `""` for resources that have none. Objects are given with `apiVersion` and `kind`
/// or without. Every method that writes does what a request over HTTP would do: defaults, admission,
/// validation, generation, no write if nothing changed.
pub struct ApiServer {
    pub(crate) registry: Registry,
    pub(crate) documents: Documents,
    pub(crate) config: Config,
    /// How many audit events there were.
    pub(crate) audited: AtomicU64,
}

impl ApiServer {
    /// A server in memory, with the four namespaces that every cluster has, and nothing else.
    pub fn new(config: Config) -> Arc<Self> {
        Self::with(Store::new(FIRST_REVISION, config.history), config)
    }

    /// A server that keeps its objects in `directory`, which is made if it is not there, and begins with what
    /// is there already. A write that was answered, or seen by a watch, outlasts the process and the machine.
    /// Revisions go on upward; what happened before is forgotten, so that watches from older ones get 410.
    ///
    /// Writing methods wait for the disk. On a multi-threaded runtime other tasks go on meanwhile, and writes
    /// that come together go to the disk together. When the disk fails, writes answer 500 and reads go on.
    ///
    /// # Errors
    ///
    /// When the directory cannot be used, another process uses it, or what it holds is damaged.
    pub fn open(config: Config, directory: &Path) -> Result<Arc<Self>, DataError> {
        let store = Store::open(Disk::open(directory)?, FIRST_REVISION, config.history)?;
        Ok(Self::with(store, config))
    }

    fn with(store: Store, config: Config) -> Arc<Self> {
        let registry = Registry::new(store, Arc::clone(&config.clock), Arc::clone(&config.random));
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            match registry.create(Resource::NAMESPACES, "", namespace, &WriteOptions::default()) {
                Err(error) if !error.is_already_exists() => {
                    tracing::error!(%error, name, "a system namespace cannot be created");
                }
                _ => {}
            }
        }
        let documents = Documents::new(&config.advertise_version);
        Arc::new(Self { registry, documents, config, audited: AtomicU64::new(0) })
    }

    /// The revision of the newest write, which a list of now would report.
    pub fn revision(&self) -> u64 {
        self.registry.store.revision()
    }

    /// Creates an object and answers what was stored.
    ///
    /// # Errors
    ///
    /// As over HTTP: the name is taken, the namespace missing or going away, the object invalid.
    pub fn create(
        &self,
        resource: Resource,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        let object = decode(resource, object)?;
        Ok(self.registry.create(resource, namespace, object, options)?.object)
    }

    /// Reads an object.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Arc<Object>, ApiStatus> {
        self.registry.get(resource, namespace, name)
    }

    /// Lists objects, in one namespace or with `None` in all.
    ///
    /// # Errors
    ///
    /// When a state is asked for that is forgotten (410) or not there yet (504), or the token makes no sense.
    pub fn list(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiStatus> {
        self.registry.store.list(resource, namespace.unwrap_or_default(), options)
    }

    /// Replaces an object, except for its status. A `resourceVersion` in it must be the present one.
    ///
    /// # Errors
    ///
    /// As over HTTP: it is not there, was changed meanwhile, is invalid.
    pub fn update(
        &self,
        resource: Resource,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        self.update_part(resource, namespace, Part::Main, object, options)
    }

    /// Replaces an object's status. A `resourceVersion` in it must be the present one.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update), and 405 when the resource has no status.
    pub fn update_status(
        &self,
        resource: Resource,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        if !resource.has(Subresource::Status) {
            return Err(ApiStatus::method_not_allowed());
        }
        self.update_part(resource, namespace, Part::Status, object, options)
    }

    /// Sets a namespace's `spec.finalizers` to those in `object`. A namespace that is being deleted goes when
    /// the last is gone.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    pub fn finalize(&self, object: Value, options: &WriteOptions) -> Result<Arc<Object>, ApiStatus> {
        self.update_part(Resource::NAMESPACES, "", Part::Finalize, object, options)
    }

    fn update_part(
        &self,
        resource: Resource,
        namespace: &str,
        part: Part,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        let object = decode(resource, object)?;
        let name = str_at(&object, &["metadata", "name"]).to_owned();
        Ok(self.registry.update(resource, namespace, &name, part, object, options)?.object)
    }

    /// Patches an object, or its status or scale. Answers the object, for a scale its parent.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update); also when the patch makes no sense, and 405 for another subresource.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the request's address")]
    pub fn patch(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        subresource: Option<Subresource>,
        form: PatchType,
        patch: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        let patch = Patch { form, body: patch };
        let part = match subresource {
            None => Part::Main,
            Some(subresource) if !resource.has(subresource) => return Err(ApiStatus::method_not_allowed()),
            Some(Subresource::Status) => Part::Status,
            Some(Subresource::Scale) => {
                return Ok(self.registry.patch_scale(resource, namespace, name, &patch, options)?.object);
            }
            Some(_) => return Err(ApiStatus::method_not_allowed()),
        };
        Ok(self.registry.patch(resource, None, namespace, name, part, &patch, options)?.object)
    }

    /// Reads an object's `autoscaling/v1` Scale.
    ///
    /// # Errors
    ///
    /// When the object is not there, and 405 when the resource cannot be scaled.
    pub fn scale(&self, resource: Resource, namespace: &str, name: &str) -> Result<Value, ApiStatus> {
        if !resource.has(Subresource::Scale) {
            return Err(ApiStatus::method_not_allowed());
        }
        Ok(scale_of(&*self.get(resource, namespace, name)?))
    }

    /// Deletes an object, or begins to: what it answers has a deletion timestamp, and is still there if a
    /// finalizer or a pod's grace period holds it.
    ///
    /// # Errors
    ///
    /// When it is not there, a precondition does not hold (409), or it may not be deleted (403).
    pub fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        Ok(Arc::clone(self.registry.delete(resource, namespace, name, options)?.object()))
    }

    /// Deletes every object that `selected` selects and answers them.
    ///
    /// # Errors
    ///
    /// As [`delete`](Self::delete), with some of them deleted.
    pub fn delete_collection(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        selected: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Object>>, ApiStatus> {
        self.registry.delete_collection(resource, namespace.unwrap_or_default(), selected, options)
    }

    /// Puts a pod onto a node, as a scheduler does.
    ///
    /// # Errors
    ///
    /// When the pod is not there, bound already, or being deleted (409).
    pub fn bind(&self, namespace: &str, pod: &str, node: &str) -> Result<Arc<Object>, ApiStatus> {
        let binding = json!({"target": {"kind": "Node", "name": node}});
        Ok(self.registry.bind(namespace, pod, &binding, &WriteOptions::default())?.object)
    }

    /// Deletes a pod unless a PodDisruptionBudget forbids it.
    ///
    /// # Errors
    ///
    /// 429 when it does; else as [`delete`](Self::delete).
    pub fn evict(&self, namespace: &str, pod: &str, options: &DeleteOptions) -> Result<(), ApiStatus> {
        self.registry.evict(namespace, pod, options, &WriteOptions::default())
    }

    /// Watches a resource, in one namespace or with `None` in all.
    pub fn watch(&self, resource: Resource, namespace: Option<&str>, start: WatchStart) -> Watcher {
        self.watch_selected(resource, namespace, Selection::default(), start)
    }

    /// Watches those objects of a resource that match.
    pub fn watch_selected(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        selection: Selection,
        start: WatchStart,
    ) -> Watcher {
        self.registry.store.watch(Some(resource), namespace.unwrap_or_default(), selection, start)
    }

    /// Watches every resource at once, in the order of the writes: what a garbage collector wants.
    pub fn watch_everything(&self, start: WatchStart) -> Watcher {
        self.registry.store.watch(None, "", Selection::default(), start)
    }

    /// The objects, of any kind, whose owner references name `uid`.
    pub fn dependents(&self, uid: &str) -> Vec<Arc<Object>> {
        self.registry.store.dependents(uid)
    }

    /// The object, of any kind, with this uid.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<Object>> {
        self.registry.store.by_uid(uid)
    }

    /// The server as a service of HTTP requests, without a socket.
    pub fn service(self: &Arc<Self>) -> ApiService {
        ApiService::new(Arc::clone(self), None)
    }

    /// A front end of its own over the same objects, whose watch cache lags behind by `lag`.
    ///
    /// As several upstream API servers over one etcd:
    ///
    /// * Watch events and bookmarks are sent once the write is as old as the lag.
    /// * A list or watch with `resourceVersion=0` shows the state of the cache.
    /// * A list or streaming list with a minimum version waits until the cache has reached it. After 3 s the answer is
    ///   504 with the cause `ResourceVersionTooLarge`.
    /// * A consistent list (no version) waits until the cache has reached the store's revision at the time of the
    ///   request. After 3 s the store answers it.
    /// * A streaming list with an empty version waits the same way. After 3 s it fails as with a minimum version.
    /// * Reads of single objects, lists of an exact version, continued lists and writes go to the store.
    ///
    /// Clones of the service share the cache; each call makes another one.
    pub fn service_lagging(self: &Arc<Self>, lag: WatchCacheLag) -> ApiService {
        let cache = WatchCache::new(self.registry.store.clone(), Arc::clone(&self.config.clock), lag);
        ApiService::new(Arc::clone(self), Some(Arc::new(cache)))
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Brings an object from Rust into the form of its types. What they do not have is dropped.
fn decode(resource: Resource, mut object: Value) -> Result<Value, ApiStatus> {
    if let Value::Object(members) = &mut object {
        members.entry("apiVersion").or_insert_with(|| json!(resource.api_version()));
        members.entry("kind").or_insert_with(|| json!(resource.kind()));
    }
    let decoded = strict::decode_value(resource.api_version(), resource.kind(), object);
    Ok(decoded.map_err(|error| ApiStatus::bad_request(error.to_string()))?.object)
}
