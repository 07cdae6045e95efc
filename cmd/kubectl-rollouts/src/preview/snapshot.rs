//! Reads the objects around a Deployment.

use kcm_clock::Clock;
use kcm_preview::{Snapshot, Unreadable};
use serde_json::Value;

use super::{CommandError, Target};
use crate::{
    connection::Connection,
    reader::{Reader, path, read_lists},
};

/// Selector of the pods that use resources of their node.
const RUNNING: &str = "pods?fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed";

/// Resources without which there is no preview.
const REQUIRED: [&str; 2] = ["replicasets", "pods"];

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
    let mut reader = Reader::new(&connection.client);
    let deployment = reader.get(&path("apps/v1", in_namespace, &format!("deployments/{name}"))).await;
    let deployment = match deployment {
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(unreadable("deployments", &error.to_string())),
        Ok(object) => Some(object),
    };
    let lists = read_lists(&mut reader, in_namespace, &["deployments", "events"]).await.remove(namespace);
    let lists = lists.unwrap_or_default();
    if let Some(list) = reader.unreadable.iter().find(|list| REQUIRED.contains(&&*list.resource)) {
        return Err(unreadable(&list.resource, &list.reason));
    }
    let mut snapshot = Snapshot {
        taken: clock.now(),
        namespace: namespace.clone(),
        name: name.clone(),
        deployment,
        replica_sets: lists.replica_sets,
        pods: lists.pods,
        quotas: lists.quotas,
        limit_ranges: lists.limit_ranges,
        disruption_budgets: lists.disruption_budgets,
        autoscalers: lists.autoscalers,
        ..Snapshot::default()
    };
    if nodes {
        snapshot.nodes = reader.list_if_allowed(&path("v1", None, "nodes")).await;
        match reader.list(&path("v1", None, RUNNING)).await {
            Ok(pods) => snapshot.other_pods = elsewhere(pods, namespace),
            Err(error) => reader.unreadable.push(Unreadable {
                resource: "pods of other namespaces".to_owned(),
                reason: error.to_string(),
            }),
        }
    }
    snapshot.unreadable = reader.unreadable;
    Ok(snapshot)
}

fn unreadable(resource: &str, reason: &str) -> CommandError {
    CommandError::Read { resource: resource.to_owned(), reason: reason.to_owned() }
}

fn elsewhere(mut pods: Vec<Value>, namespace: &str) -> Vec<Value> {
    pods.retain(|pod| pod["metadata"]["namespace"] != *namespace);
    pods
}
