//! Objects that a diagnosis needs, listed once and kept current by watches.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::ApiError;
use kcm_client::{ApiClient, ApiResource, ListParams};
use kcm_clock::{Clock, RealClock, SeededRandom, Timestamp};
use kcm_informer::{
    ControllerRef, Deleted, EventHandler, InformerConfig, ListOptions, ListSink, ListWatch, ListWatchError,
    Object, ObjectKey, SharedInformer, WatchOptions, WatchStream,
};
use kcm_rollouts::{
    Known, Snapshot,
    json::{condition, text, time},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::flags::WhyFlags;
use crate::reader::{
    Field, LISTS, Reader, divide, empty_snapshots, path, read_nodes, read_single_objects, skipped, unreadable,
};

/// Resources without which only causes in the status are found.
const REQUIRED: [&str; 3] = ["deployments", "replicasets", "pods"];
/// Maximum time to wait for a list of a resource that may not be watched.
const RELIST: Duration = Duration::from_secs(10);

/// Object as JSON.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Json(Value);

impl Object for Json {
    fn key(&self) -> ObjectKey {
        ObjectKey::new(text(&self.0, "/metadata/namespace"), text(&self.0, "/metadata/name"))
    }

    fn uid_str(&self) -> &str {
        text(&self.0, "/metadata/uid")
    }

    fn resource_version_str(&self) -> &str {
        text(&self.0, "/metadata/resourceVersion")
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.0["metadata"]["labels"][key].as_str()
    }

    fn creation_time(&self) -> Option<Timestamp> {
        time(&self.0, "/metadata/creationTimestamp")
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        time(&self.0, "/metadata/deletionTimestamp")
    }

    // No index uses owners.
    fn controller(&self) -> Option<ControllerRef<'_>> {
        None
    }
}

/// `true` if the change to an object, from the old one if there is one, can change a diagnosis.
type IsRelevant = Box<dyn Fn(Option<&Value>, &Value) -> bool + Send + Sync>;

/// Handler of an informer that reports relevant changes.
struct Signal {
    changed: Arc<Notify>,
    is_relevant: IsRelevant,
}

impl Signal {
    fn report(&self, old: Option<&Json>, new: &Json) {
        if (self.is_relevant)(old.map(|old| &old.0), &new.0) {
            self.changed.notify_one();
        }
    }
}

impl EventHandler<Json> for Signal {
    fn on_add(&self, object: &Arc<Json>, _: bool) {
        self.report(None, object);
    }

    fn on_update(&self, old: &Arc<Json>, new: &Arc<Json>) {
        self.report(Some(old), new);
    }

    fn on_delete(&self, _: &Deleted<Json>) {
        self.changed.notify_one();
    }
}

/// Errors of the last requests of an informer.
#[derive(Debug, Default)]
struct Health {
    list: watch::Sender<Option<ApiError>>,
    watch: watch::Sender<Option<ApiError>>,
}

/// Source of an informer that records the errors of its requests.
struct Recorded {
    source: Arc<dyn ListWatch<Json>>,
    health: Arc<Health>,
}

fn error_of<T>(result: &Result<T, ListWatchError>) -> Option<ApiError> {
    let error = result.as_ref().err()?.downcast_ref::<ApiError>()?;
    // The informer lists again.
    (!error.is_expired()).then(|| error.clone())
}

#[async_trait]
impl ListWatch<Json> for Recorded {
    async fn list_into(
        &self,
        options: &ListOptions,
        sink: &mut dyn ListSink<Json>,
    ) -> Result<String, ListWatchError> {
        // The state that the API server has cached can be older than the change that the caller has just made.
        let version = options.resource_version.clone().filter(|version| version != "0");
        let result = self.source.list_into(&ListOptions { resource_version: version }, sink).await;
        self.health.list.send_replace(error_of(&result));
        result
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<Json>, ListWatchError> {
        let result = self.source.watch(options).await;
        self.health.watch.send_replace(error_of(&result));
        result
    }
}

/// Objects of one resource.
struct Objects {
    resource: &'static str,
    /// Path of the list.
    path: String,
    informer: SharedInformer<Json>,
    health: Arc<Health>,
}

impl Objects {
    /// The objects, or the reason for which they could not be listed.
    fn known(&self) -> Known<Vec<Arc<Json>>> {
        let error = self.health.list.borrow().clone();
        match error.filter(|_| !self.informer.has_synced()) {
            None => Known::Read(self.informer.store().list()),
            // A resource that the API server does not serve has no objects.
            Some(error) if error.is_not_found() => Known::Read(Vec::new()),
            Some(error) => Known::Unread(unreadable("list", &self.path, &error)),
        }
    }

    /// Waits for the first list, or its failure.
    async fn settle(&self, stop: &CancellationToken) {
        let mut list = self.health.list.subscribe();
        tokio::select! {
            _ = self.informer.wait_for_sync(stop) => {}
            _ = list.wait_for(Option::is_some) => {}
        }
    }

    /// `true` if the caller may list the objects and not watch them.
    fn is_listed_only(&self) -> bool {
        let refused = |error: &ApiError| error.is_forbidden() || error.code() == Some(405);
        self.informer.has_synced() && self.health.watch.borrow().as_ref().is_some_and(refused)
    }
}

/// Objects of a namespace, or of all namespaces, until dropped.
pub(super) struct Cache {
    changed: Arc<Notify>,
    stop: CancellationToken,
    _guard: DropGuard,
    lists: Vec<(Objects, Field)>,
    nodes: Objects,
    /// The Deployments of the table, or the named workload of another kind.
    selected: Option<Objects>,
}

impl Cache {
    /// Starts the watches. An informer repeats a request that fails.
    pub(super) fn start(client: &ApiClient, namespace: Option<&str>, flags: &WhyFlags) -> Self {
        let (changed, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let start = |version, resource, namespace, params, is_relevant| {
            start(
                client,
                version,
                resource,
                namespace,
                params,
                Signal { changed: Arc::clone(&changed), is_relevant },
                &stop,
            )
        };
        let skipped = skipped(flags.workload);
        let lists = LISTS.into_iter().filter(|(_, resource, _)| !skipped.contains(resource));
        let lists = lists.map(|(version, resource, field)| {
            let name = flags.name.clone().filter(|_| resource == "events");
            let is_relevant: IsRelevant = Box::new(move |_, object| is_about(object, name.as_deref()));
            (start(version, resource, namespace, ListParams::default(), is_relevant), field)
        });
        let lists = lists.collect();
        let nodes = start("v1", "nodes", None, ListParams::default(), Box::new(changes_readiness));
        let selected = match (&flags.name, flags.workload, flags.selector.as_deref()) {
            (Some(name), Some(workload), _) => {
                Some((workload.plural(), ListParams::fields(format!("metadata.name={name}"))))
            }
            (None, _, Some(selector)) => Some(("deployments", ListParams::labels(selector))),
            _ => None,
        };
        let selected = selected
            .map(|(resource, params)| start("apps/v1", resource, namespace, params, Box::new(|_, _| true)));
        let guard = stop.clone().drop_guard();
        Self { changed, stop, _guard: guard, lists, nodes, selected }
    }

    fn all(&self) -> impl Iterator<Item = &Objects> {
        self.lists.iter().map(|(objects, _)| objects).chain([&self.nodes]).chain(&self.selected)
    }

    /// Waits until each resource was listed, or could not be.
    pub(super) async fn settle(&self) {
        for objects in self.all() {
            objects.settle(&self.stop).await;
        }
    }

    /// The Deployments of a table.
    ///
    /// # Errors
    ///
    /// If the last request for them failed.
    pub(super) fn deployments(&self) -> Result<Vec<Value>, ApiError> {
        let listed = self.lists.iter().map(|(objects, _)| objects).find(|one| one.resource == "deployments");
        let Some(objects) = self.selected.as_ref().or(listed) else { return Ok(Vec::new()) };
        let failed = [&objects.health.list, &objects.health.watch].map(|error| error.borrow().clone());
        match failed.into_iter().flatten().next().filter(|_| !objects.is_listed_only()) {
            Some(error) => Err(error),
            None => Ok(objects.informer.store().list().iter().map(|object| object.0.clone()).collect()),
        }
    }

    /// Returns the objects of the namespaces of `deployments`. Reads single objects: the Lease, the namespaces, and nodes
    /// if they may not be listed.
    pub(super) async fn snapshots(
        &self,
        reader: &Reader<'_>,
        deployments: &[Value],
    ) -> BTreeMap<String, Snapshot> {
        let mut snapshots = empty_snapshots(deployments);
        for (objects, field) in &self.lists {
            let known = objects.known();
            let list = match &known {
                Known::Read(list) => Known::Read(list.iter().map(|object| Cow::Borrowed(&object.0))),
                Known::Unread(unread) => Known::Unread(unread.clone()),
            };
            divide(&mut snapshots, *field, list);
        }
        let nodes = match self.nodes.known() {
            Known::Read(nodes) => Known::Read(nodes.iter().map(|node| node.0.clone()).collect()),
            Known::Unread(_) => read_nodes(reader, &snapshots).await,
        };
        read_single_objects(reader, &mut snapshots, nodes).await;
        snapshots
    }

    /// `true` if changes of all objects that most causes need are seen. Otherwise the cluster is polled.
    pub(super) fn is_complete(&self) -> bool {
        let is_required = |one: &&Objects| REQUIRED.contains(&one.resource);
        let listed =
            self.all().filter(is_required).chain(&self.selected).all(|one| one.informer.has_synced());
        listed && !self.all().any(Objects::is_listed_only)
    }

    /// Lists again what may not be watched.
    pub(super) async fn poll(&self, clock: &dyn Clock) {
        for objects in self.all().filter(|one| one.is_listed_only()) {
            tokio::select! {
                () = objects.informer.relist() => {}
                () = clock.sleep(RELIST) => {}
            }
        }
    }

    /// Waits for a change since the last call.
    ///
    /// # Cancel safety
    ///
    /// A change is not lost.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

fn start(
    client: &ApiClient,
    version: &'static str,
    resource: &'static str,
    namespace: Option<&str>,
    params: ListParams,
    signal: Signal,
    stop: &CancellationToken,
) -> Objects {
    let (group, plain_version) = version.split_once('/').unwrap_or(("", version));
    let api_resource = ApiResource {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(plain_version),
        // It is part of messages only.
        kind: Cow::Borrowed(resource),
        plural: Cow::Borrowed(resource),
        namespaced: resource != "nodes",
    };
    let api = client.api_for::<Json>(api_resource).namespaced(namespace.unwrap_or_default());
    let health = Arc::new(Health::default());
    let source = Recorded { source: api.list_watch(params), health: Arc::clone(&health) };
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random = Arc::new(SeededRandom::from_entropy());
    let informer = SharedInformer::new(InformerConfig {
        // The error of a list has another meaning than that of a watch.
        streaming_lists: false,
        ..InformerConfig::new(resource, Arc::new(source), clock, random)
    });
    informer.add_handler(Arc::new(signal));
    let (running, stop) = (informer.clone(), stop.clone());
    tokio::spawn(async move { running.run(stop).await });
    Objects { resource, path: path(version, namespace, resource), informer, health }
}

/// `true` for all objects, and for an event of the workload `name`, its ReplicaSets or its pods, whose names begin with
/// its name.
fn is_about(object: &Value, name: Option<&str>) -> bool {
    name.is_none_or(|name| text(object, "/involvedObject/name").starts_with(name))
}

/// `true` for a node that is new, or that becomes ready or not.
fn changes_readiness(old: Option<&Value>, new: &Value) -> bool {
    let is_ready = |node: &Value| condition(node, "Ready").is_some_and(|one| one["status"] == "True");
    old.is_none_or(|old| is_ready(old) != is_ready(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_other_objects() {
        let event = |name: &str| json!({ "involvedObject": { "name": name } });
        assert!(is_about(&event("web-7c9d-x2k8v"), Some("web")) && is_about(&event("api"), None));
        assert!(!is_about(&event("api-5f6b"), Some("web")));
    }

    #[test]
    fn readiness_of_nodes() {
        let node =
            |status: &str| json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        let (ready, lost) = (node("True"), node("Unknown"));
        assert!(changes_readiness(None, &ready) && changes_readiness(Some(&ready), &lost));
        assert!(!changes_readiness(Some(&ready), &ready));
    }
}
