//! Decisions: a pure function from the cached objects to operations.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use kube_core::{ObjectMeta, Resource};

use crate::pool::{PodPool, PodPoolStatus};

/// Finalizer of pools that may have a reservation.
pub const FINALIZER: &str = "example.org/reservation";

/// Time after which a reservation is renewed.
pub const RENEWAL: Duration = Duration::from_secs(600);

/// State from which the plan is computed, besides the time.
#[derive(Debug)]
pub struct View<'a> {
    /// Pool.
    pub pool: &'a PodPool,
    /// Pods that the pool owns, those that are being deleted included.
    pub pods: &'a [Arc<Pod>],
    /// Names of the nodes that take no new pods.
    pub cordoned: &'a HashSet<String>,
    /// Last reservation that this process has made for the pool.
    pub reservation: Option<Reservation>,
    /// `false` if `pods` may lack creations and deletions of this operator.
    pub is_current: bool,
}

/// Reservation of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Number of seats.
    pub seats: u32,
    /// Time at which it was made or renewed.
    pub at: Timestamp,
}

/// Operations, in the order in which they are performed, up to the first that fails.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Operations.
    pub operations: Vec<Operation>,
    /// Time of the next plan if nothing changes before.
    pub again: Option<Duration>,
}

/// Operation of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Writes the status.
    WriteStatus(PodPoolStatus),
    /// Adds the finalizer. Nothing is reserved before.
    AddFinalizer,
    /// Reserves seats, or renews the reservation.
    Reserve(u32),
    /// Creates this number of [pods](pod).
    CreatePods(usize),
    /// Deletes pods.
    DeletePods(Vec<Arc<Pod>>),
    /// Ends the reservation.
    Release,
    /// Removes the finalizer.
    RemoveFinalizer,
}

/// Returns the operations that lead to the specified state.
pub fn plan(view: &View<'_>, now: Timestamp) -> Plan {
    let meta = &view.pool.metadata;
    let has_finalizer = meta.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    match (meta.deletion_timestamp.is_some(), has_finalizer) {
        (true, true) => delete(view),
        (true, false) => Plan::default(),
        (false, true) => maintain(view, now),
        (false, false) => Plan { operations: vec![Operation::AddFinalizer], again: None },
    }
}

/// A pool that is being deleted: its pods first, then the reservation, then the finalizer.
fn delete(view: &View<'_>) -> Plan {
    let operations = if !view.is_current {
        vec![]
    } else if view.pods.is_empty() {
        vec![Operation::Release, Operation::RemoveFinalizer]
    } else {
        let pods = view.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        delete_pods(pods.cloned().collect())
    };
    Plan { operations, again: None }
}

fn maintain(view: &View<'_>, now: Timestamp) -> Plan {
    let View { pool, cordoned, reservation, is_current, .. } = *view;
    let present = view.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let (finished, mut active): (Vec<_>, Vec<_>) = present.cloned().partition(|pod| is_finished(pod));
    sort_for_deletion(&mut active, cordoned);
    let (replicas, count) = (pool.spec.replicas as usize, active.len());
    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    let on_cordoned: Vec<_> = active.iter().filter(|pod| cordoned.contains(node(pod))).cloned().collect();

    let mut operations = Vec::new();
    let status = PodPoolStatus {
        observed_generation: pool.metadata.generation,
        replicas: number(count),
        ready_replicas: number(ready),
        cordoned_replicas: number(on_cordoned.len()),
    };
    if pool.status.as_ref() != Some(&status) {
        operations.push(Operation::WriteStatus(status));
    }

    // Seats are reserved before their pods are created, and given back after their pods are deleted.
    let held = reservation.map_or(0, |reservation| reservation.seats);
    let seats = if count > replicas { held.max(pool.spec.replicas) } else { pool.spec.replicas };
    let age = reservation.map(|reservation| now.duration_since(reservation.at).unsigned_abs());
    let again = match age {
        Some(age) if held == seats && age < RENEWAL => RENEWAL - age,
        _ => {
            operations.push(Operation::Reserve(seats));
            RENEWAL
        }
    };

    if is_current {
        operations.extend(delete_pods(finished));
        if count < replicas {
            operations.push(Operation::CreatePods(replicas - count));
        } else if count > replicas {
            active.truncate(count - replicas);
            operations.extend(delete_pods(active));
        } else {
            operations.extend(delete_pods(moved(on_cordoned, replicas - ready, pool.spec.max_unavailable)));
        }
    }
    Plan { operations, again: Some(again) }
}

/// Returns the pods that are moved off cordoned nodes now. They are deleted, and replaced in a later plan.
fn moved(on_cordoned: Vec<Arc<Pod>>, unavailable: usize, max_unavailable: u32) -> Vec<Arc<Pod>> {
    let (mut ready, mut pods): (Vec<_>, Vec<_>) = on_cordoned.into_iter().partition(|pod| is_ready(pod));
    ready.truncate((max_unavailable as usize).saturating_sub(unavailable));
    pods.append(&mut ready);
    pods
}

/// Returns an operation unless there are no pods.
fn delete_pods(pods: Vec<Arc<Pod>>) -> Vec<Operation> {
    if pods.is_empty() { vec![] } else { vec![Operation::DeletePods(pods)] }
}

/// Sorts pods so that the first ones are deleted first: those on cordoned nodes, those that are not ready, those on nodes with
/// more pods of the pool, the newest.
fn sort_for_deletion(pods: &mut [Arc<Pod>], cordoned: &HashSet<String>) {
    let mut crowd: HashMap<String, usize> = HashMap::new();
    for pod in &*pods {
        *crowd.entry(node(pod).to_owned()).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let crowded = crowd.get(node(pod)).copied();
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let name = pod.metadata.name.clone();
        (!cordoned.contains(node(pod)), is_ready(pod), Reverse(crowded), Reverse(created), name)
    });
}

/// Returns a pod of the pool, without a name.
pub fn pod(pool: &PodPool) -> Pod {
    let template = &pool.spec.template;
    let meta = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: pool.metadata.name.as_ref().map(|name| format!("{name}-")),
        namespace: pool.metadata.namespace.clone(),
        owner_references: pool.controller_owner_ref(&()).map(|owner| vec![owner]),
        labels: meta.labels,
        annotations: meta.annotations,
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// Returns the name of the pod's node. Empty if it has none.
pub fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// `true` if the pool manages the pod, or adopts it if the pod has no controller.
pub fn selects(pool: &PodPool, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let has = |(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value);
    pool.metadata.namespace == pod.metadata.namespace && pool.spec.selector.iter().all(has)
}

/// `true` if the node takes no new pods.
pub fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
