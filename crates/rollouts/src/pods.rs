//! Causes in pods.

use jiff::SignedDuration;
use kcm_api::Waiting;
use kcm_clock::Timestamp;
use serde_json::Value;

use crate::{
    cause::Cause,
    duration::short,
    finding::Finding,
    json::{condition, list, number, text, time},
    snapshot::Snapshot,
};

/// Time for which containers run without being ready before their probes are reported, if the probes allow less.
const READY_PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// Time after which a pod without any condition of the scheduler is reported.
const SCHEDULER_PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Input for the classification of a pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodContext<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) now: Timestamp,
    pub(crate) min_ready: SignedDuration,
    /// Usual time from creation to readiness.
    pub(crate) ready_after: Option<SignedDuration>,
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

/// `true` if the deletion of the pod was requested.
pub(crate) fn is_terminating(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

/// Time since which the pod is ready.
pub(crate) fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready["status"] == "True")?;
    time(ready, "/lastTransitionTime")
}

/// Explains why a pod is not available. `None` if it is.
pub(crate) fn explain(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
    if is_available(pod, context.min_ready, context.now) {
        return None;
    }
    let name = text(pod, "/metadata/name");
    let finding = lost_node(pod, context)
        .or_else(|| scheduling(pod, context))
        .or_else(|| containers(pod, context))
        .unwrap_or_else(|| readiness(pod, context));
    Some(finding.pod(name))
}

/// Explains why a terminating pod still exists.
pub(crate) fn explain_terminating(pod: &Value, context: PodContext<'_>) -> Finding {
    let name = text(pod, "/metadata/name");
    let finalizers: Vec<&str> = list(pod, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
    let until = time(pod, "/metadata/deletionTimestamp");
    let is_over = until.is_none_or(|until| until <= context.now);
    let finding = match lost_node(pod, context) {
        Some(lost) => lost,
        None if is_over && !finalizers.is_empty() => Finding::blocks(
            Cause::TerminatingFinalizer,
            format!("Terminating, held by finalizer {}.", finalizers.join(", ")),
        ),
        None => {
            let grace = number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
            let text = format!("Terminating, grace period {}.", short(SignedDuration::from_secs(grace)));
            Finding::delays(Cause::TerminatingGracePeriod, text, until)
        }
    };
    finding.pod(name)
}

fn lost_node(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
    let node = text(pod, "/spec/nodeName");
    let unreadable = || context.snapshot.unreadable.iter().any(|one| one.resource == "nodes");
    if node.is_empty() || unreadable() {
        return None;
    }
    let found = context.snapshot.nodes.iter().find(|found| text(found, "/metadata/name") == node);
    let reason = match found {
        None => "does not exist".to_owned(),
        Some(found) => {
            let ready = condition(found, "Ready").filter(|ready| ready["status"] != "True")?;
            format!("is not ready: {}", text(ready, "/message"))
        }
    };
    Some(Finding::blocks(Cause::NodeLost, format!("Node {node} {reason}.")).object(node))
}

fn scheduling(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
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
        let message = text(scheduled, "/message");
        return Some(Finding::blocks(Cause::Unschedulable, format!("Unschedulable: {message}")));
    }
    let age = time(pod, "/metadata/creationTimestamp").map(|created| context.now.duration_since(created));
    Some(if age.is_some_and(|age| age > SCHEDULER_PATIENCE) {
        let scheduler = match text(pod, "/spec/schedulerName") {
            "" => "default-scheduler",
            name => name,
        };
        Finding::blocks(
            Cause::SchedulerNotRunning,
            format!("Not processed by scheduler {scheduler} for more than {}.", short(SCHEDULER_PATIENCE)),
        )
        .object(scheduler)
    } else {
        Finding::delays(Cause::PodStarting, "Waiting for the scheduler.", None)
    })
}

fn containers(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
    if is_finished(pod) {
        let reason = match text(pod, "/status/reason") {
            "" => text(pod, "/status/phase"),
            reason => reason,
        };
        let message = text(pod, "/status/message");
        return Some(Finding::blocks(
            Cause::PodFailed,
            format!("Failed: {reason}. {message}").trim_end().to_owned(),
        ));
    }
    for status in list(pod, "/status/initContainerStatuses") {
        if status["ready"] == true || status["started"] == true {
            continue;
        }
        let name = text(status, "/name");
        let found = container(pod, status, context);
        if let Some(problem) = found {
            let cause = if problem.cause == Cause::CrashLoop { Cause::InitContainer } else { problem.cause };
            let message = format!("Init container {name}: {}", problem.message);
            return Some(Finding { cause, message, ..problem });
        }
        if status.pointer("/state/running").is_some() {
            let text = format!("Init container {name} has not completed.");
            return Some(Finding::delays(Cause::InitContainer, text, None).container(name));
        }
    }
    list(pod, "/status/containerStatuses")
        .iter()
        .filter(|status| status["ready"] != true)
        .find_map(|status| container(pod, status, context))
        .or_else(|| volumes(pod, context))
}

/// Explains the state of one container, if it cannot run.
fn container(pod: &Value, status: &Value, context: PodContext<'_>) -> Option<Finding> {
    let name = text(status, "/name");
    let waiting = text(status, "/state/waiting/reason");
    let message = text(status, "/state/waiting/message");
    let finding = match Waiting::from_reason(waiting) {
        Waiting::ImagePull => {
            let image = list(pod, "/spec/containers")
                .iter()
                .chain(list(pod, "/spec/initContainers"))
                .find(|container| text(container, "/name") == name)
                .map_or("", |container| text(container, "/image"));
            let reason = event(pod, context.snapshot, &["Failed"])
                .filter(|text| text.contains("pull"))
                .map_or_else(|| message.to_owned(), str::to_owned);
            Finding::blocks(Cause::ImagePull, format!("Image {image} cannot be pulled ({waiting}): {reason}"))
        }
        Waiting::ContainerConfig => Finding::blocks(
            Cause::ContainerConfig,
            format!("Container {name} cannot start ({waiting}): {message}"),
        ),
        Waiting::CrashLoop => crash(pod, status, context),
        _ => {
            let terminated = status.pointer("/state/terminated");
            let failed = terminated.and_then(|end| end["exitCode"].as_i64()).is_some_and(|code| code != 0);
            let restarts = number(status, "/restartCount").unwrap_or(0);
            // A container that failed once is restarted at once.
            if !failed || restarts == 0 {
                return None;
            }
            crash(pod, status, context)
        }
    };
    Some(finding.container(name))
}

/// Explains a container that crashes. If it was available before it crashed, it is again after the next start.
fn crash(pod: &Value, status: &Value, context: PodContext<'_>) -> Finding {
    let name = text(status, "/name");
    let end = status.pointer("/lastState/terminated").or_else(|| status.pointer("/state/terminated"));
    let end = end.unwrap_or(&Value::Null);
    let code = end["exitCode"].as_i64().map_or_else(|| "unknown".to_owned(), |code| code.to_string());
    let reason = text(end, "/reason");
    let restarts = number(status, "/restartCount").unwrap_or(0);
    let mut message = format!("Container {name} crashes: exit code {code}");
    if !reason.is_empty() && reason != "Error" {
        message.push_str(&format!(" ({reason})"));
    }
    message.push_str(&format!(", {restarts} restart{}", if restarts == 1 { "" } else { "s" }));
    let last = text(end, "/message").trim();
    if !last.is_empty() {
        message.push_str(&format!("; last message: {last}"));
    }
    message.push('.');
    let (started, finished) = (time(end, "/startedAt"), time(end, "/finishedAt"));
    // The Ready condition changed during the last run: the pod was ready in it.
    let unready_since = condition(pod, "Ready").and_then(|ready| time(ready, "/lastTransitionTime"));
    let was_available = match (started, finished, unready_since) {
        (Some(started), Some(finished), Some(since)) => {
            since > started && finished.duration_since(started) > context.min_ready
        }
        _ => false,
    };
    if was_available {
        let text = format!("{message} It was available before the crash.");
        Finding::delays(Cause::CrashLoop, text, None)
    } else {
        Finding::blocks(Cause::CrashLoop, message)
    }
}

fn volumes(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
    let has_started = !text(pod, "/status/podIP").is_empty();
    let message = event(
        pod,
        context.snapshot,
        &["FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox"],
    )?;
    (!has_started).then(|| Finding::blocks(Cause::VolumeMount, message.to_owned()))
}

/// Explains a pod that is not available although its containers can run.
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
        return Finding::blocks(Cause::ReadinessGate, format!("Readiness gate {gate} is not true."))
            .object(gate);
    }
    let running = |status: &Value| time(status, "/state/running/startedAt");
    let started: Option<Vec<Timestamp>> = list(pod, "/status/containerStatuses")
        .iter()
        .filter(|status| status["ready"] != true)
        .map(running)
        .collect();
    if let Some(started) = started.and_then(|started| started.into_iter().max()) {
        let running_for = context.now.duration_since(started);
        let patience = probe_budget(pod).max(READY_PATIENCE);
        if running_for > patience {
            let reason = event(pod, context.snapshot, &["Unhealthy"]).unwrap_or("no probe event found");
            let name = list(pod, "/status/containerStatuses")
                .iter()
                .find(|status| status["ready"] != true)
                .map_or("", |status| text(status, "/name"));
            let text =
                format!("Container {name} runs and is not ready for more than {}: {reason}", short(patience));
            return Finding::blocks(Cause::ProbeFailing, text).container(name);
        }
        return Finding::delays(
            Cause::PodStarting,
            "Running, not ready yet.",
            started.saturating_add(patience).ok(),
        );
    }
    let created = time(pod, "/metadata/creationTimestamp");
    let until =
        created.zip(context.ready_after).and_then(|(created, after)| created.saturating_add(after).ok());
    Finding::delays(Cause::PodStarting, "Starting.", until)
}

/// Longest time that the probes of the containers allow for the start.
fn probe_budget(pod: &Value) -> SignedDuration {
    let budget = |probe: &Value| {
        let field = |name: &str, default: i64| number(probe, name).unwrap_or(default);
        field("/initialDelaySeconds", 0) + field("/periodSeconds", 10) * field("/failureThreshold", 3)
    };
    let containers = list(pod, "/spec/containers").iter();
    let seconds = containers.map(|container| {
        ["startupProbe", "readinessProbe"]
            .iter()
            .filter_map(|probe| container.get(*probe))
            .map(budget)
            .sum::<i64>()
    });
    SignedDuration::from_secs(seconds.max().unwrap_or(0))
}

/// Message of the newest event of the pod with one of these reasons.
fn event<'a>(pod: &Value, snapshot: &'a Snapshot, reasons: &[&str]) -> Option<&'a str> {
    let uid = text(pod, "/metadata/uid");
    let mine = snapshot.events.iter().filter(|event| {
        text(event, "/involvedObject/uid") == uid && reasons.contains(&text(event, "/reason"))
    });
    let at = |event: &&Value| {
        ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
            .iter()
            .find_map(|field| time(event, field))
    };
    mine.max_by_key(at).map(|event| text(event, "/message"))
}
