//! Reads objects of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_rollouts::{Snapshot, Unreadable};
use serde_json::Value;

/// Reads objects as JSON, and records the resources that cannot be read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    client: &'a ApiClient,
    pub(crate) unreadable: Vec<Unreadable>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(client: &'a ApiClient) -> Self {
        Self { client, unreadable: Vec::new() }
    }

    /// Reads one object.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        let body = self.client.send(&Request::get(path)).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Decode(format!("failed to decode the response of {path}: {error}")))
    }

    /// Lists the objects of `path`.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        let mut list = self.get(path).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Lists the objects of `path`. If that fails, records it and returns an empty list. A resource that the API server does
    /// not serve has no objects.
    pub(crate) async fn list_if_allowed(&mut self, path: &str) -> Vec<Value> {
        match self.list(path).await {
            Ok(items) => items,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => {
                self.record(path, &error);
                Vec::new()
            }
        }
    }

    /// Reads an object. Returns `None` if it does not exist, or cannot be read, which is recorded.
    pub(crate) async fn get_if_allowed(&mut self, path: &str) -> Option<Value> {
        match self.get(path).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                let list = path.rsplit_once('/').map_or(path, |(list, _)| list);
                self.record(list, &error);
                None
            }
        }
    }

    fn record(&mut self, path: &str, error: &ApiError) {
        let path = path.split('?').next().unwrap_or_default();
        let resource = path.rsplit('/').next().unwrap_or_default().to_owned();
        if self.unreadable.iter().all(|known| known.resource != resource) {
            self.unreadable.push(Unreadable { resource, reason: error.to_string() });
        }
    }
}

/// Number of nodes up to which they are read one by one.
const SINGLE_NODES: usize = 20;
/// Lease of the leader election of kube-controller-manager.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

/// List of a [`Snapshot`].
type Field = fn(&mut Snapshot) -> &mut Vec<Value>;

/// Lists of a [`Snapshot`]: version, resource and field.
const LISTS: [(&str, &str, Field); 8] = [
    ("apps/v1", "deployments", |snapshot| &mut snapshot.deployments),
    ("apps/v1", "replicasets", |snapshot| &mut snapshot.replica_sets),
    ("v1", "pods", |snapshot| &mut snapshot.pods),
    ("v1", "events", |snapshot| &mut snapshot.events),
    ("v1", "resourcequotas", |snapshot| &mut snapshot.quotas),
    ("v1", "limitranges", |snapshot| &mut snapshot.limit_ranges),
    ("policy/v1", "poddisruptionbudgets", |snapshot| &mut snapshot.disruption_budgets),
    ("autoscaling/v2", "horizontalpodautoscalers", |snapshot| &mut snapshot.autoscalers),
];

/// Reads the lists of a namespace, or of all namespaces, except those of `skipped` resources. Records what cannot be read.
pub(crate) async fn read_lists(
    reader: &mut Reader<'_>,
    namespace: Option<&str>,
    skipped: &[&str],
) -> BTreeMap<String, Snapshot> {
    let mut snapshots: BTreeMap<String, Snapshot> = BTreeMap::new();
    for (version, resource, field) in LISTS.into_iter().filter(|(_, resource, _)| !skipped.contains(resource))
    {
        for object in reader.list_if_allowed(&path(version, namespace, resource)).await {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            field(snapshots.entry(namespace).or_default()).push(object);
        }
    }
    snapshots
}

/// Reads the objects of a namespace, or of all namespaces, by namespace. Records what cannot be read.
pub(crate) async fn read_snapshots(
    reader: &mut Reader<'_>,
    namespace: Option<&str>,
) -> BTreeMap<String, Snapshot> {
    let mut snapshots = read_lists(reader, namespace, &[]).await;
    let pods = snapshots.values().flat_map(|snapshot| &snapshot.pods);
    let names: BTreeSet<String> =
        pods.filter_map(|pod| pod["spec"]["nodeName"].as_str()).map(str::to_owned).collect();
    let nodes = if names.len() > SINGLE_NODES {
        reader.list_if_allowed("/api/v1/nodes").await
    } else {
        let mut nodes = Vec::new();
        for name in names {
            nodes.extend(reader.get_if_allowed(&format!("/api/v1/nodes/{name}")).await);
        }
        nodes
    };
    let lease = reader.get_if_allowed(LEASE).await;
    for snapshot in snapshots.values_mut() {
        snapshot.nodes.clone_from(&nodes);
        snapshot.lease.clone_from(&lease);
        snapshot.unreadable.clone_from(&reader.unreadable);
    }
    snapshots
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
