//! Reads objects of the cluster.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kcm_api::{ApiError, ErrorCause};
use kcm_client::{ApiClient, Request};
use kcm_rollouts::{Known, Snapshot, Unreadable, Workload};
use serde_json::Value;

use crate::server_time::ServerTime;

/// Number of objects of a page, as that of `kubectl`.
const PAGE: usize = 500;

/// Reads objects as JSON.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    client: &'a ApiClient,
    pub(crate) server_time: ServerTime,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(client: &'a ApiClient) -> Self {
        Self { client, server_time: ServerTime::default() }
    }

    /// Reads one object.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        let (headers, body) = self.client.send_with_headers(&Request::get(path)).await?;
        self.server_time.record(&headers);
        serde_json::from_slice(&body).map_err(|error| {
            let text = format!("failed to decode the response of {path}: {error}");
            ApiError::Decode(ErrorCause::new(text, error))
        })
    }

    /// Lists the objects of `path`.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        self.list_reduced(path, |object| object).await
    }

    /// Lists the objects of `path` in pages, and applies `reduce` to each object, so that a long list fits into memory.
    async fn list_reduced(
        &self,
        path: &str,
        reduce: impl Fn(Value) -> Value,
    ) -> Result<Vec<Value>, ApiError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut objects = Vec::new();
        let mut query = format!("limit={PAGE}");
        loop {
            let mut list = match self.get(&format!("{path}{separator}{query}")).await {
                // The continue token has expired. The rest of the list would have another resource version.
                Err(error) if error.is_expired() && !objects.is_empty() => {
                    objects.clear();
                    self.get(path).await?
                }
                list => list?,
            };
            if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
                objects.extend(items.into_iter().map(&reduce));
            }
            match list["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => query = format!("limit={PAGE}&continue={}", escape(next)),
                _ => return Ok(objects),
            }
        }
    }

    /// Lists the objects of `path`, if that is permitted. A resource that the API server does not serve has no objects.
    pub(crate) async fn list_if_allowed(&self, path: &str) -> Known<Vec<Value>> {
        self.list_reduced_if_allowed(path, |object| object).await
    }

    /// Same as [`list_if_allowed`](Self::list_if_allowed). Applies `reduce` to each object of a page.
    pub(crate) async fn list_reduced_if_allowed(
        &self,
        path: &str,
        reduce: impl Fn(Value) -> Value,
    ) -> Known<Vec<Value>> {
        match self.list_reduced(path, reduce).await {
            Ok(items) => Known::Read(items),
            Err(error) if error.is_not_found() => Known::Read(Vec::new()),
            Err(error) => Known::Unread(unreadable("list", path, &error)),
        }
    }

    /// Reads an object, if that is permitted. Returns `None` if it does not exist.
    pub(crate) async fn get_if_allowed(&self, path: &str) -> Known<Option<Value>> {
        match self.get(path).await {
            Ok(object) => Known::Read(Some(object)),
            Err(error) if error.is_not_found() => Known::Read(None),
            Err(error) => {
                let list = path.rsplit_once('/').map_or(path, |(list, _)| list);
                Known::Unread(unreadable("get", list, &error))
            }
        }
    }
}

/// Resource of `path` that could not be read.
pub(crate) fn unreadable(verb: &str, path: &str, error: &ApiError) -> Unreadable {
    let path = path.split('?').next().unwrap_or_default();
    let resource = path.rsplit('/').next().unwrap_or_default();
    let namespace = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
    let scope = namespace.map(|(namespace, _)| format!(" in namespace {namespace}")).unwrap_or_default();
    Unreadable {
        resource: resource.to_owned(),
        reason: error.to_string(),
        permission: error.is_forbidden().then(|| format!("{verb} {resource}{scope}")),
    }
}

/// Number of nodes up to which they are read one by one.
const SINGLE_NODES: usize = 20;
/// Lease of the leader election of kube-controller-manager.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

/// List of a [`Snapshot`].
pub(crate) type Field = fn(&mut Snapshot) -> &mut Known<Vec<Value>>;

/// Lists of a [`Snapshot`]: version, resource and field.
pub(crate) const LISTS: [(&str, &str, Field); 9] = [
    ("apps/v1", "deployments", |snapshot| &mut snapshot.deployments),
    ("apps/v1", "replicasets", |snapshot| &mut snapshot.replica_sets),
    ("apps/v1", REVISIONS, |snapshot| &mut snapshot.controller_revisions),
    ("v1", "pods", |snapshot| &mut snapshot.pods),
    ("v1", "events", |snapshot| &mut snapshot.events),
    ("v1", "resourcequotas", |snapshot| &mut snapshot.quotas),
    ("v1", "limitranges", |snapshot| &mut snapshot.limit_ranges),
    ("policy/v1", "poddisruptionbudgets", |snapshot| &mut snapshot.disruption_budgets),
    ("autoscaling/v2", "horizontalpodautoscalers", |snapshot| &mut snapshot.autoscalers),
];

/// ControllerRevisions are the revisions of StatefulSets and DaemonSets.
pub(crate) const REVISIONS: &str = "controllerrevisions";

/// Lists that the diagnosis of a workload does not need. `None` is a Deployment.
pub(crate) fn skipped(workload: Option<Workload>) -> &'static [&'static str] {
    match workload {
        None => &[REVISIONS],
        Some(_) => &["deployments", "replicasets", "poddisruptionbudgets", "horizontalpodautoscalers"],
    }
}

/// Snapshots of namespaces in which nothing was read.
pub(crate) fn empty_snapshots(deployments: &[Value]) -> BTreeMap<String, Snapshot> {
    let names = deployments.iter().filter_map(|deployment| deployment["metadata"]["namespace"].as_str());
    names.map(|namespace| (namespace.to_owned(), Snapshot::default())).collect()
}

/// Divides a list between the snapshots of its namespaces. Objects of other namespaces are left out.
pub(crate) fn divide<'a>(
    snapshots: &mut BTreeMap<String, Snapshot>,
    field: Field,
    list: Known<impl IntoIterator<Item = Cow<'a, Value>>>,
) {
    let (objects, empty) = match list {
        Known::Read(objects) => (Some(objects), Known::Read(Vec::new())),
        Known::Unread(unread) => (None, Known::Unread(unread)),
    };
    for snapshot in snapshots.values_mut() {
        field(snapshot).clone_from(&empty);
    }
    for object in objects.into_iter().flatten() {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        if let Some(snapshot) = snapshots.get_mut(namespace)
            && let Known::Read(list) = field(snapshot)
        {
            list.push(object.into_owned());
        }
    }
}

/// Reads the lists of a namespace, or of all namespaces, except those of `skipped` resources, into `snapshots`.
pub(crate) async fn read_lists(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    snapshots: &mut BTreeMap<String, Snapshot>,
    skipped: &[&str],
) {
    for (version, resource, field) in LISTS.into_iter().filter(|(_, resource, _)| !skipped.contains(resource))
    {
        let list = reader.list_if_allowed(&path(version, namespace, resource)).await;
        divide(snapshots, field, list.map(|objects| objects.into_iter().map(Cow::Owned)));
    }
}

/// Reads the objects of the namespaces of `deployments`, for the diagnosis of `workload`. `namespace` is the only one, if
/// any.
pub(crate) async fn read_snapshots(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    deployments: &[Value],
    workload: Option<Workload>,
) -> BTreeMap<String, Snapshot> {
    let mut snapshots = empty_snapshots(deployments);
    read_lists(reader, namespace, &mut snapshots, skipped(workload)).await;
    let nodes = read_nodes(reader, &snapshots).await;
    read_single_objects(reader, &mut snapshots, nodes).await;
    snapshots
}

/// Reads the namespaces and the Lease, and adds the nodes.
pub(crate) async fn read_single_objects(
    reader: &Reader<'_>,
    snapshots: &mut BTreeMap<String, Snapshot>,
    nodes: Known<Vec<Value>>,
) {
    let nodes: Known<Arc<[Value]>> = nodes.map(Arc::from);
    let lease = reader.get_if_allowed(LEASE).await;
    for (name, snapshot) in snapshots {
        snapshot.namespace = reader.get_if_allowed(&format!("/api/v1/namespaces/{name}")).await;
        snapshot.nodes.clone_from(&nodes);
        snapshot.lease.clone_from(&lease);
    }
}

/// Reads the nodes of the pods.
pub(crate) async fn read_nodes(
    reader: &Reader<'_>,
    snapshots: &BTreeMap<String, Snapshot>,
) -> Known<Vec<Value>> {
    let pods = snapshots.values().flat_map(|snapshot| snapshot.pods.seen());
    let names: BTreeSet<String> =
        pods.filter_map(|pod| pod["spec"]["nodeName"].as_str()).map(str::to_owned).collect();
    if names.len() > SINGLE_NODES {
        return reader.list_if_allowed("/api/v1/nodes").await;
    }
    let mut nodes = Vec::new();
    for name in names {
        match reader.get_if_allowed(&format!("/api/v1/nodes/{name}")).await {
            Known::Read(node) => nodes.extend(node),
            Known::Unread(unread) => return Known::Unread(unread),
        }
    }
    Known::Read(nodes)
}

/// Path of a resource in a namespace, or in all namespaces.
pub(crate) fn path(version: &str, namespace: Option<&str>, resource: &str) -> String {
    let root = if version.contains('/') { "apis" } else { "api" };
    match namespace {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{resource}"),
        None => format!("/{root}/{version}/{resource}"),
    }
}

/// Escapes a value of a query.
pub(crate) fn escape(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
