//! Diagnosis of one rollout.

use jiff::SignedDuration;
use kcm_clock::Timestamp;
use kcm_deployment_controller::BlockedOn;
use kcm_deployment_util::{conditions::reason, rollout as status};
use serde_json::Value;

use crate::{
    cause::Cause,
    change,
    commands::commands,
    deletion,
    diagnosis::{API_VERSION, Diagnosis, State, TemplateChange},
    due,
    finding::{Effect, Finding, add},
    index::Index,
    json::{controller, is_terminating, text, time},
    others,
    pods::{self, PodContext},
    refusal,
    rollout::{DiagnoseError, Rollout},
    snapshot::Snapshot,
    summary::summary,
};

/// Age up to which a failed pod counts for [`MANY_FAILED`].
const RECENT: SignedDuration = SignedDuration::from_mins(10);
/// Failed pods of a ReplicaSet that is not available, from which on its pods are taken to fail always.
const MANY_FAILED: usize = 3;

/// Explains the state of the rollout of `deployment` at `now`, the time of the API server at which `snapshot` of its
/// namespace was read. For several rollouts of a namespace, use one [`Index`].
///
/// # Errors
///
/// If the Deployment or one of its ReplicaSets cannot be decoded.
pub fn diagnose(snapshot: &Snapshot, deployment: &Value, now: Timestamp) -> Result<Diagnosis, DiagnoseError> {
    Index::new(snapshot).diagnose(deployment, now)
}

/// Pods of a rollout that are not available.
#[derive(Default)]
struct Held {
    /// Pods that do not become available without an intervention.
    blocked: usize,
    /// Pods that become available after a time.
    delayed: usize,
}

impl Rollout<'_> {
    pub(crate) fn diagnose(&self) -> Diagnosis {
        let mut findings = deletion::explain(self);
        findings.extend(self.held_deployment());
        let refusals = self.refusals();
        let uses_quota = refusals.iter().any(|finding| finding.cause == Cause::QuotaExceeded);
        let held = self.hold_pods(&mut findings, uses_quota);
        let complete = self.is_complete() && findings.iter().all(|finding| finding.effect == Effect::Note);
        if !complete {
            findings.extend(refusals);
            findings.extend(due::explain(self, &findings));
        } else {
            findings.clear();
        }
        findings.extend(others::notes(self));
        if !complete {
            findings.extend(others::disruption_budgets(self));
        }
        let state = self.state(complete, &held, &mut findings);
        if state != State::Complete {
            let objects = self.set_objects.iter().copied().chain([self.object]);
            let warnings = others::warnings(self.index, self.now, self.new_pods(), objects, &findings);
            findings.extend(warnings);
        }
        findings.sort_by_key(|finding| (finding.effect, finding.cause));
        let findings: Vec<Finding> = findings.into_iter().map(Finding::with_restarts).collect();
        let deadline =
            self.deadline().filter(|_| matches!(state, State::Progressing | State::Stuck | State::Unknown));
        let expected = findings
            .iter()
            .filter(|finding| finding.effect == Effect::Delays)
            .filter_map(|finding| finding.until)
            .filter(|until| *until >= self.now)
            .min();
        let cause =
            findings.iter().find(|finding| finding.effect != Effect::Note).map(|finding| finding.cause);
        let mut diagnosis = Diagnosis {
            api_version: API_VERSION,
            kind: "RolloutDiagnosis",
            resource: "deployment",
            namespace: self.deployment.metadata.namespace.to_string(),
            name: self.deployment.metadata.name.to_string(),
            state,
            cause: cause.filter(|_| state != State::Complete),
            summary: String::new(),
            replicas: self.replicas(),
            changed: change::last_change_of_template(self.object, &self.set_objects)
                .map(|(at, manager)| TemplateChange { at, manager })
                .filter(|_| !complete && self.snapshot.replica_sets.is_known()),
            last_progress: self.last_progress(),
            deadline,
            expected: expected.filter(|_| state == State::Progressing),
            bounds: self.bounds().filter(|_| !complete),
            next: self.next(),
            controllers: self.snapshot.controllers.clone(),
            commands: Vec::new(),
            findings,
            unreadable: self.snapshot.unread().into_iter().cloned().collect(),
        };
        diagnosis.summary = summary(&diagnosis, self.now, self.moves());
        diagnosis.commands = commands(self, &diagnosis);
        diagnosis
    }

    /// `true` if the status, the ReplicaSets and the pods agree that the rollout is complete.
    fn is_complete(&self) -> bool {
        self.is_known()
            && self.is_observed()
            && status::is_complete(&self.deployment, &self.deployment.status)
            && !self.writes_replica_sets()
            && (!self.deployment.spec.paused || self.is_rolled_out())
            && self.differences().is_empty()
    }

    /// Chooses the state. Adds a finding if no cause explains it.
    fn state(&self, complete: bool, held: &Held, findings: &mut Vec<Finding>) -> State {
        if complete {
            return State::Complete;
        }
        let has = |cause| {
            findings
                .iter()
                .any(|finding: &Finding| finding.cause == cause && finding.effect == Effect::Blocks)
        };
        let is_explained = findings.iter().any(|finding| finding.effect != Effect::Note);
        if self.deployment.spec.paused && has(Cause::Paused) {
            return State::Paused;
        }
        let condition = self.deployment.condition("Progressing");
        if condition.is_some_and(|one| one.status == "False" && one.reason == reason::TIMED_OUT)
            && self.is_observed()
        {
            return State::DeadlineExceeded;
        }
        if findings.iter().any(|finding| holds_all(finding.cause) && finding.effect == Effect::Blocks) {
            return State::Stuck;
        }
        // The error of a sync explains an outdated status.
        let is_unclear = |cause| {
            cause == Cause::Unknown
                || cause == Cause::StatusOutdated && due::failed_sync(self.snapshot).is_none()
        };
        let mut blocking = findings.iter().filter(|finding| finding.effect == Effect::Blocks);
        let has_unclear = blocking.clone().any(|finding| is_unclear(finding.cause));
        let is_blocked = blocking.any(|finding| !is_unclear(finding.cause));
        let is_delayed = held.delayed > 0
            || findings.iter().any(|one| one.effect == Effect::Delays && one.pods.is_empty());
        // The controllers have to write a status that is outdated, and do not.
        let moves = if has(Cause::StatusOutdated) { self.writes_replica_sets() } else { self.moves() };
        if is_blocked && !is_delayed && !moves {
            return State::Stuck;
        }
        if has_unclear && !is_blocked && !is_delayed {
            return State::Unknown;
        }
        if !is_explained && !self.is_known() {
            let unread: Vec<String> =
                self.snapshot.unread().iter().map(|unread| unread.resource.clone()).collect();
            let text = format!("The cause is unknown without {}.", unread.join(", "));
            findings.push(Finding::blocks(Cause::Unknown, text));
            return State::Unknown;
        }
        if !is_explained && !self.moves() && self.idle() > due::PATIENCE {
            let text = "No cause was found in the objects that could be read.";
            findings.push(Finding::blocks(Cause::Unknown, text));
            return State::Unknown;
        }
        State::Progressing
    }

    /// `true` if a controller has work to do, and nothing refuses it.
    fn moves(&self) -> bool {
        self.writes_replica_sets() || !self.is_observed() || self.replica_sets_pending().next().is_some()
    }

    /// Finds causes in the Deployment itself.
    fn held_deployment(&self) -> Vec<Finding> {
        let deployment = &self.deployment;
        let mut found = Vec::new();
        if is_terminating(self.object) {
            return found;
        }
        if let Some(failed) = self.create_failure() {
            found.push(Finding::blocks(Cause::ReplicaSetCreateFailed, failed));
        }
        if !self.is_observed() {
            return found;
        }
        match self.blocked_on() {
            Some(BlockedOn::Selector) => {
                let text = "The selector is empty; the controller ignores the Deployment.";
                found.push(Finding::blocks(Cause::EmptySelector, text));
            }
            Some(BlockedOn::DesiredReplicasAnnotation) => {
                let text = "A ReplicaSet has another value in the annotation desired-replicas. The controller takes \
                            the Deployment for scaled in each sync, and starts no rollout.";
                found.push(Finding::blocks(Cause::DesiredReplicasAnnotation, text));
            }
            _ => {}
        }
        if deployment.spec.paused && !self.is_rolled_out() {
            let text = "spec.paused is true: template changes are not rolled out.";
            found.push(Finding::blocks(Cause::Paused, text));
        }
        found
    }

    /// Message of a ReplicaSet creation that failed after the last change of the spec. The controller reports it without the
    /// observed generation.
    fn create_failure(&self) -> Option<String> {
        let condition = self.deployment.condition("Progressing")?;
        let failed = condition.status == "False" && condition.reason == reason::FAILED_REPLICA_SET_CREATE;
        let at = condition.last_update_time.map(kcm_api::Time::timestamp);
        let is_current =
            self.is_observed() || at.zip(self.last_change_of_spec()).is_none_or(|(at, change)| at >= change);
        (failed && is_current).then(|| condition.message.clone())
    }

    /// Finds refused creations and deletions of pods, in the conditions of the ReplicaSets or of the Deployment.
    fn refusals(&self) -> Vec<Finding> {
        if self.snapshot.replica_sets.is_known() {
            let mut found: Vec<Finding> = Vec::new();
            for set in &self.set_objects {
                if let Some(refused) = refusal::explain(self.index, set, self.now)
                    && found.iter().all(|known| known.message != refused.message)
                {
                    found.push(refused);
                }
            }
            return found;
        }
        let failure = self.deployment.condition("ReplicaFailure").filter(|failure| failure.status == "True");
        let explain = |failure: &kcm_api::DeploymentCondition| match &*failure.reason {
            "FailedDelete" => refusal::deletion(&failure.message),
            _ => refusal::classify(self.snapshot, &failure.message),
        };
        failure.map(explain).into_iter().collect()
    }

    /// Finds causes in the pods that hold the rollout: those of the new ReplicaSet, and for Recreate the old ones.
    fn hold_pods(&self, findings: &mut Vec<Finding>, uses_quota: bool) -> Held {
        let context = PodContext {
            index: self.index,
            now: self.now,
            min_ready: self.min_ready,
            ready_after: self.usual_time_to_readiness(),
            is_rolled_out: self.is_rolled_out(),
        };
        let (mut failed, mut held, mut available, mut recently) = (Vec::new(), Held::default(), 0, 0_usize);
        let new_pods: Vec<&Value> = self.new_pods().filter(|pod| !is_terminating(pod)).collect();
        let mut explained: Vec<Vec<Finding>> =
            new_pods.iter().map(|pod| pods::explain(pod, context)).collect();
        pods::settle(&mut explained);
        let freed = self.room_is_freed();
        for (pod, mut found) in new_pods.into_iter().zip(explained) {
            for finding in &mut found {
                wait_for_room(finding, freed);
            }
            if found.iter().any(|finding| finding.cause == Cause::PodFailed) {
                let created = time(pod, "/metadata/creationTimestamp");
                recently += usize::from(created.is_some_and(|at| self.now.duration_since(at) < RECENT));
                failed.extend(found.into_iter().filter(|finding| finding.cause == Cause::PodFailed));
                continue;
            }
            match found.iter().map(|finding| finding.effect).min() {
                None => available += 1,
                Some(Effect::Blocks) => held.blocked += 1,
                Some(_) => held.delayed += 1,
            }
            for finding in found {
                add(findings, finding);
            }
        }
        // The ReplicaSet controller replaces a failed pod.
        let effect = match (recently, held.blocked + held.delayed, available) {
            (MANY_FAILED.., _, 0) => Effect::Blocks,
            (_, 0, 0) => Effect::Delays,
            _ => Effect::Note,
        };
        for finding in failed {
            add(findings, Finding { effect, ..finding });
        }
        self.hold_by_old_pods(findings, context, uses_quota, &mut held);
        held
    }

    /// Time at which the next terminating pod of the Deployment leaves its node. `None` if none does.
    fn room_is_freed(&self) -> Option<Timestamp> {
        let leaves = self.pods.iter().filter(|pod| {
            is_terminating(pod) && !pods::is_finished(pod) && !text(pod, "/spec/nodeName").is_empty()
        });
        let ends = leaves.filter_map(|pod| time(pod, "/metadata/deletionTimestamp"));
        ends.filter(|end| self.now.duration_since(*end) <= pods::REMOVAL_PATIENCE).min()
    }

    /// Finds terminating pods that hold a Recreate or that use a quota, and old pods on lost nodes.
    fn hold_by_old_pods(
        &self,
        findings: &mut Vec<Finding>,
        context: PodContext<'_>,
        uses_quota: bool,
        held: &mut Held,
    ) {
        let blocks = matches!(self.blocked_on(), Some(BlockedOn::OldPods));
        let new = self.new_set().map(|set| text(set, "/metadata/uid"));
        for pod in &self.pods {
            let is_old = controller(pod) != new;
            if is_terminating(pod) && (uses_quota || blocks && is_old) {
                let found = pods::explain_terminating(pod, context);
                match found.iter().map(|finding| finding.effect).min() {
                    Some(Effect::Blocks) if blocks => held.blocked += 1,
                    Some(_) if blocks => held.delayed += 1,
                    _ => {}
                }
                for finding in found {
                    add(findings, finding);
                }
            } else if is_old
                && pods::is_active(pod)
                && let Some(lost) = pods::lost_node(pod, context)
            {
                add(findings, Finding { effect: Effect::Note, ..lost });
            }
        }
    }
}

/// Makes an unschedulable pod a delay if a terminating pod frees room for it at `freed`.
fn wait_for_room(finding: &mut Finding, freed: Option<Timestamp>) {
    let room = ["Insufficient ", "Too many pods", "free ports", "anti-affinity"];
    let needs_room = room.iter().any(|part| finding.message.contains(part));
    if finding.cause == Cause::Unschedulable && needs_room && freed.is_some() {
        (finding.effect, finding.until) = (Effect::Delays, freed);
        let message = finding.message.trim_end_matches('.');
        finding.message = format!("{message}. Terminating pods of the Deployment will free some room.");
    }
}

/// `true` if the cause holds the rollout even if pods become available.
fn holds_all(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::DeploymentDeleted
            | Cause::ReplicaSetDeleted
            | Cause::NamespaceTerminating
            | Cause::EmptySelector
            | Cause::ControllerNotRunning
            | Cause::ReplicaSetControllerNotRunning
            | Cause::DesiredReplicasAnnotation
            | Cause::ReplicaSetCreateFailed
            | Cause::ReplicaSetUpdateFailed
            // Pods that replace failed ones fail, too.
            | Cause::PodFailed
    )
}
