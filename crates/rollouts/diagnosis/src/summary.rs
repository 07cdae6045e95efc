//! State of a rollout in one sentence.

use kcm_clock::Timestamp;

use crate::{
    cause::Cause,
    diagnosis::{Diagnosis, Replicas, State},
    duration::short,
    finding::{Effect, Finding},
};

/// Describes the state in one sentence. `moves` is `true` if a controller has work to do.
pub(crate) fn summary(diagnosis: &Diagnosis, now: Timestamp, moves: bool) -> String {
    let Replicas { desired, updated, available, total } = diagnosis.replicas;
    let ago = |at: Timestamp| short(now.duration_since(at));
    let until = |at: Timestamp| short(at.duration_since(now));
    let counts = format!("{updated} of {desired} pods updated, {available} available");
    let first = diagnosis.findings.iter().find(|finding| finding.effect != Effect::Note);
    let what = first.map_or_else(String::new, phrase);
    let since =
        diagnosis.last_progress.map(|at| format!(", last progress {} ago", ago(at))).unwrap_or_default();
    match diagnosis.state {
        State::Complete => format!("Complete: {counts}."),
        State::Paused => format!("Paused: {counts}."),
        // The status is that of a complete rollout, and no object contradicts it.
        State::Unknown
            if [updated, available, total] == [desired; 3]
                && diagnosis.findings.iter().all(|one| one.cause != Cause::StatusOutdated) =>
        {
            format!("It is unknown if the rollout is complete: {counts}{since}.")
        }
        State::Unknown => format!("The reason why the rollout is not complete is unknown: {counts}{since}."),
        State::Stuck => {
            let deadline = diagnosis.deadline.filter(|at| *at > now);
            let deadline = deadline.map(|at| format!("; will fail its deadline in {}", until(at)));
            format!("Stuck because {what}{}: {counts}.", deadline.unwrap_or_default())
        }
        State::DeadlineExceeded if what.is_empty() => {
            format!("Progress deadline exceeded: {counts}{since}.")
        }
        State::DeadlineExceeded => format!("Progress deadline exceeded because {what}: {counts}{since}."),
        State::Progressing => {
            let expected = diagnosis
                .expected
                .map(|at| format!("; next step expected in {}", until(at)))
                .unwrap_or_default();
            let blocked = first.filter(|finding| finding.effect == Effect::Blocks);
            match (blocked, first) {
                (None, Some(_)) if !moves => {
                    format!("Waiting because {what}{expected}: {counts}{since}.")
                }
                _ => format!("Progressing: {counts}{since}{expected}."),
            }
        }
    }
}

/// Finding as a clause of a sentence.
fn phrase(finding: &Finding) -> String {
    let count = finding.pods.len();
    let pods = if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") };
    let verb = |one: &'static str, many: &'static str| if count == 1 { one } else { many };
    match finding.cause {
        Cause::DeploymentDeleted => "it is being deleted".to_owned(),
        Cause::ReplicaSetDeleted => "the new ReplicaSet is being deleted".to_owned(),
        Cause::NamespaceTerminating => "the namespace is being deleted".to_owned(),
        Cause::EmptySelector => "the selector is empty".to_owned(),
        Cause::ControllerNotRunning => "its controller does not run or lead".to_owned(),
        Cause::ReplicaSetControllerNotRunning => "the ReplicaSet controller does not run or lead".to_owned(),
        Cause::Paused => "the Deployment is paused".to_owned(),
        Cause::OnDelete => format!("{pods} {} to be deleted (OnDelete)", verb("has", "have")),
        Cause::ReplicaSetCreateFailed => "the new ReplicaSet cannot be created".to_owned(),
        Cause::ReplicaSetUpdateFailed => "a ReplicaSet cannot be updated".to_owned(),
        Cause::DesiredReplicasAnnotation => "an annotation of a ReplicaSet is wrong".to_owned(),
        Cause::QuotaExceeded => "a quota refuses new pods".to_owned(),
        Cause::LimitRange => "a limit range refuses new pods".to_owned(),
        Cause::AdmissionWebhook => "an admission webhook refuses new pods".to_owned(),
        Cause::PodSecurity => "Pod Security refuses new pods".to_owned(),
        Cause::CreateRefused => "the API server refuses new pods".to_owned(),
        Cause::DeleteRefused => "the API server refuses to delete pods".to_owned(),
        Cause::CreateBackOff => "the ReplicaSet controller waits for its back-off".to_owned(),
        Cause::Unschedulable => format!("{pods} cannot be scheduled"),
        Cause::SchedulingGated => format!("{pods} {} a scheduling gate", verb("has", "have")),
        Cause::SchedulerNotRunning => format!("no scheduler processes {pods}"),
        Cause::NodeLost => format!("the node of {pods} is lost"),
        Cause::ImagePull => format!("{pods} cannot pull {} image", verb("its", "their")),
        Cause::ImagePulling => format!("{pods} {} {} image", verb("pulls", "pull"), verb("its", "their")),
        Cause::ContainerConfig => format!("{pods} cannot create a container"),
        Cause::VolumeMount => format!("{pods} cannot mount a volume"),
        Cause::PodSandbox => format!("the sandbox of {pods} cannot be created"),
        Cause::InitContainer => format!("an init container of {pods} has not completed"),
        Cause::CrashLoop => format!("{pods} {}", verb("crashes", "crash")),
        Cause::ProbeKill => format!("a probe kills the containers of {pods}"),
        Cause::PodFailed => format!("{pods} failed"),
        Cause::ProbeFailing => format!("{pods} {} not become ready", verb("does", "do")),
        Cause::ReadinessGate => format!("a readiness gate of {pods} is not true"),
        Cause::PodStarting => format!("{pods} {}", verb("starts", "start")),
        Cause::MinReadySeconds => format!("{pods} must be ready for minReadySeconds"),
        Cause::TerminatingFinalizer => format!("a finalizer holds {pods}"),
        Cause::TerminatingGracePeriod => format!("{pods} {} terminating", verb("is", "are")),
        Cause::TerminatingOverdue => format!("{pods} {} not stopped", verb("has", "have")),
        Cause::StatusOutdated => "the status is not updated".to_owned(),
        Cause::OrdinalOrder => "pods wait for their order".to_owned(),
        Cause::Partition => "a partition holds pods".to_owned(),
        Cause::SelectorOverlap => "selectors overlap".to_owned(),
        Cause::ReplicasOverwritten => "another client writes spec.replicas".to_owned(),
        Cause::DisruptionBudget => "a disruption budget refuses evictions".to_owned(),
        Cause::WarningEvent => "of an event".to_owned(),
        Cause::Unknown => "of an unknown cause".to_owned(),
    }
}
