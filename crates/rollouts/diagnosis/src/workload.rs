//! Diagnosis of StatefulSets and DaemonSets.
//!
//! Their controllers write no conditions, so the causes come from the pods, from the update strategy and from events.

use jiff::SignedDuration;
use kcm_clock::Timestamp;
use serde_json::Value;

use crate::{
    cause::Cause,
    change,
    commands::{self, Subject},
    deletion,
    diagnosis::{API_VERSION, Diagnosis, Replicas, State, TemplateChange},
    due::{self, Leader},
    duration::short,
    finding::{Effect, Finding, add},
    index::Index,
    json::{controller, is_terminating, number, text, time},
    others,
    pods::{self, PodContext},
    refusal,
    snapshot::Snapshot,
    summary::summary,
};

/// Causes that hold the rollout even if pods become available.
const HOLD_ALL: [Cause; 3] =
    [Cause::DeploymentDeleted, Cause::NamespaceTerminating, Cause::ControllerNotRunning];

/// Kind of a workload whose controller creates the pods itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A StatefulSet of `apps/v1`.
    StatefulSet,
    /// A DaemonSet of `apps/v1`.
    DaemonSet,
}

impl Workload {
    /// Name of the resource in commands.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::StatefulSet => "statefulset",
            Self::DaemonSet => "daemonset",
        }
    }

    /// Plural name of the resource.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
        }
    }

    /// Label with the revision of a pod.
    const REVISION: &str = "/metadata/labels/controller-revision-hash";

    /// Numbers of pods in the status.
    fn replicas(self, object: &Value) -> Replicas {
        let count =
            |pointer: &str| number(object, pointer).and_then(|count| i32::try_from(count).ok()).unwrap_or(0);
        match self {
            Self::StatefulSet => Replicas {
                desired: number(object, "/spec/replicas")
                    .and_then(|count| i32::try_from(count).ok())
                    .unwrap_or(1),
                updated: count("/status/updatedReplicas"),
                available: count("/status/availableReplicas"),
                total: count("/status/replicas"),
            },
            Self::DaemonSet => Replicas {
                desired: count("/status/desiredNumberScheduled"),
                updated: count("/status/updatedNumberScheduled"),
                available: count("/status/numberAvailable"),
                total: count("/status/currentNumberScheduled"),
            },
        }
    }
}

/// Explains the state of a StatefulSet or DaemonSet at `now`, the time of the API server at which `snapshot` of its
/// namespace was read.
pub fn diagnose_workload(
    snapshot: &Snapshot,
    workload: Workload,
    object: &Value,
    now: Timestamp,
) -> Diagnosis {
    let index = Index::new(snapshot);
    let pods = index.pods_of(text(object, "/metadata/uid"));
    let replicas = workload.replicas(object);
    Rollout { index: &index, snapshot, workload, object, now, pods, replicas }.diagnose()
}

struct Rollout<'a> {
    index: &'a Index<'a>,
    snapshot: &'a Snapshot,
    workload: Workload,
    object: &'a Value,
    now: Timestamp,
    pods: &'a [&'a Value],
    replicas: Replicas,
}

impl<'a> Rollout<'a> {
    fn diagnose(&self) -> Diagnosis {
        let mut findings: Vec<Finding> =
            deletion::of(self.workload.resource(), self.object, self.now).into_iter().collect();
        findings.extend(deletion::of_namespace(self.snapshot, self.now));
        let (blocked, delayed) = self.hold_pods(&mut findings);
        let complete = self.is_complete() && findings.iter().all(|finding| finding.effect == Effect::Note);
        if complete {
            findings.clear();
        } else {
            findings.extend(self.refusal());
            findings.extend(self.on_delete());
            findings.extend(self.overdue(&findings));
        }
        findings.extend(self.partition());
        if !complete && blocked + delayed > 0 {
            findings.extend(self.order());
        }
        let state = self.state(complete, delayed, &mut findings);
        if state != State::Complete {
            let pods = self.pods.iter().copied().filter(|pod| !is_terminating(pod));
            let warnings = others::warnings(self.index, self.now, pods, [self.object].into_iter(), &findings);
            findings.extend(warnings);
        }
        findings.sort_by_key(|finding| (finding.effect, finding.cause));
        let findings: Vec<Finding> = findings.into_iter().map(Finding::with_restarts).collect();
        let delays = findings.iter().filter(|finding| finding.effect == Effect::Delays);
        let expected = delays.filter_map(|finding| finding.until).filter(|until| *until >= self.now).min();
        let cause =
            findings.iter().find(|finding| finding.effect != Effect::Note).map(|finding| finding.cause);
        let (namespace, name) =
            (text(self.object, "/metadata/namespace"), text(self.object, "/metadata/name"));
        let mut diagnosis = Diagnosis {
            api_version: API_VERSION,
            kind: "RolloutDiagnosis",
            resource: self.workload.resource(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            state,
            cause: cause.filter(|_| state != State::Complete),
            summary: String::new(),
            replicas: self.replicas,
            changed: self.last_change().filter(|_| !complete),
            last_progress: None,
            deadline: None,
            expected: expected.filter(|_| state == State::Progressing),
            bounds: None,
            findings,
            next: Vec::new(),
            controllers: Vec::new(),
            commands: Vec::new(),
            unreadable: self.snapshot.unread_for_workload().into_iter().cloned().collect(),
        };
        diagnosis.summary = summary(&diagnosis, self.now, self.moves());
        let subject = Subject { resource: self.workload.resource(), namespace, name };
        diagnosis.commands = commands::of_workload(&subject, &diagnosis);
        diagnosis
    }

    /// Last change of the pod template. `None` if it or the ControllerRevisions are not known.
    fn last_change(&self) -> Option<TemplateChange> {
        let uid = Some(text(self.object, "/metadata/uid"));
        let revisions = self.snapshot.controller_revisions.known()?.iter();
        let own: Vec<&Value> = revisions.filter(|revision| controller(revision) == uid).collect();
        let (at, manager) = change::last_change_of_template(self.object, &own)?;
        Some(TemplateChange { at, manager })
    }

    fn min_ready(&self) -> SignedDuration {
        SignedDuration::from_secs(number(self.object, "/spec/minReadySeconds").unwrap_or(0))
    }

    fn is_observed(&self) -> bool {
        number(self.object, "/status/observedGeneration") >= number(self.object, "/metadata/generation")
    }

    /// First ordinal that is updated.
    fn first_updated(&self) -> i64 {
        number(self.object, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0)
    }

    fn is_on_delete(&self) -> bool {
        text(self.object, "/spec/updateStrategy/type") == "OnDelete"
    }

    /// Revision of updated pods. `None` if it is unknown. Empty if no pod has it.
    fn update_revision(&self) -> Option<&'a str> {
        let revision = match self.workload {
            Workload::StatefulSet => text(self.object, "/status/updateRevision"),
            Workload::DaemonSet if self.is_observed() && self.replicas.updated == 0 => return Some(""),
            // The newest pod has the newest revision.
            Workload::DaemonSet => {
                let newest = self.pods.iter().max_by_key(|pod| time(pod, "/metadata/creationTimestamp"))?;
                text(newest, Workload::REVISION)
            }
        };
        (!revision.is_empty()).then_some(revision)
    }

    /// Pods that are to be replaced and are not yet.
    fn outdated(&self) -> Vec<&'a Value> {
        let Replicas { desired, updated, .. } = self.replicas;
        let kept = i32::try_from(self.first_updated()).unwrap_or(i32::MAX).min(desired);
        let Some(revision) = self.update_revision().filter(|_| updated < desired.saturating_sub(kept)) else {
            return Vec::new();
        };
        let old = self.pods.iter().filter(|pod| text(pod, Workload::REVISION) != revision);
        let replaced = old.filter(|pod| ordinal(pod).is_none_or(|ordinal| ordinal >= self.first_updated()));
        replaced.copied().collect()
    }

    /// `true` if the status and the pods agree that the rollout is complete.
    fn is_complete(&self) -> bool {
        let Replicas { desired, updated, available, .. } = self.replicas;
        let kept = match self.workload {
            Workload::StatefulSet => i32::try_from(self.first_updated()).unwrap_or(i32::MAX).min(desired),
            Workload::DaemonSet => 0,
        };
        let active = self.pods.iter().filter(|pod| pods::is_active(pod));
        let ready = active.filter(|pod| pods::is_available(pod, self.min_ready(), self.now)).count();
        self.snapshot.pods.is_known()
            && self.is_observed()
            && updated >= desired.saturating_sub(kept)
            && available >= desired
            && (self.workload == Workload::DaemonSet || self.replicas.total <= desired)
            && usize::try_from(desired).is_ok_and(|desired| ready >= desired)
            && self.outdated().is_empty()
    }

    fn hold_pods(&self, findings: &mut Vec<Finding>) -> (usize, usize) {
        let context = PodContext {
            index: self.index,
            now: self.now,
            min_ready: self.min_ready(),
            ready_after: None,
            is_rolled_out: self.outdated().is_empty(),
        };
        let (mut blocked, mut delayed) = (0, 0);
        for pod in self.pods {
            let found = match is_terminating(pod) {
                true => pods::explain_terminating(pod, context),
                false => pods::explain(pod, context),
            };
            match found.iter().map(|finding| finding.effect).min() {
                Some(Effect::Blocks) => blocked += 1,
                Some(Effect::Delays) => delayed += 1,
                _ => {}
            }
            for finding in found {
                add(findings, finding);
            }
        }
        (blocked, delayed)
    }

    /// Refused creation or deletion of a pod, from the newest event of the controller.
    fn refusal(&self) -> Option<Finding> {
        let reasons = ["FailedCreate", "FailedDelete", "SuccessfulCreate", "SuccessfulDelete"];
        let newest = self.index.events.newest(self.object, &reasons)?;
        match newest.reason {
            "FailedCreate" => Some(refusal::classify(self.snapshot, newest.message)),
            "FailedDelete" => Some(refusal::deletion(newest.message)),
            _ => None,
        }
    }

    /// Pods that are replaced only after they were deleted.
    fn on_delete(&self) -> Option<Finding> {
        let outdated = self.outdated();
        if !self.is_on_delete() || outdated.is_empty() {
            return None;
        }
        let text = "The update strategy is OnDelete: a pod gets the new template when it is deleted.";
        let mut finding = Finding::blocks(Cause::OnDelete, text);
        finding.pods = outdated.iter().map(|pod| text_of_name(pod)).collect();
        Some(finding)
    }

    /// Ordinals that a partition keeps at the old revision.
    fn partition(&self) -> Option<Finding> {
        let first = self.first_updated();
        let (current, update) =
            (text(self.object, "/status/currentRevision"), text(self.object, "/status/updateRevision"));
        (first > 0 && current != update).then(|| {
            let text = format!(
                "The partition {first} keeps the pods with ordinals below {first} at the old revision."
            );
            Finding::note(Cause::Partition, text)
        })
    }

    /// The pod for which the others wait.
    fn order(&self) -> Option<Finding> {
        let is_ordered = text(self.object, "/spec/podManagementPolicy") != "Parallel";
        if self.workload != Workload::StatefulSet || !is_ordered || is_terminating(self.object) {
            return None;
        }
        let is_held =
            |pod: &&&Value| !pods::is_available(pod, self.min_ready(), self.now) || is_terminating(pod);
        let held = self.pods.iter().filter(is_held).max_by_key(|pod| ordinal(pod))?;
        let (name, at) = (text_of_name(held), ordinal(held)?);
        let missing = i64::from(self.replicas.desired)
            .saturating_sub(i64::try_from(self.pods.len()).unwrap_or(i64::MAX));
        let replaced = self.outdated().into_iter().filter(|_| !self.is_on_delete());
        let waiting = replaced.filter(|pod| ordinal(pod).is_some_and(|other| other < at)).count();
        let text = match (missing, waiting) {
            (1.., _) => {
                format!("Pods are created in their order: {missing} more wait until {name} is available.")
            }
            (_, 1..) => {
                format!(
                    "Pods are replaced one after the other, the last one first: {waiting} wait for {name}."
                )
            }
            _ => return None,
        };
        Some(Finding::note(Cause::OrdinalOrder, text).pod(&name))
    }

    /// Changes that the controller has not made.
    fn overdue(&self, findings: &[Finding]) -> Option<Finding> {
        if findings.iter().any(|finding| finding.effect == Effect::Blocks) || self.idle() <= due::PATIENCE {
            return None;
        }
        let (observed, generation) =
            (number(self.object, "/status/observedGeneration"), number(self.object, "/metadata/generation"));
        let exist = self.pods.iter().filter(|pod| pods::is_active(pod)).count();
        let what = if observed < generation {
            format!(
                "The controller has observed generation {} of {}.",
                observed.unwrap_or(0),
                generation.unwrap_or(0)
            )
        } else if self.snapshot.pods.is_known() && findings.is_empty() {
            format!("{exist} of {} pods exist.", self.replicas.desired)
        } else {
            return None;
        };
        let what = format!("{what} Nothing has changed for {}.", short(self.idle()));
        Some(match due::leader(self.snapshot, self.now) {
            Leader::Gone(lease) => Finding::blocks(Cause::ControllerNotRunning, format!("{what} {lease}")),
            Leader::Current(lease) | Leader::Unknown(lease) => {
                Finding::blocks(Cause::Unknown, format!("{what} {lease} The cause is unknown."))
            }
        })
    }

    fn idle(&self) -> SignedDuration {
        let objects = self.pods.iter().copied().chain([self.object]);
        let newest = objects.flat_map(crate::rollout::last_changes).filter(|at| *at <= self.now).max();
        newest.map_or(SignedDuration::ZERO, |at| self.now.duration_since(at))
    }

    fn moves(&self) -> bool {
        !self.is_observed() || !self.outdated().is_empty() && !self.is_on_delete()
    }

    fn state(&self, complete: bool, delayed: usize, findings: &mut Vec<Finding>) -> State {
        if complete {
            return State::Complete;
        }
        let has = |cause| {
            findings
                .iter()
                .any(|finding: &Finding| finding.cause == cause && finding.effect == Effect::Blocks)
        };
        let is_blocked =
            findings.iter().any(|one| one.effect == Effect::Blocks && one.cause != Cause::Unknown);
        // A blocked pod holds those that come after it.
        match () {
            () if has(Cause::OnDelete)
                && findings
                    .iter()
                    .all(|one| one.effect != Effect::Blocks || one.cause == Cause::OnDelete) =>
            {
                State::Paused
            }
            () if HOLD_ALL.into_iter().any(has) || is_blocked && delayed == 0 => State::Stuck,
            () if has(Cause::Unknown) && delayed == 0 => State::Unknown,
            () if !self.snapshot.pods.is_known() => {
                let text = "The cause is unknown without pods.";
                findings.push(Finding::blocks(Cause::Unknown, text));
                State::Unknown
            }
            () => State::Progressing,
        }
    }
}

fn text_of_name(object: &Value) -> String {
    text(object, "/metadata/name").to_owned()
}

/// Ordinal of a pod of a StatefulSet.
fn ordinal(pod: &Value) -> Option<i64> {
    text(pod, "/metadata/labels/apps.kubernetes.io~1pod-index").parse().ok().or_else(|| {
        let (_, number) = text(pod, "/metadata/name").rsplit_once('-')?;
        number.parse().ok()
    })
}
