//! Causes in pods.

mod containers;
mod node;

use jiff::SignedDuration;
use kcm_clock::Timestamp;
use serde_json::Value;

use crate::{
    cause::Cause,
    duration::short,
    finding::{Effect, Finding},
    index::Index,
    json::{condition, finalizers, is_terminating, list, number, text, time},
};

/// Time after which a pod on a node without any report of its containers is reported.
const KUBELET_PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// Time after which a pod whose containers have not started is reported if its events could not be read.
const START_PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// Time after the grace period within which a kubelet removes a pod.
pub(crate) const REMOVAL_PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Input for the classification of a pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodContext<'a> {
    pub(crate) index: &'a Index<'a>,
    pub(crate) now: Timestamp,
    pub(crate) min_ready: SignedDuration,
    /// Usual time from creation to readiness.
    pub(crate) ready_after: Option<SignedDuration>,
    /// `true` if the pods are all pods of the rollout: no further pod is created or deleted.
    pub(crate) is_rolled_out: bool,
}

/// `true` if the pod has been ready for `min_ready`.
pub(crate) fn is_available(pod: &Value, min_ready: SignedDuration, now: Timestamp) -> bool {
    !is_finished(pod)
        && ready_since(pod).is_some_and(|since| min_ready.is_zero() || now.duration_since(since) >= min_ready)
}

/// `true` if the phase is final.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// `true` if the ReplicaSet controller counts the pod.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

/// Time since which the pod is ready.
pub(crate) fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready["status"] == "True")?;
    time(ready, "/lastTransitionTime")
}

/// Explains why a pod is not available. Empty if it is, and its containers do not crash again and again.
pub(crate) fn explain(pod: &Value, context: PodContext<'_>) -> Vec<Finding> {
    let name = text(pod, "/metadata/name");
    if is_available(pod, context.min_ready, context.now) {
        let crashing = if context.is_rolled_out { containers::crashing(pod, context) } else { Vec::new() };
        return crashing.into_iter().map(|finding| finding.pod(name)).collect();
    }
    let mut found: Vec<Finding> = node::lost(pod, context).into_iter().collect();
    if is_finished(pod) {
        found = vec![finished(pod)];
    } else if let Some(held) = node::scheduling(pod, context) {
        found.push(held);
    } else {
        found.extend(containers::explain(pod, context));
        if found.is_empty() {
            found.push(readiness(pod, context));
        }
    }
    let is_lost = found.iter().any(|finding| finding.cause == Cause::NodeLost);
    if found.iter().any(|finding| finding.effect == Effect::Blocks) {
        // The kubelet of a lost node does not report that a delay has ended.
        found.retain(|one| one.cause != Cause::PodStarting && !(is_lost && one.effect == Effect::Delays));
    }
    found.into_iter().map(|finding| finding.pod(name)).collect()
}

/// Makes failures block that can be transient, if the same failure of another pod is not.
pub(crate) fn settle(pods: &mut [Vec<Finding>]) {
    let key = |finding: &Finding| (finding.cause, finding.container.clone(), finding.object.clone());
    let failures = [Cause::ImagePull, Cause::VolumeMount, Cause::PodSandbox];
    let all = pods.iter().flatten();
    let blocking: Vec<_> = all.filter(|finding| finding.effect == Effect::Blocks).map(key).collect();
    for finding in pods.iter_mut().flatten().filter(|finding| failures.contains(&finding.cause)) {
        if blocking.contains(&key(finding)) {
            finding.effect = Effect::Blocks;
        }
    }
}

fn finished(pod: &Value) -> Finding {
    let reason = match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase"),
        reason => reason,
    };
    let message = text(pod, "/status/message");
    Finding::blocks(Cause::PodFailed, format!("Failed: {reason}. {message}").trim_end())
}

/// Explains why a terminating pod still exists.
pub(crate) fn explain_terminating(pod: &Value, context: PodContext<'_>) -> Vec<Finding> {
    let name = text(pod, "/metadata/name");
    let finalizers = finalizers(pod);
    let until = time(pod, "/metadata/deletionTimestamp");
    let overdue = until.map_or(SignedDuration::ZERO, |until| context.now.duration_since(until));
    let lost = node::lost(pod, context);
    let finding = if overdue >= SignedDuration::ZERO && !finalizers.is_empty() {
        let text = format!("Terminating, held by finalizer {}.", finalizers.join(", "));
        Finding::blocks(Cause::TerminatingFinalizer, text)
    } else if overdue > REMOVAL_PATIENCE {
        let node = text(pod, "/spec/nodeName");
        let text =
            format!("Still exists after its grace period; the kubelet of node {node} has not removed it.");
        Finding::blocks(Cause::TerminatingOverdue, text).object(node)
    } else {
        let grace = number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        let text = format!("Terminating, grace period {}.", short(SignedDuration::from_secs(grace)));
        Finding::delays(Cause::TerminatingGracePeriod, text, until)
    };
    lost.into_iter().chain([finding]).map(|finding| finding.pod(name)).collect()
}

/// Reports the lost node of a pod that is not available.
pub(crate) fn lost_node(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
    let is_available = is_available(pod, context.min_ready, context.now);
    node::lost(pod, context).filter(|_| !is_available).map(|finding| finding.pod(text(pod, "/metadata/name")))
}

/// Explains a pod that is not available although its containers have no problem.
fn readiness(pod: &Value, context: PodContext<'_>) -> Finding {
    if let Some(since) = ready_since(pod) {
        let until = since.saturating_add(context.min_ready).unwrap_or(since);
        let text = format!("Ready for less than minReadySeconds ({}).", short(context.min_ready));
        return Finding::delays(Cause::MinReadySeconds, text, Some(until));
    }
    let containers_ready = condition(pod, "ContainersReady").is_some_and(|ready| ready["status"] == "True");
    let closed = |gate: &&Value| {
        condition(pod, text(gate, "/conditionType")).is_none_or(|one| one["status"] != "True")
    };
    if containers_ready && let Some(gate) = list(pod, "/spec/readinessGates").iter().find(closed) {
        let gate = text(gate, "/conditionType");
        let message = condition(pod, gate).map_or("", |condition| text(condition, "/message"));
        let text = match message {
            "" => format!("Readiness gate {gate} is not true."),
            message => format!("Readiness gate {gate} is not true: {message}"),
        };
        return Finding::blocks(Cause::ReadinessGate, text).object(gate);
    }
    let created = time(pod, "/metadata/creationTimestamp");
    let age = created.map_or(SignedDuration::ZERO, |created| context.now.duration_since(created));
    let statuses = list(pod, "/status/containerStatuses");
    if age > START_PATIENCE && !context.index.snapshot.events.is_known() {
        let text = "The containers have not started; the cause is unknown without events.";
        return Finding::blocks(Cause::Unknown, text).age(age);
    }
    if age > KUBELET_PATIENCE && statuses.is_empty() {
        let node = text(pod, "/spec/nodeName");
        let text = format!("The kubelet of node {node} has reported no container.");
        return Finding::blocks(Cause::Unknown, text).object(node).age(age);
    }
    if age > KUBELET_PATIENCE {
        let text = "The containers have not started, and no event explains it.";
        return Finding::blocks(Cause::Unknown, text).age(age);
    }
    let until =
        created.zip(context.ready_after).and_then(|(created, after)| created.saturating_add(after).ok());
    Finding::delays(Cause::PodStarting, "Starting.", until)
}
