//! Other controllers and clients that act on the same objects.

use jiff::SignedDuration;
use kcm_clock::Timestamp;
use serde_json::Value;

use crate::{
    cause::Cause,
    duration::short,
    events::Event,
    finding::{Finding, add},
    index::{Index, labels},
    json::{list, text},
    refusal,
    rollout::Rollout,
    snapshot::Snapshot,
};

/// Age up to which an event of type Warning is reported.
const RECENT: SignedDuration = SignedDuration::from_mins(10);

/// Reasons of events of type Warning, and the causes that explain them.
const EXPLAINED: &[(&[&str], &[Cause])] = &[
    (&["FailedScheduling"], &[Cause::Unschedulable, Cause::SchedulingGated]),
    (&["FailedMount", "FailedAttachVolume", "FailedMapVolume"], &[Cause::VolumeMount]),
    (&["FailedCreatePodSandBox", "NetworkNotReady"], &[Cause::PodSandbox]),
    (
        &["Failed", "InspectFailed", "ErrImageNeverPull"],
        &[Cause::ImagePull, Cause::ContainerConfig, Cause::CrashLoop],
    ),
    (&["BackOff"], &[Cause::ImagePull, Cause::CrashLoop, Cause::InitContainer, Cause::ProbeKill]),
    (
        &["Unhealthy", "ProbeWarning"],
        &[Cause::ProbeFailing, Cause::ProbeKill, Cause::CrashLoop, Cause::PodStarting],
    ),
    (&["NodeNotReady", "TaintManagerEviction"], &[Cause::NodeLost]),
    (
        &["Evicted", "OutOfmemory", "OutOfcpu", "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError"],
        &[Cause::PodFailed],
    ),
    (&["FailedDaemonPod"], &[Cause::PodFailed]),
    (&["FailedDelete"], &[Cause::DeleteRefused]),
    (&["ReplicaSetCreateError"], &[Cause::ReplicaSetCreateFailed]),
];

/// `true` if a finding has the cause of the event.
fn is_explained(snapshot: &Snapshot, event: &Event<'_>, findings: &[Finding]) -> bool {
    let found = |causes: &[Cause]| findings.iter().any(|finding| causes.contains(&finding.cause));
    let is_pull = ["Failed to pull image", "Error: ErrImagePull", "Error: ImagePullBackOff"];
    match event.reason {
        "FailedCreate" => match refusal::classify(snapshot, event.message).cause {
            Cause::QuotaExceeded => found(&[Cause::QuotaExceeded, Cause::CreateBackOff]),
            cause => found(&[cause]),
        },
        "Failed" if is_pull.iter().any(|start| event.message.starts_with(start)) => {
            found(&[Cause::ImagePull])
        }
        reason => {
            let mut causes = EXPLAINED.iter().filter(|(reasons, _)| reasons.contains(&reason));
            causes.any(|(_, causes)| found(causes))
        }
    }
}

/// `true` if a newer event of the object reports that a creation of pods fails for the same cause. The messages differ in
/// the names of the pods.
fn is_superseded(snapshot: &Snapshot, event: &Event<'_>, events: &[Event<'_>]) -> bool {
    let cause = |event: &Event<'_>| refusal::classify(snapshot, event.message).cause;
    let newer = |other: &&Event<'_>| other.reason == event.reason && other.at > event.at;
    event.reason == "FailedCreate" && events.iter().filter(newer).any(|other| cause(other) == cause(event))
}

/// Notes the recent events of type Warning about `pods` and `objects` that no finding explains.
pub(crate) fn warnings<'a>(
    index: &Index<'_>,
    now: Timestamp,
    pods: impl Iterator<Item = &'a Value>,
    objects: impl Iterator<Item = &'a Value>,
    findings: &[Finding],
) -> Vec<Finding> {
    let mut found = Vec::new();
    for (object, is_pod) in pods.map(|pod| (pod, true)).chain(objects.map(|object| (object, false))) {
        let events = index.events.of(object);
        for event in events.iter().filter(|event| event.is_warning) {
            let Some(age) = event.at.map(|at| now.duration_since(at)) else { continue };
            if age > RECENT
                || is_explained(index.snapshot, event, findings)
                || is_superseded(index.snapshot, event, events)
            {
                continue;
            }
            let times = if event.count > 1 { format!(", {} times", event.count) } else { String::new() };
            let name = text(object, "/metadata/name");
            let finding = if is_pod {
                Finding::note(Cause::WarningEvent, format!("{}: {}", event.reason, event.message)).pod(name)
            } else {
                let age = short(age);
                let message = format!("{} of {name}{times}, {age} ago: {}", event.reason, event.message);
                Finding::note(Cause::WarningEvent, message)
            };
            add(&mut found, finding);
        }
    }
    found
}

/// Managers of `spec.replicas` that are persons or tools.
const CLIENTS: [&str; 4] = ["kubectl", "helm", "Mozilla", "kubectl-rollouts"];

/// Notes about other controllers: overlapping selectors, and writers of `spec.replicas`.
pub(crate) fn notes(rollout: &Rollout<'_>) -> Vec<Finding> {
    overlaps(rollout).into_iter().chain(writers(rollout)).collect()
}

/// Notes the budgets that refuse each eviction of the Deployment's pods. They do not hold the rollout itself: the
/// controllers delete pods and do not evict them. But a rollout that stays incomplete holds drains of nodes.
pub(crate) fn disruption_budgets(rollout: &Rollout<'_>) -> Vec<Finding> {
    let labels = labels(rollout.object, "/spec/template/metadata/labels");
    let number = |budget: &Value, field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let refuses = |budget: &&Value| {
        // The status of a new budget is not written yet.
        let observed = number(budget, "observedGeneration") >= 1 && number(budget, "expectedPods") > 0;
        observed && number(budget, "disruptionsAllowed") == 0
    };
    let note = |budget: &Value| {
        let name = text(budget, "/metadata/name");
        let text = format!(
            "PodDisruptionBudget {name} refuses evictions, such as those of kubectl drain: {} healthy, {} required.",
            number(budget, "currentHealthy"),
            number(budget, "desiredHealthy"),
        );
        Finding::note(Cause::DisruptionBudget, text).object(name)
    };
    let budgets = rollout.index.disruption_budgets_matching(&labels);
    budgets.into_iter().filter(refuses).map(note).collect()
}

fn overlaps(rollout: &Rollout<'_>) -> Option<Finding> {
    let Rollout { index, snapshot, object, .. } = *rollout;
    let uid = text(object, "/metadata/uid");
    let others = index.deployments_matching(&labels(object, "/spec/template/metadata/labels"));
    let others = others.into_iter().filter(|other| text(other, "/metadata/uid") != uid);
    let matching = others.map(|other| format!("Deployment {}", text(other, "/metadata/name")));
    let own_sets: Vec<&str> = rollout.set_objects.iter().map(|set| text(set, "/metadata/uid")).collect();
    // Without the ReplicaSets, own pods cannot be distinguished from others.
    let pods = if snapshot.replica_sets.is_known() { index.pods_matching(object) } else { Vec::new() };
    let foreign = pods.into_iter().filter_map(|pod| {
        let owner =
            list(pod, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true)?;
        let is_foreign = !own_sets.contains(&text(owner, "/uid"));
        is_foreign.then(|| format!("pods of {} {}", text(owner, "/kind"), text(owner, "/name")))
    });
    let mut names: Vec<String> = matching.chain(foreign).collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| {
        let text = format!("The selector or the labels overlap with {}.", names.join(", "));
        Finding::note(Cause::SelectorOverlap, text)
    })
}

fn writers(rollout: &Rollout<'_>) -> Option<Finding> {
    let deployment = rollout.object;
    if let Some(autoscaler) = rollout.index.autoscaler_of(text(deployment, "/metadata/name")) {
        let autoscaler_name = text(autoscaler, "/metadata/name");
        let limits = |field: &str| autoscaler["spec"][field].as_i64().unwrap_or(1);
        let text = format!(
            "HorizontalPodAutoscaler {autoscaler_name} writes spec.replicas ({} to {}).",
            limits("minReplicas"),
            limits("maxReplicas"),
        );
        return Some(Finding::note(Cause::ReplicasOverwritten, text).object(autoscaler_name));
    }
    let writes = |entry: &&Value| entry.pointer("/fieldsV1/f:spec/f:replicas").is_some();
    let managers = list(deployment, "/metadata/managedFields").iter().filter(writes);
    let scaled = managers.filter(|entry| text(entry, "/subresource") == "scale");
    let mut foreign = scaled
        .map(|entry| text(entry, "/manager"))
        .filter(|manager| !CLIENTS.iter().any(|client| manager.starts_with(client)));
    let manager = foreign.next()?;
    let text = format!("{manager} writes spec.replicas through the scale subresource.");
    Some(Finding::note(Cause::ReplicasOverwritten, text).object(manager))
}
