//! Writes that the controllers should have made.
//!
//! That a controller does not run is concluded only from a Lease that is not renewed, and only without evidence against
//! it: a refusal, an error in the queue, or a recent event of the controller.

use std::sync::Arc;

use jiff::SignedDuration;
use kcm_api::ReplicaSet;
use kcm_clock::Timestamp;
use kcm_deployment_util::rollout::is_complete;
use serde_json::Value;

use crate::{
    cause::Cause,
    controller::ControllerState,
    duration::short,
    finding::{Effect, Finding},
    json::{list, number, text, time},
    known::Known,
    refusal,
    rollout::Rollout,
    snapshot::Snapshot,
};

/// Time after which a write is overdue.
pub(crate) const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// Time for which a Lease may be older than its duration.
const LEASE_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);
/// Duration of a Lease without the field, as upstream's default.
const LEASE_SECONDS: i64 = 15;

/// Leader election of kube-controller-manager.
pub(crate) enum Leader {
    /// The Lease is renewed.
    Current(String),
    /// The Lease is not renewed.
    Gone(String),
    /// The Lease does not exist or could not be read.
    Unknown(String),
}

/// Write that a controller has not made.
struct Overdue {
    /// Cause if no manager leads.
    cause: Cause,
    /// `true` if the write is that of a status which differs from the objects.
    is_outdated: bool,
    text: String,
}

/// Finds overdue writes and a status that differs from its objects. `findings` contains the causes that were found before.
pub(crate) fn explain(rollout: &Rollout<'_>, findings: &[Finding]) -> Vec<Finding> {
    let is_explained = |finding: &Finding| {
        finding.effect != Effect::Note
            && matches!(
                finding.cause,
                Cause::DeploymentDeleted
                    | Cause::ReplicaSetDeleted
                    | Cause::NamespaceTerminating
                    | Cause::EmptySelector
                    | Cause::ReplicaSetCreateFailed
                    | Cause::DeleteRefused
            )
    };
    if findings.iter().any(is_explained) {
        return Vec::new();
    }
    let Some(overdue) = overdue(rollout).or_else(|| outdated(rollout)) else {
        return Vec::new();
    };
    if let Some((state, error)) = failed_sync(rollout.snapshot) {
        return vec![failed_write(rollout.snapshot, state, error, &overdue)];
    }
    let Overdue { cause, is_outdated, text } = overdue;
    let (lease, is_gone, hint) = match leader(rollout.snapshot, rollout.now) {
        Leader::Gone(lease) => (lease, !is_active(rollout), REFUSED),
        Leader::Current(lease) => (lease, false, REFUSED),
        Leader::Unknown(lease) => (lease, false, "It is unknown if a controller manager runs."),
    };
    if is_gone {
        let gone = Finding::blocks(cause, format!("{text} {lease}"));
        let outdated = is_outdated.then(|| Finding::note(Cause::StatusOutdated, text));
        return [gone].into_iter().chain(outdated).collect();
    }
    vec![match (is_outdated, rollout.idle() > PATIENCE) {
        (true, false) => Finding::delays(Cause::StatusOutdated, text, None),
        (true, true) => Finding::blocks(Cause::StatusOutdated, format!("{text} {lease} {hint}")),
        (false, _) => Finding::blocks(Cause::Unknown, format!("{text} {lease} {hint}")),
    }]
}

/// Hint if a manager leads.
const REFUSED: &str =
    "The cause is unknown; if the API server refuses the write, the log of the manager contains it.";

/// Write of a controller that has been due for more than [`PATIENCE`], and the cause if the controller does not run.
fn overdue(rollout: &Rollout<'_>) -> Option<Overdue> {
    let deployment = &rollout.deployment;
    if !rollout.is_observed() {
        let changed = rollout.last_change_of_spec()?;
        let waits = rollout.now.duration_since(changed);
        let (observed, generation) = (deployment.status.observed_generation, deployment.metadata.generation);
        let message = format!(
            "The controller has observed generation {observed} of {generation}; the last change was {} ago.",
            short(waits)
        );
        let mut differences = rollout.differences();
        // The controller creates the ReplicaSet before it updates the status.
        let conditions = list(rollout.object, "/status/conditions").iter();
        let reported = conditions.filter_map(|condition| time(condition, "/lastUpdateTime")).max();
        let created = rollout.new_set().filter(|set| time(set, "/metadata/creationTimestamp") > reported);
        if let Some(set) = created {
            differences.push(format!("ReplicaSet {} is newer than the status.", text(set, "/metadata/name")));
        }
        let is_outdated = !differences.is_empty();
        let text = [vec![message], differences].concat().join(" ");
        return (waits > PATIENCE).then_some(Overdue {
            cause: Cause::ControllerNotRunning,
            is_outdated,
            text,
        });
    }
    let idle = rollout.idle();
    if idle <= PATIENCE {
        return None;
    }
    let since = format!("nothing has changed for {}.", short(idle));
    if rollout.writes_replica_sets() {
        let text = format!("The Deployment controller has writes to make; {since}");
        return Some(Overdue { cause: Cause::ControllerNotRunning, is_outdated: false, text });
    }
    let is_behind = |set: &&Arc<ReplicaSet>| {
        set.status.observed_generation < set.metadata.generation || set.status.replicas != set.replicas()
    };
    // The deletion of a pod leaves no time.
    let set = rollout.replica_sets_pending().find(|set| is_behind(set) || !rollout.misses_pods(set))?;
    let difference = rollout.difference(set);
    let is_outdated = difference.is_some();
    let text = match difference {
        Some(difference) => format!("{difference} The status is not updated; {since}"),
        None => format!(
            "ReplicaSet {} has {} replicas and reports {}; {since}",
            set.metadata.name,
            set.replicas(),
            set.status.replicas,
        ),
    };
    Some(Overdue { cause: Cause::ReplicaSetControllerNotRunning, is_outdated, text })
}

/// Status that differs from the objects, if it is that of a complete rollout or has not changed for long.
fn outdated(rollout: &Rollout<'_>) -> Option<Overdue> {
    let is_complete = is_complete(&rollout.deployment, &rollout.deployment.status);
    if !rollout.is_observed() || !(is_complete || rollout.idle() > PATIENCE) {
        return None;
    }
    let differences = rollout.differences();
    if differences.is_empty() {
        return None;
    }
    let text =
        format!("{} The last recorded change was {} ago.", differences.join(" "), short(rollout.idle()));
    Some(Overdue { cause: Cause::ReplicaSetControllerNotRunning, is_outdated: true, text })
}

/// State of the first controller with a failed sync, and the error.
pub(crate) fn failed_sync(snapshot: &Snapshot) -> Option<(&ControllerState, &str)> {
    snapshot.controllers.iter().find_map(|state| Some((state, state.last_error.as_deref()?)))
}

/// Explains the write `overdue`, which failed in the last sync of a controller.
fn failed_write(snapshot: &Snapshot, state: &ControllerState, error: &str, overdue: &Overdue) -> Finding {
    let is_deployment = state.kind == "deployment";
    // The error of the Deployment controller names the object that it could not write.
    if is_deployment && error.contains("replica set") {
        let text = format!("The last sync of the Deployment failed: {error}");
        return Finding::blocks(Cause::ReplicaSetUpdateFailed, text);
    }
    if !is_deployment && !overdue.is_outdated {
        return refusal::classify(snapshot, error);
    }
    let kind = if is_deployment { "Deployment" } else { "ReplicaSet" };
    let text = format!("{} The last sync of {kind} {} failed: {error}", overdue.text, state.name);
    Finding::blocks(Cause::StatusOutdated, text)
}

/// `true` if a controller has recently reported an event about the Deployment or one of its ReplicaSets.
fn is_active(rollout: &Rollout<'_>) -> bool {
    let components = ["deployment-controller", "replicaset-controller"];
    let objects = rollout.set_objects.iter().copied().chain([rollout.object]);
    let mut events = objects.flat_map(|object: &Value| rollout.index.events.of(object));
    events.any(|event| {
        let is_recent = event.at.is_some_and(|at| rollout.now.duration_since(at) <= PATIENCE);
        is_recent && components.contains(&event.component)
    })
}

/// Reads the Lease of kube-controller-manager.
pub(crate) fn leader(snapshot: &Snapshot, now: Timestamp) -> Leader {
    let lease = match &snapshot.lease {
        Known::Unread(_) => {
            return Leader::Unknown("The Lease of kube-controller-manager could not be read.".to_owned());
        }
        Known::Read(None) => {
            return Leader::Unknown("The Lease of kube-controller-manager does not exist.".to_owned());
        }
        Known::Read(Some(lease)) => lease,
    };
    let Some(renewed) = time(lease, "/spec/renewTime") else {
        return Leader::Unknown("The Lease of kube-controller-manager was never renewed.".to_owned());
    };
    let age = now.duration_since(renewed);
    let duration = number(lease, "/spec/leaseDurationSeconds").unwrap_or(LEASE_SECONDS);
    let holder = text(lease, "/spec/holderIdentity");
    if age <= SignedDuration::from_secs(duration).saturating_add(LEASE_TOLERANCE) {
        return Leader::Current(format!("Leader {holder} renewed its Lease {} ago.", short(age)));
    }
    Leader::Gone(match holder {
        "" => format!("No kube-controller-manager has led for {}.", short(age)),
        holder => format!("Leader {holder} has not renewed its Lease for {}.", short(age)),
    })
}
