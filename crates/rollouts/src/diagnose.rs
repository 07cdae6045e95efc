//! Diagnosis of one rollout.

use std::{collections::BTreeSet, sync::Arc};

use jiff::SignedDuration;
use kcm_api::{Deployment, ReplicaSet};
use kcm_clock::Timestamp;
use kcm_deployment_controller::{Action, BlockedOn, Plan, PlanEnd, View, plan_assuming_success};
use kcm_deployment_util::{
    conditions::reason,
    fenceposts,
    replica_sets::{ReplicaSetSplit, available_replica_count, replica_count},
    rollout,
};
use serde_json::Value;
use thiserror::Error;

use crate::{
    cause::Cause,
    commands::commands,
    diagnosis::{API_VERSION, Bounds, Diagnosis, Replicas, State},
    duration::short,
    finding::{Effect, Finding, add},
    json::{list, text, time},
    others,
    pods::{self, PodContext},
    refusal,
    snapshot::Snapshot,
    summary::summary,
};

/// Time without changes after which a pending write means that the controller does not run.
const CONTROLLER_PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Object that cannot be decoded.
#[derive(Debug, Error)]
#[error("failed to decode {kind} {name}: {source}")]
pub struct DiagnoseError {
    kind: &'static str,
    name: String,
    source: serde_json::Error,
}

/// Explains the state of the rollout of `deployment` at `now`, the time at which `snapshot` of its namespace was read.
///
/// # Errors
///
/// If the Deployment or one of its ReplicaSets cannot be decoded.
pub fn diagnose(snapshot: &Snapshot, deployment: &Value, now: Timestamp) -> Result<Diagnosis, DiagnoseError> {
    let rollout = Rollout::new(snapshot, deployment, now)?;
    Ok(rollout.diagnose())
}

fn decode<T: serde::de::DeserializeOwned>(kind: &'static str, object: &Value) -> Result<T, DiagnoseError> {
    serde_json::from_value(object.clone()).map_err(|source| DiagnoseError {
        kind,
        name: text(object, "/metadata/name").to_owned(),
        source,
    })
}

/// UID of the managing controller.
pub(crate) fn controller(object: &Value) -> Option<&str> {
    let owners = list(object, "/metadata/ownerReferences").iter();
    owners.filter(|owner| owner["controller"] == true).find_map(|owner| owner["uid"].as_str())
}

/// Deployment with its objects.
pub(crate) struct Rollout<'a> {
    snapshot: &'a Snapshot,
    object: &'a Value,
    now: Timestamp,
    deployment: Arc<Deployment>,
    sets: ReplicaSetSplit,
    plan: Plan,
    min_ready: SignedDuration,
}

impl<'a> Rollout<'a> {
    fn new(snapshot: &'a Snapshot, object: &'a Value, now: Timestamp) -> Result<Self, DiagnoseError> {
        let deployment: Arc<Deployment> = Arc::new(decode("deployment", object)?);
        let uid = &*deployment.metadata.uid;
        let owned = snapshot.replica_sets.iter().filter(|set| controller(set) == Some(uid));
        let replica_sets: Vec<Arc<ReplicaSet>> =
            owned.map(|set| decode("replica set", set).map(Arc::new)).collect::<Result<_, _>>()?;
        let sets = ReplicaSetSplit::find(&deployment, &replica_sets);
        let active = snapshot.pods.iter().filter(|pod| !pods::is_finished(pod)).filter_map(controller);
        let running: BTreeSet<Arc<str>> = active
            .filter(|owner| replica_sets.iter().any(|set| *set.metadata.uid == **owner))
            .map(Arc::from)
            .collect();
        let terminating_replicas = deployment.status.terminating_replicas.is_some();
        let view = View {
            deployment: Arc::clone(&deployment),
            replica_sets,
            running,
            unobserved_scale_downs: BTreeSet::new(),
            terminating_replicas,
            coalesce_status_writes: false,
        };
        let plan = plan_assuming_success(&view, now);
        let min_ready = SignedDuration::from_secs(i64::from(deployment.spec.min_ready_seconds));
        Ok(Self { snapshot, object, now, deployment, sets, plan, min_ready })
    }

    fn diagnose(&self) -> Diagnosis {
        let mut findings: Vec<Finding> = self.held_deployment().into_iter().collect();
        // Neither is reconciled, and neither can be seen in the status.
        let ignored =
            |finding: &Finding| matches!(finding.cause, Cause::DeploymentDeleted | Cause::EmptySelector);
        let complete = self.is_observed()
            && rollout::is_complete(&self.deployment, &self.deployment.status)
            && !self.writes_replica_sets()
            && (!self.deployment.spec.paused || self.is_rolled_out())
            && !findings.iter().any(ignored);
        if complete {
            findings.clear();
        }
        if !complete {
            if findings.iter().all(|finding| finding.effect == Effect::Note) {
                self.hold_replica_sets(&mut findings);
            }
            self.hold_pods(&mut findings);
        }
        findings.extend(others::notes(self.snapshot, self.object));
        if !complete {
            findings.extend(others::disruption_budgets(self.snapshot, self.object));
        }
        let state = self.state(complete, &mut findings);
        findings.sort_by_key(|finding| (finding.effect, finding.cause));
        let deadline = self.deadline().filter(|_| state == State::Progressing || state == State::Stuck);
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
            namespace: self.deployment.metadata.namespace.to_string(),
            name: self.deployment.metadata.name.to_string(),
            state,
            cause: cause.filter(|_| state != State::Complete),
            summary: String::new(),
            replicas: self.replicas(),
            last_progress: self.last_progress(),
            deadline,
            expected: expected.filter(|_| state == State::Progressing),
            bounds: self.bounds().filter(|_| !complete),
            next: self.next(),
            controllers: Vec::new(),
            commands: Vec::new(),
            findings,
            unreadable: self.snapshot.unreadable.clone(),
        };
        diagnosis.summary = summary(&diagnosis, self.now, self.moves());
        diagnosis.commands = commands(&diagnosis);
        diagnosis
    }

    /// Chooses the state. Adds a finding if a rollout is stuck without one.
    fn state(&self, complete: bool, findings: &mut Vec<Finding>) -> State {
        if complete {
            return State::Complete;
        }
        let has = |effect| findings.iter().any(|finding| finding.effect == effect);
        if self.deployment.spec.paused
            && has(Effect::Blocks)
            && findings.iter().any(|f| f.cause == Cause::Paused)
        {
            return State::Paused;
        }
        let condition = self.deployment.condition("Progressing");
        if condition.is_some_and(|one| one.status == "False" && one.reason == reason::TIMED_OUT)
            && self.is_observed()
        {
            return State::DeadlineExceeded;
        }
        let held = findings.iter().any(|finding| holds_all(finding.cause));
        if held || (has(Effect::Blocks) && !has(Effect::Delays) && !self.moves()) {
            return State::Stuck;
        }
        if !has(Effect::Blocks) && !has(Effect::Delays) && !self.moves() && self.idle() > CONTROLLER_PATIENCE
        {
            findings.push(Finding::blocks(
                Cause::Unknown,
                "No cause was found in the objects that could be read.",
            ));
            return State::Stuck;
        }
        State::Progressing
    }

    /// `true` if a controller has work to do, and nothing refuses it.
    fn moves(&self) -> bool {
        self.writes_replica_sets() || !self.is_observed() || self.replica_sets_pending().next().is_some()
    }

    fn is_observed(&self) -> bool {
        self.deployment.status.observed_generation >= self.deployment.metadata.generation
    }

    /// `true` if the Deployment controller scales, creates or deletes ReplicaSets next.
    fn writes_replica_sets(&self) -> bool {
        self.plan.actions.iter().any(|planned| {
            matches!(planned.action, Action::CreateReplicaSet(_) | Action::UpdateReplicaSet(_))
        })
    }

    /// ReplicaSets that their controller has not processed yet, without those with refused creations.
    fn replica_sets_pending(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.sets.all().filter(|set| {
            let behind = set.status.observed_generation < set.metadata.generation;
            let failed = set.condition("ReplicaFailure").is_some_and(|one| one.status == "True");
            !failed && (behind || set.status.replicas != set.replicas() || self.counts_differ(set))
        })
    }

    /// `true` if the status of a ReplicaSet differs from its pods.
    fn counts_differ(&self, set: &ReplicaSet) -> bool {
        if self.snapshot.unreadable.iter().any(|one| one.resource == "pods") {
            return false;
        }
        let own = self.snapshot.pods.iter().filter(|pod| controller(pod) == Some(&*set.metadata.uid));
        let active: Vec<&Value> =
            own.filter(|pod| !pods::is_finished(pod) && !pods::is_terminating(pod)).collect();
        let available = active.iter().filter(|pod| pods::is_available(pod, self.min_ready, self.now)).count();
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        (count(active.len()), count(available)) != (set.status.replicas, set.status.available_replicas)
    }

    /// Time since the last change of the Deployment, its ReplicaSets and pods.
    fn idle(&self) -> SignedDuration {
        let uids: Vec<&str> = self.sets.all().map(|set| &*set.metadata.uid).collect();
        let own = |object: &&Value| {
            let owner = controller(object);
            owner == Some(&*self.deployment.metadata.uid) || owner.is_some_and(|owner| uids.contains(&owner))
        };
        let sets = self.snapshot.replica_sets.iter().filter(own);
        let pods = self.snapshot.pods.iter().filter(own);
        let objects = sets.chain(pods).chain([self.object]);
        let newest = objects.flat_map(last_changes).filter(|at| *at <= self.now).max();
        // Availability after minReadySeconds is a change without a write.
        let ready = self.snapshot.pods.iter().filter(own).filter_map(pods::ready_since);
        let available = ready.filter_map(|since| since.saturating_add(self.min_ready).ok());
        let newest = newest.into_iter().chain(available.filter(|at| *at <= self.now)).max();
        newest.map_or(SignedDuration::ZERO, |newest| self.now.duration_since(newest))
    }

    /// Finds causes in the Deployment itself.
    fn held_deployment(&self) -> Option<Finding> {
        let deployment = &self.deployment;
        if deployment.metadata.deletion_timestamp.is_some() {
            let finalizers: Vec<&str> =
                list(self.object, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
            let text = format!("The Deployment is being deleted; finalizers: {}.", finalizers.join(", "));
            return Some(Finding::blocks(Cause::DeploymentDeleted, text));
        }
        let idle = self.idle();
        if !self.is_observed() {
            let (observed, generation) =
                (deployment.status.observed_generation, deployment.metadata.generation);
            let text = format!("The controller has observed generation {observed} of {generation}.");
            let waits = self.last_change_of_spec().map(|at| self.now.duration_since(at));
            return waits
                .filter(|waits| *waits > CONTROLLER_PATIENCE)
                .map(|waits| self.controller_not_running(&text, waits));
        }
        let blocked_on = match &self.plan.end {
            PlanEnd::Done(Ok(outcome)) => Some(outcome.blocked_on),
            _ => None,
        };
        match blocked_on {
            Some(BlockedOn::Selector) => {
                let text = "The selector is empty; the controller ignores the Deployment.";
                return Some(Finding::blocks(Cause::EmptySelector, text));
            }
            Some(BlockedOn::DesiredReplicasAnnotation) => {
                let text = "A ReplicaSet has another value in the annotation desired-replicas. The controller takes \
                            the Deployment for scaled in each sync, and starts no rollout.";
                return Some(Finding::blocks(Cause::DesiredReplicasAnnotation, text));
            }
            _ => {}
        }
        if deployment.spec.paused && !self.is_rolled_out() {
            return Some(Finding::blocks(
                Cause::Paused,
                "spec.paused is true: template changes are not rolled out.",
            ));
        }
        let progressing = deployment.condition("Progressing");
        if let Some(failed) =
            progressing.filter(|one| one.status == "False" && one.reason == reason::FAILED_REPLICA_SET_CREATE)
        {
            return Some(Finding::blocks(Cause::ReplicaSetCreateFailed, failed.message.clone()));
        }
        (self.writes_replica_sets() && idle > CONTROLLER_PATIENCE)
            .then(|| self.controller_not_running("The controller has writes to make, and makes none.", idle))
    }

    /// Time of the last change of the spec, from `managedFields`. `None` if it is not recorded.
    fn last_change_of_spec(&self) -> Option<Timestamp> {
        let entries = list(self.object, "/metadata/managedFields").iter();
        let written =
            entries.filter(|entry| text(entry, "/subresource") != "status").filter_map(|e| time(e, "/time"));
        let created = time(self.object, "/metadata/creationTimestamp");
        written.max().or(created.filter(|_| self.deployment.metadata.generation <= 1))
    }

    fn controller_not_running(&self, what: &str, idle: SignedDuration) -> Finding {
        let text = format!("{what} Nothing has changed for {}. {}", short(idle), self.lease());
        Finding::blocks(Cause::ControllerNotRunning, text.trim_end())
    }

    /// State of the leader election of kube-controller-manager.
    fn lease(&self) -> String {
        let Some(lease) = &self.snapshot.lease else { return String::new() };
        let holder = text(lease, "/spec/holderIdentity");
        if holder.is_empty() {
            return "No kube-controller-manager leads.".to_owned();
        }
        match time(lease, "/spec/renewTime").map(|renewed| self.now.duration_since(renewed)) {
            Some(age) if age > SignedDuration::from_secs(15) => {
                format!("The leader {holder} has not renewed its lease for {}.", short(age))
            }
            _ => format!("The lease of kube-controller-manager is held by {holder}."),
        }
    }

    /// `true` if the new ReplicaSet exists and no old pod is left.
    fn is_rolled_out(&self) -> bool {
        self.sets.new.is_some() && replica_count(&self.sets.old) == 0
    }

    /// Finds causes in the ReplicaSets: refused creations, and a controller that does not run.
    fn hold_replica_sets(&self, findings: &mut Vec<Finding>) {
        let uids: Vec<&str> = self.sets.new.iter().map(|set| &*set.metadata.uid).collect();
        let objects = self.snapshot.replica_sets.iter();
        for set in objects.filter(|set| uids.contains(&text(set, "/metadata/uid"))) {
            let Some(mut refused) = refusal::explain(self.snapshot, set) else { continue };
            if refused.cause == Cause::QuotaExceeded && refusal::terminating(self.snapshot) > 0 {
                refused.effect = Effect::Delays;
                refused.message.push_str(" Terminating pods will free some of it.");
            }
            findings.push(refused);
        }
        let idle = self.idle();
        if idle > CONTROLLER_PATIENCE
            && !self.writes_replica_sets()
            && let Some(set) = self.replica_sets_pending().next()
        {
            let (has, wants) = (set.status.replicas, set.replicas());
            let text = format!(
                "ReplicaSet {} of {wants} pods reports {has}, and its status is not updated; nothing has changed for {}. {}",
                set.metadata.name,
                short(idle),
                self.lease(),
            );
            findings.push(Finding::blocks(Cause::ReplicaSetControllerNotRunning, text.trim_end()));
        }
    }

    /// Finds causes in the pods that hold the rollout: those of the new ReplicaSet, and for Recreate the old ones.
    fn hold_pods(&self, findings: &mut Vec<Finding>) {
        let context = PodContext {
            snapshot: self.snapshot,
            now: self.now,
            min_ready: self.min_ready,
            ready_after: self.usual_time_to_readiness(),
        };
        let new = self.sets.new.as_ref().map(|set| &*set.metadata.uid);
        let (mut failed, mut active) = (Vec::new(), false);
        for pod in self.snapshot.pods.iter().filter(|pod| new.is_some() && controller(pod) == new) {
            if pods::is_terminating(pod) {
                continue;
            }
            let Some(finding) = pods::explain(pod, context) else { continue };
            if finding.cause == Cause::PodFailed {
                failed.push(finding);
            } else {
                active = true;
                add(findings, finding);
            }
        }
        for finding in failed {
            // The ReplicaSet controller replaces a failed pod.
            let effect = if active { Effect::Note } else { Effect::Delays };
            add(findings, Finding { effect, ..finding });
        }
        let blocked_on_old = matches!(
            &self.plan.end,
            PlanEnd::Done(Ok(outcome)) if outcome.blocked_on == BlockedOn::OldPods
        );
        if blocked_on_old {
            let old: Vec<&str> = self.sets.old.iter().map(|set| &*set.metadata.uid).collect();
            let own = |pod: &&Value| controller(pod).is_some_and(|owner| old.contains(&owner));
            for pod in self.snapshot.pods.iter().filter(own).filter(|pod| pods::is_terminating(pod)) {
                add(findings, pods::explain_terminating(pod, context));
            }
        }
    }

    /// Median time from creation to readiness of the pods that are ready and have not restarted.
    fn usual_time_to_readiness(&self) -> Option<SignedDuration> {
        let uids: Vec<&str> = self.sets.all().map(|set| &*set.metadata.uid).collect();
        let own = |pod: &&Value| controller(pod).is_some_and(|owner| uids.contains(&owner));
        let fresh =
            |pod: &&Value| list(pod, "/status/containerStatuses").iter().all(|one| one["restartCount"] == 0);
        let mut times: Vec<SignedDuration> = self
            .snapshot
            .pods
            .iter()
            .filter(own)
            .filter(fresh)
            .filter_map(|pod| {
                let created = time(pod, "/metadata/creationTimestamp")?;
                Some(pods::ready_since(pod)?.duration_since(created))
            })
            .collect();
        times.sort();
        times.get(times.len() / 2).copied()
    }

    fn replicas(&self) -> Replicas {
        let status = &self.deployment.status;
        Replicas {
            desired: self.deployment.replicas(),
            updated: status.updated_replicas,
            available: status.available_replicas,
            total: status.replicas,
        }
    }

    fn last_progress(&self) -> Option<Timestamp> {
        let condition = self.deployment.condition("Progressing")?;
        condition.last_update_time.map(kcm_api::Time::timestamp)
    }

    fn deadline(&self) -> Option<Timestamp> {
        let condition = self.deployment.condition("Progressing")?;
        if condition.status == "False"
            || condition.reason == reason::NEW_REPLICA_SET_AVAILABLE
            || self.deployment.spec.paused
        {
            return None;
        }
        let deadline = SignedDuration::from_secs(i64::from(rollout::progress_deadline(&self.deployment)?));
        self.last_progress()?.saturating_add(deadline).ok()
    }

    fn bounds(&self) -> Option<Bounds> {
        let deployment = &self.deployment;
        if !fenceposts::is_rolling_update(deployment) || deployment.spec.paused {
            return None;
        }
        let new = self.sets.new.as_deref()?;
        if replica_count(&self.sets.old) == 0 {
            return None;
        }
        let (max_surge, max_unavailable) =
            (fenceposts::max_surge(deployment), fenceposts::max_unavailable(deployment));
        let total = replica_count(self.sets.all());
        let max_total = deployment.replicas().saturating_add(max_surge);
        let available = available_replica_count(self.sets.all());
        let min_available = fenceposts::min_available(deployment);
        let surge_used_up = total >= max_total && new.replicas() < deployment.replicas();
        let no_availability_to_spare = available <= min_available;
        let rolling = deployment.spec.strategy.rolling_update.as_ref();
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        // Percentages can round to zero.
        let both_zero = max_surge == 0
            && max_unavailable == 1
            && unavailable.is_some_and(|value| !matches!(serde_json::to_value(value), Ok(Value::Number(_))));
        let mut message = Vec::new();
        if surge_used_up {
            message.push(format!("No new pod: {total} of at most {max_total} exist (maxSurge {max_surge})."));
        }
        if no_availability_to_spare {
            message.push(format!(
                "No old pod can go: {available} available, {min_available} required (maxUnavailable {max_unavailable})."
            ));
        }
        if both_zero {
            message.push("Both bounds round to zero; the controller uses maxUnavailable 1.".to_owned());
        }
        (!message.is_empty()).then(|| Bounds {
            surge_used_up,
            no_availability_to_spare,
            both_zero,
            message: message.join(" "),
        })
    }

    /// Writes of the controllers for the objects as they are.
    fn next(&self) -> Vec<String> {
        let writes =
            self.plan.actions.iter().filter(|planned| !matches!(planned.action, Action::RecordEvent { .. }));
        let mut next: Vec<String> = writes.map(ToString::to_string).collect();
        for set in self.replica_sets_pending() {
            let difference = i64::from(set.replicas()) - i64::from(set.status.replicas);
            let verb = if difference > 0 { "create" } else { "delete" };
            if difference != 0 {
                next.push(format!("{verb} {} pods of replica set {}", difference.abs(), set.metadata.name));
            }
        }
        match &self.plan.end {
            PlanEnd::Done(Ok(outcome)) => next.push(format!("then wait for {}", outcome.blocked_on)),
            PlanEnd::Done(Err(error)) => next.push(format!("fail: {error}")),
            PlanEnd::ResultRequired => {}
        }
        if next.len() == 1
            && let Some(last) = next.last_mut()
            && let Some(rest) = last.strip_prefix("then ")
        {
            *last = rest.to_owned();
        }
        next
    }
}

/// `true` if the cause holds the rollout even if pods become available.
fn holds_all(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::DeploymentDeleted
            | Cause::EmptySelector
            | Cause::ControllerNotRunning
            | Cause::ReplicaSetControllerNotRunning
            | Cause::DesiredReplicasAnnotation
            | Cause::ReplicaSetCreateFailed
    )
}

/// Times of the changes of an object, from its metadata and conditions.
fn last_changes(object: &Value) -> impl Iterator<Item = Timestamp> {
    let fields = ["/metadata/creationTimestamp", "/metadata/deletionTimestamp"];
    let managed = list(object, "/metadata/managedFields").iter().filter_map(|entry| time(entry, "/time"));
    let conditions =
        list(object, "/status/conditions").iter().filter_map(|one| time(one, "/lastTransitionTime"));
    let updates = list(object, "/status/conditions").iter().filter_map(|one| time(one, "/lastUpdateTime"));
    fields.into_iter().filter_map(|field| time(object, field)).chain(managed).chain(conditions).chain(updates)
}
