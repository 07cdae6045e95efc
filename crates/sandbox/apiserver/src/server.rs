//! The API server and its configuration.
//!
//! This module and [`crate::http`] use each other: requests are served by the server, whose configuration has their faults
//! and audit sink.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::{
    ApiStatus, AuditSink, Backup, DeleteOptions, Disk, Faults, HistoryLimits, ListOptions, Object,
    ObjectList, Resource, Row, Selection, Subresource, WatchStart, Watcher, WebhookClient, WriteOptions,
    custom::CustomResources,
    http::documents::{Documents, GroupVersion},
    json::str_at,
    kind::Kind,
    rbac,
    registry::{Patch, Registry, WriteScope, WriteTarget, quota, scale_of},
    store::Store,
    webhook::Webhooks,
};

/// Source of container logs: a function of the pod and the container's name.
pub type LogSource = Arc<dyn Fn(&Object, &str) -> String + Send + Sync>;

/// Webhook that is called for the creation of each object over HTTP. May change the object.
pub type AdmissionHook = Arc<dyn Fn(Resource, &mut Value) -> Result<(), ApiStatus> + Send + Sync>;

/// Revision of an empty store. It is above 0 because `resourceVersion: "0"` means any version.
const FIRST_REVISION: u64 = 1;

/// Configuration of an [`ApiServer`].
///
/// The [default](ApiServerConfig::default) uses the real clock and random seed; tests pass their own.
pub struct ApiServerConfig {
    /// Clock for timestamps in objects and for watch timeouts.
    pub clock: Arc<dyn Clock>,
    /// Random numbers for UIDs and generated names.
    pub random: Arc<dyn Random>,
    /// `gitVersion` of `/version`, with the leading `v`.
    pub advertise_version: String,
    /// Limits of the history that watches and older lists are served from.
    pub history: HistoryLimits,
    /// Receiver of an audit event per HTTP request.
    pub audit: Option<AuditSink>,
    /// Faults injected into HTTP requests.
    pub faults: Faults,
    /// Webhook of creations over HTTP. `None` admits all.
    pub admission: Option<AdmissionHook>,
    /// Client of the webhooks of MutatingWebhookConfigurations, ValidatingWebhookConfigurations and
    /// CustomResourceDefinitions, for requests over HTTP. With `None`, the configurations have no effect, and requests
    /// that a webhook must convert objects for fail.
    pub webhooks: Option<Arc<dyn WebhookClient>>,
    /// If `true`, usage that the status of a ResourceQuota contains is charged to new objects even if the objects that
    /// used it do not exist any more, as upstream does until the quota controller has updated the status.
    pub charge_quota_status: bool,
    /// If `true`, Roles, ClusterRoles and their bindings authorize requests over HTTP. If `false`, every user may do
    /// everything.
    pub rbac: bool,
    /// If `true`, requests without credentials are anonymous: all of them with `rbac`, otherwise those for health checks,
    /// the version and the web page. If `false`, they get 401. Has no effect without [`Program::users`](crate::Program).
    pub anonymous_auth: bool,
    /// Issuer of the tokens of service accounts, and their default audience.
    pub service_account_issuer: String,
    /// Key that signs the tokens of service accounts. Servers with the same key and issuer accept each other's tokens.
    pub service_account_key: [u8; 32],
    /// If `true`, objects have `metadata.managedFields` from their creation on, as upstream. If `false`, they have them
    /// from their first server-side apply on, which makes writes cheaper and objects smaller.
    pub managed_fields: bool,
    /// Revision of the empty store, at least 1.
    pub first_revision: u64,
    /// Source of container logs.
    pub logs: LogSource,
}

impl Default for ApiServerConfig {
    fn default() -> Self {
        Self {
            clock: Arc::new(RealClock::new()),
            random: Arc::new(SeededRandom::from_entropy()),
            advertise_version: format!("v1.36.0+kcm.{}", env!("CARGO_PKG_VERSION")),
            history: HistoryLimits::default(),
            audit: None,
            faults: Faults::default(),
            admission: None,
            webhooks: None,
            charge_quota_status: false,
            rbac: false,
            anonymous_auth: true,
            service_account_issuer: "https://kubernetes.default.svc.cluster.local".to_owned(),
            service_account_key: random_key(),
            managed_fields: true,
            first_revision: FIRST_REVISION,
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

/// Returns a key for a server in a test. Programs use numbers of the operating system.
fn random_key() -> [u8; 32] {
    let (random, mut key) = (SeededRandom::from_entropy(), [0; 32]);
    key.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next_u64().to_ne_bytes()));
    key
}

impl fmt::Debug for ApiServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerConfig")
            .field("clock", &self.clock)
            .field("advertise_version", &self.advertise_version)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

/// API server, in memory or on a data directory.
///
/// `namespace` is `""` for cluster-scoped resources. `apiVersion` and `kind` of a passed object are optional. A write
/// does what the same HTTP request does: defaulting, admission, validation, generation, and no write if nothing
/// changed.
pub struct ApiServer {
    pub(crate) registry: Registry,
    pub(crate) config: ApiServerConfig,
    /// Discovery documents, and the custom resources that they contain. Built on demand.
    documents: Mutex<Option<(Arc<CustomResources>, Arc<Documents>)>>,
    /// Number of audit events so far.
    pub(crate) audited: AtomicU64,
}

impl ApiServer {
    /// Creates a server in memory that contains only the four system namespaces.
    pub fn new(config: ApiServerConfig) -> Arc<Self> {
        Self::with(Store::new(config.first_revision.max(FIRST_REVISION), config.history), config)
    }

    /// Creates a server that stores its objects on `disk`, which contains `rows` up to `revision`.
    ///
    /// A write is durable before it is answered or seen by a watch. Revisions continue after a restart. The history does
    /// not survive a restart: watches from an older revision fail with 410.
    ///
    /// Writes wait for the disk. On a multi-threaded runtime other tasks run meanwhile, and concurrent writes share a
    /// commit. If the disk fails, writes fail with 500 and reads continue.
    ///
    /// # Errors
    ///
    /// Returns the name of an invalid row.
    pub fn on_disk(
        config: ApiServerConfig,
        disk: Box<dyn Disk>,
        rows: Vec<Row>,
        revision: u64,
    ) -> Result<Arc<Self>, String> {
        let store = Store::open(disk, rows, revision.max(FIRST_REVISION), config.history)?;
        Ok(Self::with(store, config))
    }

    fn with(store: Store, config: ApiServerConfig) -> Arc<Self> {
        let mut registry = Registry::new(store, Arc::clone(&config.clock), Arc::clone(&config.random));
        registry.charge_quota_status = config.charge_quota_status;
        registry.managed_fields = config.managed_fields;
        let options =
            WriteOptions { field_manager: Some("kube-apiserver".to_owned()), ..WriteOptions::default() };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            match registry.create(&Resource::NAMESPACES.into(), None, "", namespace, &options, None) {
                Err(error) if !error.is_already_exists() => {
                    tracing::error!(%error, name, "Failed to create system namespace");
                }
                _ => {}
            }
        }
        if config.rbac {
            rbac::create_default_roles(&registry, &options);
        }
        Arc::new(Self { registry, config, documents: Mutex::default(), audited: AtomicU64::new(0) })
    }

    /// Clock of the server.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.config.clock
    }

    /// Calls of webhooks. `None` without a client.
    pub(crate) fn webhooks(&self) -> Option<Webhooks> {
        let ApiServerConfig { webhooks, clock, random, .. } = &self.config;
        Some(Webhooks {
            client: Arc::clone(webhooks.as_ref()?),
            clock: Arc::clone(clock),
            random: Arc::clone(random),
            store: self.registry.store.clone(),
        })
    }

    /// Faults injected into HTTP requests.
    pub fn faults(&self) -> &Faults {
        &self.config.faults
    }

    /// `true` if writes wait for a disk.
    pub fn is_on_disk(&self) -> bool {
        self.registry.store.is_durable()
    }

    /// Revision of the latest write.
    pub fn revision(&self) -> u64 {
        self.registry.store.revision()
    }

    /// Creates an object and returns it as stored.
    ///
    /// # Errors
    ///
    /// As over HTTP, for example: the name exists (409), the namespace is missing (404) or terminating (403), the
    /// object is invalid (422).
    pub fn create(
        &self,
        resource: Resource,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        let kind = self.kind_of(resource, &object)?;
        let object = decode(&kind, object)?;
        Ok(self.registry.create(&kind, None, namespace, object, options, None)?.object)
    }

    /// Stores a copy of an object of another cluster, with its UID, timestamps, generation and status.
    ///
    /// The object is neither defaulted nor admitted nor validated, and only gets a new `resourceVersion`. The resource is
    /// built in, and the object is in its storage version; `apiVersion` and `kind` are set.
    ///
    /// # Errors
    ///
    /// 409 if the name exists, 400 if the object has no name.
    pub fn restore(&self, resource: Resource, object: Value) -> Result<Arc<Object>, ApiStatus> {
        self.registry.restore(resource, object)
    }

    /// Returns a copy of the stored objects.
    pub fn back_up(&self) -> Backup {
        self.registry.store.back_up()
    }

    /// Replaces all objects with those of `backup`, as the restore of a backup of etcd. Revisions start again above 0, so
    /// that the revisions of the objects are lower than before. All watches fail with 410.
    ///
    /// For a server in memory. Upstream's servers are restarted.
    pub fn restore_backup(&self, backup: &Backup) {
        self.registry.store.restore_backup(backup);
    }

    /// Returns an object.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist.
    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Arc<Object>, ApiStatus> {
        self.registry.get(resource, namespace, name)
    }

    /// Lists objects, in one namespace or with `None` in all namespaces.
    ///
    /// # Errors
    ///
    /// 410 if the requested state is no longer in the history, 504 if it does not exist yet, 400 if the continue token
    /// is invalid.
    pub fn list(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiStatus> {
        self.registry.store.list(resource, namespace.unwrap_or_default(), options)
    }

    /// Replaces an object, except for its status. A `resourceVersion` in `object` must be the current one.
    ///
    /// # Errors
    ///
    /// As over HTTP, for example: the object does not exist (404), was changed concurrently (409), is invalid (422).
    pub fn update(
        &self,
        resource: Resource,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        self.update_part(resource, namespace, WriteScope::Main, object, options)
    }

    /// Replaces an object's status. A `resourceVersion` in `object` must be the current one.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update), and 405 if the resource has no status.
    pub fn update_status(
        &self,
        resource: Resource,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        if !self.kind_of(resource, &object)?.has(Subresource::Status) {
            return Err(ApiStatus::method_not_allowed());
        }
        self.update_part(resource, namespace, WriteScope::Status, object, options)
    }

    /// Replaces a namespace's `spec.finalizers` by those in `object`. A terminating namespace is removed with its last
    /// finalizer.
    pub fn finalize(&self, object: Value, options: &WriteOptions) -> Result<Arc<Object>, ApiStatus> {
        self.update_part(Resource::NAMESPACES, "", WriteScope::Finalize, object, options)
    }

    fn update_part(
        &self,
        resource: Resource,
        namespace: &str,
        scope: WriteScope,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        let kind = self.kind_of(resource, &object)?;
        let object = decode(&kind, object)?;
        let name = &str_at(&object, &["metadata", "name"]).to_owned();
        let target =
            WriteTarget { kind: &kind, namespace, name, scope, admission: None, creation_refused: None };
        Ok(self.registry.update(target, None, object, options)?.0.object)
    }

    /// Patches an object or a subresource: status, scale, and `ephemeralcontainers` and `resize` of a pod. Returns the
    /// object; for a scale the scaled object.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update); also if the patch is invalid, and 405 for another subresource.
    #[expect(clippy::needless_pass_by_value, reason = "callers create the patch in the call")]
    pub fn patch(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        subresource: Option<Subresource>,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        let kind = self.registry.kind(resource, "")?;
        let scope = match subresource {
            None => WriteScope::Main,
            Some(subresource) if !kind.has(subresource) => return Err(ApiStatus::method_not_allowed()),
            Some(Subresource::Status) => WriteScope::Status,
            Some(Subresource::EphemeralContainers) => WriteScope::EphemeralContainers,
            Some(Subresource::Resize) => WriteScope::Resize,
            Some(Subresource::Scale) => {
                let scope = WriteScope::Main;
                let target = WriteTarget {
                    kind: &kind,
                    namespace,
                    name,
                    scope,
                    admission: None,
                    creation_refused: None,
                };
                return Ok(self.registry.patch_scale(target, &patch, options)?.object);
            }
            Some(_) => return Err(ApiStatus::method_not_allowed()),
        };
        let target =
            WriteTarget { kind: &kind, namespace, name, scope, admission: None, creation_refused: None };
        Ok(self.registry.patch(target, None, &patch, options)?.object)
    }

    /// Returns an object's `autoscaling/v1` Scale.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist, 405 if the resource has no scale.
    pub fn scale(&self, resource: Resource, namespace: &str, name: &str) -> Result<Value, ApiStatus> {
        let kind = self.registry.kind(resource, "")?;
        if !kind.has(Subresource::Scale) {
            return Err(ApiStatus::method_not_allowed());
        }
        scale_of(&kind, &*self.get(resource, namespace, name)?)
    }

    /// Deletes an object.
    ///
    /// If finalizers or a grace period delay the removal, the returned object has a deletion timestamp and still exists.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist, 409 if a precondition fails, 403 if the object must not be deleted.
    pub fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Arc<Object>, ApiStatus> {
        Ok(Arc::clone(self.registry.delete(resource, namespace, name, options, None)?.object()))
    }

    /// Deletes every object that `selected` selects and returns the deleted objects.
    ///
    /// Objects that are created concurrently may be deleted, too.
    ///
    /// # Errors
    ///
    /// As [`delete`](Self::delete). Objects before the failed one are deleted.
    pub fn delete_collection(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        selected: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Object>>, ApiStatus> {
        let namespace = namespace.unwrap_or_default();
        let mut deletion = self.registry.delete_collection(resource, namespace, selected, options, None)?;
        while deletion.delete_batch()? {}
        Ok(deletion.into_deleted().items)
    }

    /// Assigns a pod to a node, as a scheduler does.
    ///
    /// # Errors
    ///
    /// 404 if the pod does not exist, 409 if it is bound or being deleted.
    pub fn bind(&self, namespace: &str, pod: &str, node: &str) -> Result<Arc<Object>, ApiStatus> {
        let binding = json!({"target": {"kind": "Node", "name": node}});
        Ok(self.registry.bind(namespace, pod, &binding, &WriteOptions::default())?.object)
    }

    /// Deletes a pod unless a PodDisruptionBudget forbids it.
    ///
    /// # Errors
    ///
    /// 429 if a budget forbids it; otherwise as [`delete`](Self::delete).
    pub fn evict(&self, namespace: &str, pod: &str, options: &DeleteOptions) -> Result<(), ApiStatus> {
        self.registry.evict(namespace, pod, options, &WriteOptions::default())
    }

    /// Returns the amounts that `quota` limits and that are in use, as in `status.used` of a ResourceQuota.
    ///
    /// Upstream counterpart: `quota.CalculateUsage`.
    pub fn quota_usage(&self, quota: &Object) -> Map<String, Value> {
        let now = self.config.clock.now();
        let custom = self.registry.custom();
        let find = |group: &str, plural: &str| {
            let custom = || custom.find(group, plural).map(|custom| custom.resource);
            Resource::find(group, plural).or_else(custom)
        };
        quota::usage(&self.registry.store, quota, now, find)
    }

    /// Watches a resource, in one namespace or with `None` in all namespaces.
    pub fn watch(&self, resource: Resource, namespace: Option<&str>, start: WatchStart) -> Watcher {
        self.watch_selected(resource, namespace, Selection::default(), start)
    }

    /// Watches the objects of a resource that match `selection`.
    pub fn watch_selected(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        selection: Selection,
        start: WatchStart,
    ) -> Watcher {
        self.registry.store.watch(Some(resource), namespace.unwrap_or_default(), selection, start)
    }

    /// Watches all resources in the order of writes, as a garbage collector requires.
    pub fn watch_everything(&self, start: WatchStart) -> Watcher {
        self.registry.store.watch(None, "", Selection::default(), start)
    }

    /// All resources that are served: built-in resources and established custom resources.
    pub fn resources(&self) -> Vec<Resource> {
        Resource::all().chain(self.registry.custom().iter().map(|custom| custom.resource)).collect()
    }

    /// Returns the served resource with this group (empty for the core group) and plural name.
    pub fn resource(&self, group: &str, plural: &str) -> Option<Resource> {
        let custom = || self.registry.custom().find(group, plural).map(|custom| custom.resource);
        Resource::find(group, plural).or_else(custom)
    }

    /// Returns the served group-versions, the preferred version of each group first. The list is replaced when the custom
    /// resources change.
    #[doc(hidden)]
    pub fn group_versions(&self) -> Arc<[GroupVersion]> {
        Arc::clone(&self.documents().all)
    }

    /// Returns the discovery documents.
    pub(crate) fn documents(&self) -> Arc<Documents> {
        let custom = self.registry.custom();
        let mut documents = self.documents.lock();
        if let Some((known, documents)) = &*documents
            && Arc::ptr_eq(known, &custom)
        {
            return Arc::clone(documents);
        }
        let new = Arc::new(Documents::new(&self.config.advertise_version, &custom));
        *documents = Some((custom, Arc::clone(&new)));
        new
    }

    /// Returns the kind of a resource in the version of `object`.
    fn kind_of(&self, resource: Resource, object: &Value) -> Result<Kind, ApiStatus> {
        self.registry.kind(resource, str_at(object, &["apiVersion"]))
    }

    /// Returns the objects of any kind with an owner reference to `uid`.
    pub fn dependents(&self, uid: &str) -> Vec<Arc<Object>> {
        self.registry.store.dependents(uid)
    }

    /// Returns the object of any kind with this UID.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<Object>> {
        self.registry.store.by_uid(uid)
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Normalizes an object as its type is defined. Unknown fields are dropped.
fn decode(kind: &Kind, mut object: Value) -> Result<Value, ApiStatus> {
    if let Value::Object(members) = &mut object {
        members.entry("apiVersion").or_insert_with(|| json!(kind.api_version()));
        members.entry("kind").or_insert_with(|| json!(kind.name()));
    }
    let decoded = kind.decode(object);
    Ok(decoded.map_err(|error| ApiStatus::bad_request(error.to_string()))?.object)
}
