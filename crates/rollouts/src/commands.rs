//! Commands that inspect or resolve a cause.

use crate::{
    cause::Cause,
    diagnosis::{Command, Diagnosis, State},
    finding::Effect,
};

/// Suggests commands for the causes of a rollout.
pub(crate) fn commands(diagnosis: &Diagnosis) -> Vec<Command> {
    let (namespace, name) = (&diagnosis.namespace, &diagnosis.name);
    let mut commands: Vec<Command> = Vec::new();
    let mut push = |purpose: &str, arguments: String| {
        let command = Command { purpose: purpose.to_owned(), command: format!("kubectl {arguments}") };
        if !commands.contains(&command) {
            commands.push(command);
        }
    };
    let held = diagnosis.findings.iter().filter(|finding| finding.effect != Effect::Delays);
    let mut undo = false;
    for finding in held.filter(|_| diagnosis.state != State::Complete) {
        let pod = finding.pods.first().map_or("POD", String::as_str);
        let container = finding.container.as_deref().unwrap_or("CONTAINER");
        let object = finding.object.as_deref().unwrap_or("NAME");
        let namespaced = |arguments: String| format!("-n {namespace} {arguments}");
        match finding.cause {
            Cause::Paused => push("resume it", namespaced(format!("rollout resume deployment/{name}"))),
            Cause::ImagePull => {
                push(
                    "correct the image",
                    namespaced(format!("set image deployment/{name} {container}=IMAGE")),
                );
                undo = true;
            }
            Cause::CrashLoop | Cause::InitContainer => {
                push("read the last log", namespaced(format!("logs {pod} -c {container} --previous")));
                undo = true;
            }
            Cause::ProbeFailing => {
                push("read the events", namespaced(format!("describe pod {pod}")));
                push("read the log", namespaced(format!("logs {pod} -c {container}")));
                undo = true;
            }
            Cause::Unschedulable | Cause::SchedulerNotRunning => {
                push("read the events", namespaced(format!("describe pod {pod}")));
                push("compare the nodes", "describe nodes".to_owned());
            }
            Cause::ContainerConfig
            | Cause::VolumeMount
            | Cause::PodFailed
            | Cause::ReadinessGate
            | Cause::SchedulingGated => {
                push("read the events", namespaced(format!("describe pod {pod}")));
            }
            Cause::TerminatingFinalizer => {
                push("see the finalizers", namespaced(format!("get pod {pod} -o yaml")));
            }
            Cause::NodeLost => push("see the node", format!("describe node {object}")),
            Cause::QuotaExceeded => push("see the quota", namespaced(format!("describe quota {object}"))),
            Cause::LimitRange => push("see the limits", namespaced("describe limitrange".to_owned())),
            Cause::AdmissionWebhook => push(
                "see the webhooks",
                "get validatingwebhookconfigurations,mutatingwebhookconfigurations".to_owned(),
            ),
            Cause::PodSecurity => {
                push("see the policy", format!("get namespace {namespace} --show-labels"));
            }
            Cause::CreateRefused | Cause::ReplicaSetCreateFailed | Cause::Unknown | Cause::EmptySelector => {
                push("read the events", namespaced(format!("describe deployment {name}")));
            }
            Cause::ControllerNotRunning | Cause::ReplicaSetControllerNotRunning => {
                push("see the leader", "-n kube-system get lease kube-controller-manager -o yaml".to_owned());
            }
            Cause::DesiredReplicasAnnotation => push(
                "write the annotation again",
                namespaced(format!("scale deployment/{name} --replicas={}", diagnosis.replicas.desired)),
            ),
            Cause::DeploymentDeleted => {
                push("see the finalizers", namespaced(format!("get deployment {name} -o yaml")));
            }
            Cause::ReplicasOverwritten => push("see the autoscaler", namespaced("get hpa".to_owned())),
            Cause::DisruptionBudget => {
                push("see the budget", namespaced(format!("describe poddisruptionbudget {object}")));
            }
            Cause::SelectorOverlap => {
                push("compare the selectors", namespaced("get deployments -o wide".to_owned()));
            }
            Cause::PodStarting | Cause::MinReadySeconds | Cause::TerminatingGracePeriod => {}
        }
    }
    if undo {
        push("go back to the last revision", format!("-n {namespace} rollout undo deployment/{name}"));
    }
    commands
}
