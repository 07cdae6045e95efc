//! Commands that inspect or resolve a cause.

use kcm_deployment_util::{fenceposts, replica_sets::available_replica_count};
use serde_json::json;

use crate::{
    cause::Cause,
    diagnosis::{Command, Diagnosis, Remedy, State},
    finding::{Effect, Finding},
    json::text,
    known::Unreadable,
    refusal,
    rollout::Rollout,
    undo,
};

/// Workload in commands.
pub(crate) struct Subject<'a> {
    /// Resource, such as `deployment`.
    pub(crate) resource: &'static str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Commands without repetitions.
struct Commands<'a> {
    subject: &'a Subject<'a>,
    list: Vec<Command>,
}

impl Commands<'_> {
    fn push(&mut self, purpose: &str, arguments: &str, remedy: Option<Remedy>) {
        let command = Command {
            purpose: purpose.to_owned(),
            command: format!("kubectl {arguments}"),
            remedy,
            course: None,
        };
        if !self.list.contains(&command) {
            self.list.push(command);
        }
    }

    /// Adds a command for the namespace of the Deployment.
    fn inspect(&mut self, purpose: &str, arguments: &str) {
        self.push(purpose, &format!("-n {} {arguments}", self.subject.namespace), None);
    }

    /// Adds a command that changes the Deployment.
    fn change(&mut self, purpose: &str, arguments: &str, remedy: Remedy) {
        self.push(purpose, &format!("-n {} {arguments}", self.subject.namespace), Some(remedy));
    }
}

/// Suggests commands for the causes of the rollout of a Deployment.
pub(crate) fn commands(rollout: &Rollout<'_>, diagnosis: &Diagnosis) -> Vec<Command> {
    let subject = Subject { resource: "deployment", namespace: &diagnosis.namespace, name: &diagnosis.name };
    let mut commands = Commands { subject: &subject, list: Vec::new() };
    let mut undo = false;
    for finding in held(diagnosis) {
        undo |= undo::resolves(rollout, finding);
        add(&mut commands, finding);
        add_for_deployment(&mut commands, rollout, diagnosis, finding);
    }
    if undo {
        let arguments = format!("rollout undo deployment/{}", subject.name);
        commands.change("go back to the last revision", &arguments, Remedy::Undo);
    }
    if diagnosis.state != State::Complete {
        grant(&mut commands, &diagnosis.unreadable);
    }
    commands.list
}

/// Suggests commands for the causes of another workload.
pub(crate) fn of_workload(subject: &Subject<'_>, diagnosis: &Diagnosis) -> Vec<Command> {
    let mut commands = Commands { subject, list: Vec::new() };
    for finding in held(diagnosis) {
        add(&mut commands, finding);
    }
    if diagnosis.state != State::Complete {
        grant(&mut commands, &diagnosis.unreadable);
    }
    commands.list
}

/// Findings that hold the workload or are notes.
fn held(diagnosis: &Diagnosis) -> impl Iterator<Item = &Finding> {
    let held = diagnosis.findings.iter().filter(|finding| finding.effect != Effect::Delays);
    held.filter(|_| diagnosis.state != State::Complete)
}

/// Suggests the commands for a Deployment that depend on its ReplicaSets and its bounds.
fn add_for_deployment(
    commands: &mut Commands<'_>,
    rollout: &Rollout<'_>,
    diagnosis: &Diagnosis,
    finding: &Finding,
) {
    match finding.cause {
        Cause::Paused => {
            let arguments = format!("rollout resume deployment/{}", commands.subject.name);
            let is_other = |one: &Finding| one.effect == Effect::Blocks && one.cause != Cause::Paused;
            if diagnosis.findings.iter().any(is_other) {
                // A preview of the command does not complete. The other causes still require it: kubectl does not undo
                // a paused Deployment, and a corrected template is not rolled out.
                commands.inspect("resume it; the other causes remain", &arguments);
            } else {
                let patch = json!({ "spec": { "paused": false } });
                commands.change("resume it", &arguments, Remedy::Patch(patch));
            }
        }
        Cause::Unschedulable => make_room(commands, rollout, &finding.message),
        Cause::CreateRefused | Cause::DeleteRefused => {
            let is_refused = |set: &&&serde_json::Value| {
                refusal::explain(rollout.index, set, rollout.now)
                    .is_some_and(|refused| refused.message == finding.message)
            };
            let refused = rollout.set_objects.iter().find(is_refused).copied();
            let set = refused.or_else(|| rollout.new_set());
            let set = set.map_or("NAME", |set| text(set, "/metadata/name"));
            commands.inspect("read the events", &format!("describe replicaset {set}"));
        }
        Cause::DesiredReplicasAnnotation => {
            let desired = rollout.deployment.replicas();
            for set in rollout.set_objects.iter().filter(|set| has_other_size(set, desired)) {
                let set = text(set, "/metadata/name");
                let value = format!("{DESIRED_REPLICAS}={desired}");
                let arguments = format!("annotate --overwrite replicaset {set} {value}");
                commands.inspect("correct the annotation", &arguments);
            }
        }
        _ => {}
    }
}

fn add(commands: &mut Commands<'_>, finding: &Finding) {
    let Subject { resource, namespace, name } = *commands.subject;
    let pod = finding.pods.first().map_or("POD", String::as_str);
    // These can come from messages.
    let named = |name: &'_ Option<String>, other| name.clone().filter(|name| is_name(name)).unwrap_or(other);
    let container = named(&finding.container, "CONTAINER".to_owned());
    let object = named(&finding.object, "NAME".to_owned());
    match finding.cause {
        Cause::ImagePull => {
            commands.inspect("correct the image", &format!("set image {resource}/{name} {container}=IMAGE"));
        }
        Cause::CrashLoop | Cause::InitContainer | Cause::ProbeKill => {
            commands.inspect("read the last log", &format!("logs {pod} -c {container} --previous"));
        }
        Cause::ProbeFailing => {
            commands.inspect("read the events", &format!("describe pod {pod}"));
            commands.inspect("read the log", &format!("logs {pod} -c {container}"));
        }
        Cause::Unschedulable => {
            commands.inspect("read the events", &format!("describe pod {pod}"));
            commands.push("compare the nodes", "describe nodes", None);
        }
        Cause::SchedulerNotRunning
        | Cause::ContainerConfig
        | Cause::VolumeMount
        | Cause::PodSandbox
        | Cause::PodFailed
        | Cause::ReadinessGate
        | Cause::SchedulingGated
        | Cause::WarningEvent
            if !finding.pods.is_empty() =>
        {
            commands.inspect("read the events", &format!("describe pod {pod}"));
        }
        Cause::TerminatingFinalizer => {
            commands.inspect("see the finalizers", &format!("get pod {pod} -o yaml"));
        }
        Cause::NodeLost | Cause::TerminatingOverdue => {
            commands.push("see the node", &format!("describe node {object}"), None);
        }
        Cause::QuotaExceeded => commands.inspect("see the quota", &format!("describe quota {object}")),
        Cause::LimitRange => commands.inspect("see the limits", "describe limitrange"),
        Cause::AdmissionWebhook => commands.push(
            "see the webhooks",
            "get validatingwebhookconfigurations,mutatingwebhookconfigurations",
            None,
        ),
        Cause::PodSecurity => {
            commands.push("see the policy", &format!("get namespace {namespace} --show-labels"), None);
        }
        Cause::ReplicaSetCreateFailed
        | Cause::ReplicaSetUpdateFailed
        | Cause::Unknown
        | Cause::EmptySelector => {
            if finding.pods.is_empty() {
                commands.inspect("read the events", &format!("describe {resource} {name}"));
            } else {
                commands.inspect("read the events", &format!("describe pod {pod}"));
            }
        }
        Cause::ControllerNotRunning | Cause::ReplicaSetControllerNotRunning => {
            commands.push("see the leader", "-n kube-system get lease kube-controller-manager -o yaml", None);
        }
        Cause::DeploymentDeleted => {
            commands.inspect("see the finalizers", &format!("get {resource} {name} -o yaml"));
        }
        Cause::ReplicaSetDeleted => {
            commands.inspect("see the finalizers", &format!("get replicaset {object} -o yaml"));
        }
        Cause::NamespaceTerminating => {
            commands.push("see its conditions", &format!("get namespace {object} -o yaml"), None);
        }
        Cause::OnDelete => commands.inspect("replace a pod", &format!("delete pod {pod}")),
        Cause::ReplicasOverwritten => commands.inspect("see the autoscaler", "get hpa"),
        Cause::DisruptionBudget => {
            commands.inspect("see the budget", &format!("describe poddisruptionbudget {object}"));
        }
        Cause::SelectorOverlap => commands.inspect("compare the selectors", "get deployments -o wide"),
        _ => {}
    }
}

const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";

/// `true` if the ReplicaSet has pods and another size in its annotation.
fn has_other_size(set: &serde_json::Value, desired: i32) -> bool {
    let annotation = set["metadata"]["annotations"][DESIRED_REPLICAS].as_str();
    set["spec"]["replicas"] != 0 && annotation.is_some_and(|value| value != desired.to_string())
}

/// `true` if the text is a name of an object, which a shell takes as it is.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
}

/// Suggests to delete an old pod first, if the new pod waits for its port or its node.
fn make_room(commands: &mut Commands<'_>, rollout: &Rollout<'_>, message: &str) {
    let waits_for_old = ["free ports", "anti-affinity"].iter().any(|part| message.contains(part));
    let surges = fenceposts::is_rolling_update(&rollout.deployment)
        && fenceposts::max_surge(&rollout.deployment) > 0
        && fenceposts::max_unavailable(&rollout.deployment) == 0;
    let has_old = available_replica_count(&rollout.sets.old) > 0;
    if !(waits_for_old && surges && has_old) {
        return;
    }
    let desired = rollout.deployment.replicas();
    let available = desired.saturating_sub(1);
    let purpose =
        format!("replace an old pod at a time; {available} of {desired} pods are available meanwhile");
    let patch =
        json!({ "spec": { "strategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } } } });
    let arguments = format!("patch deployment/{} -p '{patch}'", commands.subject.name);
    commands.change(&purpose, &arguments, Remedy::Patch(patch));
}

/// Returns the commands that permit reading what was forbidden in `namespace`.
pub fn grants(namespace: &str, unreadable: &[Unreadable]) -> Vec<Command> {
    let subject = Subject { resource: "deployment", namespace, name: "" };
    let mut commands = Commands { subject: &subject, list: Vec::new() };
    grant(&mut commands, unreadable);
    commands.list
}

/// Suggests the binding that permits what was forbidden.
fn grant(commands: &mut Commands<'_>, unreadable: &[Unreadable]) {
    let forbidden = || unreadable.iter().filter(|one| one.permission.is_some());
    let user = forbidden().find_map(|one| one.reason.split("User \"").nth(1)?.split('"').next());
    let is_plain =
        |user: &&str| user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:@/".contains(&byte));
    let user = user.filter(is_plain);
    let subject = match user.and_then(|user| user.strip_prefix("system:serviceaccount:")) {
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={}", user.unwrap_or("USER")),
    };
    let is_cluster = |one: &&Unreadable| one.resource == "nodes";
    let is_lease = |one: &&Unreadable| one.resource == "leases";
    // The list of all namespaces was forbidden.
    let is_global = |one: &&Unreadable| {
        one.resource != "namespaces"
            && one.permission.as_ref().is_some_and(|text| !text.contains(" in namespace "))
    };
    let mut viewed = forbidden().filter(|one| !is_cluster(one) && !is_lease(one)).peekable();
    if viewed.peek().is_some() {
        let arguments = format!("rollouts-view --clusterrole=view {subject}");
        if viewed.any(|one| is_global(&one)) {
            commands.push(
                "permit reading all namespaces",
                &format!("create clusterrolebinding {arguments}"),
                None,
            );
        } else {
            commands.inspect("permit reading the namespace", &format!("create rolebinding {arguments}"));
        }
    }
    for (is_missing, name, scope, binding, resource) in [
        (forbidden().any(|one| is_cluster(&one)), "rollouts-nodes", "", "cluster", "nodes"),
        (
            forbidden().any(|one| is_lease(&one)),
            "rollouts-lease",
            "-n kube-system ",
            "",
            "leases.coordination.k8s.io",
        ),
    ] {
        if is_missing {
            let purpose = format!("permit reading {resource}");
            let kind = if binding.is_empty() { "role" } else { "clusterrole" };
            commands.push(
                &purpose,
                &format!("{scope}create {kind} {name} --verb=get,list --resource={resource}"),
                None,
            );
            commands.push(
                &purpose,
                &format!("{scope}create {kind}binding {name} --{kind}={name} {subject}"),
                None,
            );
        }
    }
}
