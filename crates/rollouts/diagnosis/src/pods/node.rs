//! Scheduling and the node of a pod.

use jiff::SignedDuration;
use serde_json::Value;

use super::PodContext;
use crate::{
    cause::Cause,
    duration::short,
    finding::Finding,
    json::{condition, list, text, time},
};

/// Time after which a pod without any condition of the scheduler is reported.
const SCHEDULER_PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// Time after which the cluster autoscaler gives up a node that it has requested (`--max-node-provision-time`).
const PROVISION_PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// Reports a node that does not exist or is not ready. `None` if the nodes could not be read.
pub(super) fn lost(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
    let node = text(pod, "/spec/nodeName");
    if node.is_empty() || !context.index.snapshot.nodes.is_known() {
        return None;
    }
    let reason = match context.index.node(node) {
        None => "does not exist".to_owned(),
        Some(found) => {
            let ready = condition(found, "Ready").filter(|ready| ready["status"] != "True")?;
            match text(ready, "/message") {
                "" => "is not ready".to_owned(),
                message => format!("is not ready: {}", message.trim_end_matches('.')),
            }
        }
    };
    Some(Finding::blocks(Cause::NodeLost, format!("Node {node} {reason}.")).object(node))
}

/// Explains why a pod has no node. `None` if it has one.
pub(super) fn scheduling(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
    if !text(pod, "/spec/nodeName").is_empty() {
        return None;
    }
    let gates: Vec<&str> =
        list(pod, "/spec/schedulingGates").iter().map(|gate| text(gate, "/name")).collect();
    if !gates.is_empty() {
        let text = format!("Held by scheduling gate {}.", gates.join(", "));
        return Some(Finding::blocks(Cause::SchedulingGated, text));
    }
    if let Some(scheduled) = condition(pod, "PodScheduled").filter(|one| one["status"] == "False") {
        let message = format!("Unschedulable: {}", text(scheduled, "/message"));
        let newest = context.index.events.newest(pod, &["TriggeredScaleUp", "NotTriggerScaleUp"]);
        let is_recent = |at| context.now.duration_since(at) < PROVISION_PATIENCE;
        let added =
            newest.filter(|event| event.reason == "TriggeredScaleUp" && event.at.is_some_and(is_recent));
        return Some(match added {
            Some(event) => {
                let message = message.trim_end_matches('.');
                let text = format!("{message}. The cluster autoscaler adds nodes: {}", event.message);
                Finding::delays(Cause::Unschedulable, text, None)
            }
            None => Finding::blocks(Cause::Unschedulable, message),
        });
    }
    let age = time(pod, "/metadata/creationTimestamp").map(|created| context.now.duration_since(created));
    Some(if age.is_some_and(|age| age > SCHEDULER_PATIENCE) {
        let scheduler = match text(pod, "/spec/schedulerName") {
            "" => "default-scheduler",
            name => name,
        };
        let text =
            format!("Not processed by scheduler {scheduler} for more than {}.", short(SCHEDULER_PATIENCE));
        Finding::blocks(Cause::SchedulerNotRunning, text).object(scheduler)
    } else {
        Finding::delays(Cause::PodStarting, "Waiting for the scheduler.", None)
    })
}
