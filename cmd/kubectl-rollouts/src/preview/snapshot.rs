//! Reads the objects around a Deployment.

use std::collections::{BTreeMap, HashSet};

use kcm_clock::Clock;
use kcm_preview::{Snapshot, Unreadable, usage_of_pod};
use kcm_rollouts::{
    Known,
    json::{condition, controller},
};
use serde_json::Value;

use super::{CommandError, Target};
use crate::{
    connection::Connection,
    reader::{REVISIONS, Reader, path, read_lists},
};

/// Selector of the pods that use resources of their node.
const RUNNING: &str = "pods?fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed";

/// Selector of the events about refused requests of ReplicaSets.
const REFUSALS: &str = "events?fieldSelector=involvedObject.kind%3DReplicaSet,type%3DWarning";

/// Reads the Deployment, its namespace and, if `nodes` is `true`, the nodes and all pods.
///
/// # Errors
///
/// If the Deployment, the ReplicaSets or the pods cannot be read. Other failures are recorded in the snapshot.
pub(super) async fn read(
    connection: &Connection,
    target: &Target,
    nodes: bool,
    clock: &dyn Clock,
) -> Result<Snapshot, CommandError> {
    let Target { namespace, name } = target;
    let in_namespace = Some(&**namespace);
    let reader = Reader::new(&connection.client);
    let deployment = reader.get(&path("apps/v1", in_namespace, &format!("deployments/{name}"))).await;
    let deployment = match deployment {
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(unreadable("deployments", &error.to_string())),
        Ok(object) => Some(object),
    };
    let path_of_namespace = path("v1", None, &format!("namespaces/{namespace}"));
    // A user may read the Deployment and not its namespace.
    let namespace_object = match reader.get(&path_of_namespace).await {
        Err(error) if error.is_not_found() && deployment.is_none() => {
            return Err(CommandError::NamespaceNotFound(namespace.clone()));
        }
        Err(_) => None,
        Ok(object) => Some(object),
    };
    let mut snapshots = BTreeMap::from([(namespace.clone(), kcm_rollouts::Snapshot::default())]);
    read_lists(&reader, in_namespace, &mut snapshots, &["deployments", REVISIONS, "events", "pods"]).await;
    let lists = snapshots.remove(namespace).unwrap_or_default();
    let replica_sets = required(lists.replica_sets)?;
    let uid = deployment.as_ref().and_then(|deployment| deployment["metadata"]["uid"].as_str());
    // The preview does not adopt all of those without a controller.
    let own = replica_sets.iter().filter(|set| controller(set).is_none_or(|owner| Some(owner) == uid));
    let own: HashSet<&str> = own.filter_map(|set| set["metadata"]["uid"].as_str()).collect();
    let reduce = |pod: Value| match controller(&pod) {
        Some(owner) if own.contains(owner) => pod,
        _ => usage_of_pod(&pod),
    };
    let pods = reader.list_reduced_if_allowed(&path("v1", in_namespace, "pods"), reduce).await;
    let pods = required(pods)?;
    let is_refused = |set: &Value| condition(set, "ReplicaFailure").is_some();
    let events = if replica_sets.iter().any(is_refused) {
        reader.list_if_allowed(&path("v1", in_namespace, REFUSALS)).await
    } else {
        Known::Read(Vec::new())
    };
    let mut missing = Vec::new();
    let mut read = |list: Known<Vec<Value>>| match list {
        Known::Read(objects) => objects,
        Known::Unread(unread) => {
            missing.push(unread);
            Vec::new()
        }
    };
    let mut snapshot = Snapshot {
        taken: reader.server_time.now(clock),
        namespace: namespace.clone(),
        name: name.clone(),
        is_terminating: namespace_object.is_some_and(|object| object["status"]["phase"] == "Terminating"),
        deployment,
        pods,
        events: read(events),
        quotas: read(lists.quotas),
        limit_ranges: read(lists.limit_ranges),
        disruption_budgets: read(lists.disruption_budgets),
        autoscalers: read(lists.autoscalers),
        replica_sets,
        ..Snapshot::default()
    };
    if nodes {
        snapshot.nodes = read(reader.list_if_allowed(&path("v1", None, "nodes")).await);
        match reader.list_reduced_if_allowed(&path("v1", None, RUNNING), |pod| usage_of_pod(&pod)).await {
            Known::Read(pods) => snapshot.other_pods = elsewhere(pods, namespace),
            Known::Unread(unread) => {
                missing.push(Unreadable { resource: "pods of other namespaces".to_owned(), ..unread });
            }
        }
    }
    snapshot.unreadable = missing;
    Ok(snapshot)
}

/// Objects of a list without which there is no preview.
fn required(list: Known<Vec<Value>>) -> Result<Vec<Value>, CommandError> {
    match list {
        Known::Read(objects) => Ok(objects),
        Known::Unread(list) => Err(unreadable(&list.resource, &list.reason)),
    }
}

fn unreadable(resource: &str, reason: &str) -> CommandError {
    CommandError::Read { resource: resource.to_owned(), reason: reason.to_owned() }
}

fn elsewhere(mut pods: Vec<Value>, namespace: &str) -> Vec<Value> {
    pods.retain(|pod| pod["metadata"]["namespace"] != *namespace);
    pods
}
