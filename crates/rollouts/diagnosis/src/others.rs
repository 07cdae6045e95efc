//! Other controllers and clients that act on the same objects.

use jiff::SignedDuration;
use kcm_api::{LabelSelector, Labels, Selector};
use serde_json::Value;

use crate::{
    cause::Cause,
    duration::short,
    events::Event,
    finding::{Finding, add},
    json::{controller, list, members, text},
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

/// Notes the recent events of type Warning about the Deployment, its ReplicaSets and its new pods that no finding
/// explains.
pub(crate) fn warnings(rollout: &Rollout<'_>, findings: &[Finding]) -> Vec<Finding> {
    let mut found = Vec::new();
    let objects = rollout.set_objects.iter().copied().chain([rollout.object]).map(|object| (object, false));
    for (object, is_pod) in rollout.new_pods().map(|pod| (pod, true)).chain(objects) {
        let events = rollout.events.of(object);
        for event in events.iter().filter(|event| event.is_warning) {
            let Some(age) = event.at.map(|at| rollout.now.duration_since(at)) else { continue };
            if age > RECENT
                || is_explained(rollout.snapshot, event, findings)
                || is_superseded(rollout.snapshot, event, events)
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
pub(crate) fn notes(snapshot: &Snapshot, deployment: &Value) -> Vec<Finding> {
    overlaps(snapshot, deployment).into_iter().chain(writers(snapshot, deployment)).collect()
}

/// Notes the budgets that refuse each eviction of the Deployment's pods. They do not hold the rollout itself: the
/// controllers delete pods and do not evict them. But a rollout that stays incomplete holds drains of nodes.
pub(crate) fn disruption_budgets(snapshot: &Snapshot, deployment: &Value) -> Vec<Finding> {
    let labels = labels(deployment, "/spec/template/metadata/labels");
    let number = |budget: &Value, field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let refuses = |budget: &&Value| {
        // The status of a new budget is not written yet.
        let observed = number(budget, "observedGeneration") >= 1 && number(budget, "expectedPods") > 0;
        observed && number(budget, "disruptionsAllowed") == 0 && selects(budget, &labels)
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
    snapshot.disruption_budgets.seen().iter().filter(refuses).map(note).collect()
}

fn labels(object: &Value, pointer: &str) -> Labels {
    let pairs = members(object, pointer);
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn overlaps(snapshot: &Snapshot, deployment: &Value) -> Option<Finding> {
    let uid = text(deployment, "/metadata/uid");
    let labels = labels(deployment, "/spec/template/metadata/labels");
    let others = snapshot.deployments.seen().iter().filter(|other| text(other, "/metadata/uid") != uid);
    let matching: Vec<String> = others
        .filter(|other| selects(other, &labels))
        .map(|other| format!("Deployment {}", text(other, "/metadata/name")))
        .collect();
    let selector = selector(deployment)?;
    let own_sets: Vec<&str> = snapshot
        .replica_sets
        .seen()
        .iter()
        .filter(|set| controller(set) == Some(uid))
        .map(|set| text(set, "/metadata/uid"))
        .collect();
    // Without the ReplicaSets, own pods cannot be distinguished from others.
    let pods = if snapshot.replica_sets.is_known() { snapshot.pods.seen() } else { &[] };
    let foreign = pods.iter().filter_map(|pod| {
        let owner =
            list(pod, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true)?;
        let is_foreign = !own_sets.contains(&text(owner, "/uid"))
            && selector.matches(&self::labels(pod, "/metadata/labels"));
        is_foreign.then(|| format!("pods of {} {}", text(owner, "/kind"), text(owner, "/name")))
    });
    let mut names: Vec<String> = matching.into_iter().chain(foreign).collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| {
        let text = format!("The selector or the labels overlap with {}.", names.join(", "));
        Finding::note(Cause::SelectorOverlap, text)
    })
}

fn selector(object: &Value) -> Option<Selector> {
    let selector: LabelSelector = serde_json::from_value(object.pointer("/spec/selector")?.clone()).ok()?;
    Selector::new(Some(&selector)).ok()
}

fn selects(object: &Value, labels: &Labels) -> bool {
    selector(object).is_some_and(|selector| !selector.is_empty() && selector.matches(labels))
}

fn writers(snapshot: &Snapshot, deployment: &Value) -> Option<Finding> {
    let name = text(deployment, "/metadata/name");
    let targets = |autoscaler: &&Value| {
        text(autoscaler, "/spec/scaleTargetRef/kind") == "Deployment"
            && text(autoscaler, "/spec/scaleTargetRef/name") == name
    };
    if let Some(autoscaler) = snapshot.autoscalers.seen().iter().find(targets) {
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
