//! Causes from the objects in the caches of a controller manager.

use std::sync::Arc;

use kcm_api::{Deployment, Phase, Pod, Waiting, condition_status::TRUE, condition_type::REPLICA_FAILURE};
use kcm_deployment_util::{conditions::reason, replica_sets::ReplicaSetSplit};

use crate::{cause::Cause, refusal, snapshot::Snapshot};

/// Finds the cause of a stuck rollout in the objects that a controller manager caches, without events, quotas and nodes.
///
/// `pods` are pods of the ReplicaSets in `sets`. They need not be all pods. A cause that cannot be distinguished is
/// reported as a coarser one, see [`Cause::in_caches`].
pub fn cached_cause<'a>(
    deployment: &Deployment,
    sets: &ReplicaSetSplit,
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
) -> Cause {
    if deployment.metadata.deletion_timestamp.is_some() {
        return Cause::DeploymentDeleted;
    }
    if deployment.spec.paused {
        return Cause::Paused;
    }
    let progressing = deployment.condition("Progressing");
    if progressing.is_some_and(|one| one.reason == reason::FAILED_REPLICA_SET_CREATE) {
        return Cause::ReplicaSetCreateFailed;
    }
    if let Some(refused) = deployment.condition(REPLICA_FAILURE).filter(|one| one.status == TRUE) {
        return refusal::classify(&Snapshot::default(), &refused.message).cause;
    }
    let new = sets.new.as_ref().map(|set| &*set.metadata.uid);
    pods.into_iter().filter_map(|pod| held(pod, new)).min().unwrap_or(Cause::Unknown)
}

/// Cause for which a pod holds the rollout. `None` if it does not.
fn held(pod: &Pod, new: Option<&str>) -> Option<Cause> {
    let is_new = pod.controller.as_ref().is_some_and(|owner| Some(&*owner.uid) == new);
    if !is_new {
        return pod.is_terminating().then_some(Cause::TerminatingGracePeriod);
    }
    if pod.deletion_timestamp.is_some() {
        return None;
    }
    Some(match (pod.phase, pod.waiting) {
        (Phase::Failed | Phase::Succeeded, _) => Cause::PodFailed,
        _ if pod.node_name.is_none() => Cause::Unschedulable,
        (_, Waiting::ImagePull) => Cause::ImagePull,
        (_, Waiting::ContainerConfig) => Cause::ContainerConfig,
        (_, Waiting::InitCrashLoop) => Cause::InitContainer,
        (_, Waiting::CrashLoop) => Cause::CrashLoop,
        // A pod that is ready is not available for minReadySeconds.
        _ if pod.ready.is_ready => return None,
        _ if pod.max_restarts > 0 => Cause::CrashLoop,
        (Phase::Running, Waiting::NoFailure) => Cause::ProbeFailing,
        _ => Cause::PodStarting,
    })
}
