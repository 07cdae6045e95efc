//! Reads the objects around a Deployment.

use kcm_api::ApiError;
use kcm_clock::Clock;
use kcm_preview::{Snapshot, Unreadable};
use serde_json::Value;

use super::{CommandError, Target};
use crate::{
    connection::Connection,
    reader::{Reader, path},
};

/// Selector of the pods that use resources of their node.
const RUNNING: &str = "pods?fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed";

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
        other => Some(other.map_err(failed("deployments"))?),
    };
    let replica_sets = reader.list(&path("apps/v1", in_namespace, "replicasets")).await;
    let pods = reader.list(&path("v1", in_namespace, "pods")).await;
    let mut snapshot = Snapshot {
        taken: clock.now(),
        namespace: namespace.clone(),
        name: name.clone(),
        deployment,
        replica_sets: replica_sets.map_err(failed("replicasets"))?,
        pods: pods.map_err(failed("pods"))?,
        quotas: reader.list_if_allowed(&path("v1", in_namespace, "resourcequotas")).await,
        limit_ranges: reader.list_if_allowed(&path("v1", in_namespace, "limitranges")).await,
        disruption_budgets: reader
            .list_if_allowed(&path("policy/v1", in_namespace, "poddisruptionbudgets"))
            .await,
        autoscalers: reader
            .list_if_allowed(&path("autoscaling/v2", in_namespace, "horizontalpodautoscalers"))
            .await,
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

fn failed(resource: &'static str) -> impl Fn(ApiError) -> CommandError {
    move |source| CommandError::Read { resource, source }
}

fn elsewhere(mut pods: Vec<Value>, namespace: &str) -> Vec<Value> {
    pods.retain(|pod| pod["metadata"]["namespace"] != *namespace);
    pods
}
