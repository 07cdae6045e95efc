//! Deployment with its ReplicaSets and pods, and the next writes of its controllers.

use std::{collections::BTreeSet, sync::Arc};

use jiff::SignedDuration;
use kcm_api::{Deployment, ReplicaSet};
use kcm_clock::Timestamp;
use kcm_deployment_controller::{Action, BlockedOn, Plan, PlanEnd, View, plan_assuming_success};
use kcm_deployment_util::{
    conditions::reason,
    fenceposts,
    replica_sets::{ReplicaSetSplit, replica_count},
    rollout,
};
use serde_json::Value;
use thiserror::Error;

use crate::{
    diagnosis::{Bounds, Replicas},
    index::Index,
    json::{controller, is_terminating, list, text, time},
    pods,
    snapshot::Snapshot,
};

/// Difference between the clocks of the API server and of the controllers that is tolerated.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// Object that cannot be decoded.
#[derive(Debug, Error)]
#[error("failed to decode {kind} {name}: {source}")]
pub struct DiagnoseError {
    kind: &'static str,
    name: String,
    source: serde_json::Error,
}

fn decode<T: serde::de::DeserializeOwned>(kind: &'static str, object: &Value) -> Result<T, DiagnoseError> {
    serde_json::from_value(object.clone()).map_err(|source| DiagnoseError {
        kind,
        name: text(object, "/metadata/name").to_owned(),
        source,
    })
}

/// Deployment with its objects, as far as they could be read.
pub(crate) struct Rollout<'a> {
    pub(crate) index: &'a Index<'a>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) object: &'a Value,
    pub(crate) now: Timestamp,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) sets: ReplicaSetSplit,
    /// ReplicaSets that the Deployment controls.
    pub(crate) set_objects: Vec<&'a Value>,
    /// Pods of these ReplicaSets.
    pub(crate) pods: Vec<&'a Value>,
    /// Next writes. `None` if an object that they depend on could not be read.
    pub(crate) plan: Option<Plan>,
    pub(crate) min_ready: SignedDuration,
}

impl<'a> Rollout<'a> {
    pub(crate) fn new(
        index: &'a Index<'a>,
        object: &'a Value,
        now: Timestamp,
    ) -> Result<Self, DiagnoseError> {
        let snapshot = index.snapshot;
        let deployment: Arc<Deployment> = Arc::new(decode("deployment", object)?);
        let set_objects = index.replica_sets_of(&deployment.metadata.uid).to_vec();
        let replica_sets: Vec<Arc<ReplicaSet>> = set_objects
            .iter()
            .map(|set| decode("replica set", set).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let pods: Vec<&Value> =
            replica_sets.iter().flat_map(|set| index.pods_of(&set.metadata.uid)).copied().collect();
        let running: BTreeSet<Arc<str>> = pods
            .iter()
            .filter(|pod| !pods::is_finished(pod))
            .filter_map(|pod| controller(pod))
            .map(Arc::from)
            .collect();
        let sets = ReplicaSetSplit::find(&deployment, &replica_sets);
        let needs_pods = !fenceposts::is_rolling_update(&deployment);
        let is_plannable = snapshot.replica_sets.is_known() && (snapshot.pods.is_known() || !needs_pods);
        let plan = is_plannable.then(|| {
            let view = View {
                deployment: Arc::clone(&deployment),
                replica_sets,
                running,
                unobserved_scale_downs: BTreeSet::new(),
                terminating_replicas: deployment.status.terminating_replicas.is_some(),
                coalesce_status_writes: false,
            };
            plan_assuming_success(&view, now)
        });
        let min_ready = SignedDuration::from_secs(i64::from(deployment.spec.min_ready_seconds));
        Ok(Self { index, snapshot, object, now, deployment, sets, set_objects, pods, plan, min_ready })
    }

    /// `true` if the ReplicaSets and pods were read.
    pub(crate) fn is_known(&self) -> bool {
        self.snapshot.replica_sets.is_known() && self.snapshot.pods.is_known()
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.deployment.status.observed_generation >= self.deployment.metadata.generation
    }

    /// `true` if the new ReplicaSet exists and no old pod is left.
    pub(crate) fn is_rolled_out(&self) -> bool {
        if self.snapshot.replica_sets.is_known() {
            return self.sets.new.is_some() && replica_count(&self.sets.old) == 0;
        }
        let status = &self.deployment.status;
        let updated = status.updated_replicas;
        self.is_observed() && updated == status.replicas && updated == self.deployment.replicas()
    }

    /// Object of the new ReplicaSet.
    pub(crate) fn new_set(&self) -> Option<&'a Value> {
        let uid = &*self.sets.new.as_ref()?.metadata.uid;
        self.set_objects.iter().find(|set| text(set, "/metadata/uid") == uid).copied()
    }

    /// Pods of the new ReplicaSet.
    pub(crate) fn new_pods(&self) -> impl Iterator<Item = &'a Value> {
        let uid = self.new_set().map(|set| text(set, "/metadata/uid"));
        self.pods.iter().copied().filter(move |pod| uid.is_some() && controller(pod) == uid)
    }

    /// Bound or wait at which the plan of the Deployment controller ends.
    pub(crate) fn blocked_on(&self) -> Option<BlockedOn> {
        match &self.plan.as_ref()?.end {
            PlanEnd::Done(Ok(outcome)) => Some(outcome.blocked_on),
            _ => None,
        }
    }

    /// `true` if the Deployment controller scales, creates or deletes ReplicaSets next.
    pub(crate) fn writes_replica_sets(&self) -> bool {
        let actions = self.plan.iter().flat_map(|plan| &plan.actions);
        actions.into_iter().any(|planned| {
            matches!(planned.action, Action::CreateReplicaSet(_) | Action::UpdateReplicaSet(_))
        })
    }

    /// ReplicaSets that their controller has not processed yet, without those with refused writes and those that are being
    /// deleted.
    pub(crate) fn replica_sets_pending(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.sets.all().filter(|set| {
            let behind = set.status.observed_generation < set.metadata.generation;
            let failed = set.condition("ReplicaFailure").is_some_and(|one| one.status == "True");
            let deleted = set.metadata.deletion_timestamp.is_some();
            !failed
                && !deleted
                && (behind || set.status.replicas != set.replicas() || self.difference(set).is_some())
        })
    }

    /// Pods of the ReplicaSet that its controller counts.
    fn active(&self, set: &ReplicaSet) -> impl Iterator<Item = &'a Value> {
        let uid = Some(&*set.metadata.uid);
        self.pods.iter().copied().filter(move |pod| controller(pod) == uid && pods::is_active(pod))
    }

    /// `true` if the status of the ReplicaSet counts more pods than exist.
    pub(crate) fn misses_pods(&self, set: &ReplicaSet) -> bool {
        self.snapshot.pods.is_known()
            && usize::try_from(set.status.replicas).is_ok_and(|counted| counted > self.active(set).count())
    }

    /// Explains the difference between the status of a ReplicaSet and its pods. `None` if they agree, or if the pods could
    /// not be read.
    pub(crate) fn difference(&self, set: &ReplicaSet) -> Option<String> {
        self.snapshot.pods.known()?;
        let active: Vec<&Value> = self.active(set).collect();
        let available =
            |now: Timestamp| active.iter().filter(|pod| pods::is_available(pod, self.min_ready, now)).count();
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let soon = self.now.saturating_add(CLOCK_TOLERANCE).unwrap_or(self.now);
        let (now, soon) = (count(available(self.now)), count(available(soon)));
        let status = &set.status;
        let agrees =
            count(active.len()) == status.replicas && (now..=soon).contains(&status.available_replicas);
        (!agrees).then(|| {
            format!(
                "ReplicaSet {} reports {} pods, {} available; {} exist, {now} available.",
                set.metadata.name,
                status.replicas,
                status.available_replicas,
                active.len(),
            )
        })
    }

    /// Differences between the status of the Deployment, those of its ReplicaSets, and the pods.
    pub(crate) fn differences(&self) -> Vec<String> {
        let mut found: Vec<String> = self.sets.all().filter_map(|set| self.difference(set)).collect();
        if self.snapshot.replica_sets.is_known() {
            let status = &self.deployment.status;
            let sum = |count: fn(&ReplicaSet) -> i32| {
                self.sets.all().map(|set| count(set)).fold(0, i32::saturating_add)
            };
            let (replicas, available) =
                (sum(|set| set.status.replicas), sum(|set| set.status.available_replicas));
            if (status.replicas, status.available_replicas) != (replicas, available) {
                found.push(format!(
                    "The Deployment reports {} pods, {} available; its ReplicaSets report {replicas}, {available} available.",
                    status.replicas, status.available_replicas,
                ));
            }
        }
        found
    }

    /// Time since the last change of the Deployment, its ReplicaSets and pods.
    pub(crate) fn idle(&self) -> SignedDuration {
        let objects = self.set_objects.iter().chain(&self.pods).chain([&self.object]);
        let newest = objects.flat_map(|object| last_changes(object)).filter(|at| *at <= self.now).max();
        // Availability after minReadySeconds is a change without a write.
        let ready = self.pods.iter().filter_map(|pod| pods::ready_since(pod));
        let available = ready.filter_map(|since| since.saturating_add(self.min_ready).ok());
        let newest = newest.into_iter().chain(available.filter(|at| *at <= self.now)).max();
        newest.map_or(SignedDuration::ZERO, |newest| self.now.duration_since(newest))
    }

    /// Time of the last change of the spec, from `managedFields`. `None` if it is not recorded.
    pub(crate) fn last_change_of_spec(&self) -> Option<Timestamp> {
        let entries = list(self.object, "/metadata/managedFields").iter();
        let written =
            entries.filter(|entry| text(entry, "/subresource") != "status").filter_map(|e| time(e, "/time"));
        let created = time(self.object, "/metadata/creationTimestamp");
        written.max().or(created.filter(|_| self.deployment.metadata.generation <= 1))
    }

    /// Median time from creation to readiness of the pods that are ready and have not restarted.
    pub(crate) fn usual_time_to_readiness(&self) -> Option<SignedDuration> {
        let fresh =
            |pod: &&&Value| list(pod, "/status/containerStatuses").iter().all(|one| one["restartCount"] == 0);
        let ready = self.pods.iter().filter(fresh).filter_map(|pod| {
            let created = time(pod, "/metadata/creationTimestamp")?;
            Some(pods::ready_since(pod)?.duration_since(created))
        });
        let mut times: Vec<SignedDuration> = ready.collect();
        times.sort();
        times.get(times.len() / 2).copied()
    }

    pub(crate) fn replicas(&self) -> Replicas {
        let status = &self.deployment.status;
        Replicas {
            desired: self.deployment.replicas(),
            updated: status.updated_replicas,
            available: status.available_replicas,
            total: status.replicas,
        }
    }

    pub(crate) fn last_progress(&self) -> Option<Timestamp> {
        let condition = self.deployment.condition("Progressing")?;
        condition.last_update_time.map(kcm_api::Time::timestamp)
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
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

    /// Bounds of the rolling update that hold the ReplicaSets. `None` if the pods could not be counted.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        let deployment = &self.deployment;
        if !fenceposts::is_rolling_update(deployment) || deployment.spec.paused || !self.is_known() {
            return None;
        }
        let new = self.sets.new.as_deref()?;
        if replica_count(&self.sets.old) == 0 {
            return None;
        }
        let (max_surge, max_unavailable) =
            (fenceposts::max_surge(deployment), fenceposts::max_unavailable(deployment));
        let active: Vec<&&Value> = self.pods.iter().filter(|pod| pods::is_active(pod)).collect();
        let available = active.iter().filter(|pod| pods::is_available(pod, self.min_ready, self.now)).count();
        let (total, exist) = (replica_count(self.sets.all()), active.len());
        let max_total = deployment.replicas().saturating_add(max_surge);
        let min_available = fenceposts::min_available(deployment);
        let surge_used_up = total >= max_total && new.replicas() < deployment.replicas();
        let no_availability_to_spare =
            i64::try_from(available).is_ok_and(|number| number <= min_available.into());
        let rolling = deployment.spec.strategy.rolling_update.as_ref();
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        // Percentages can round to zero.
        let both_zero = max_surge == 0
            && max_unavailable == 1
            && unavailable.is_some_and(|value| !matches!(serde_json::to_value(value), Ok(Value::Number(_))));
        let mut message = Vec::new();
        if surge_used_up && usize::try_from(total) == Ok(exist) {
            message.push(format!("No new pod: {exist} of at most {max_total} exist (maxSurge {max_surge})."));
        } else if surge_used_up {
            message.push(format!(
                "No new pod: ReplicaSets have {total} of at most {max_total} replicas (maxSurge {max_surge}); {exist} \
                 pods exist."
            ));
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
    pub(crate) fn next(&self) -> Vec<String> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let terminates =
            self.snapshot.namespace.known().is_some_and(|found| found.as_ref().is_some_and(is_terminating));
        let is_write = |action: &Action| match action {
            Action::RecordEvent { .. } => false,
            Action::CreateReplicaSet(_) => !terminates,
            _ => true,
        };
        let writes = plan.actions.iter().filter(|planned| is_write(&planned.action));
        let mut next: Vec<String> = writes.map(ToString::to_string).collect();
        for set in self.replica_sets_pending() {
            let exist = match self.snapshot.pods.is_known() {
                true => i64::try_from(self.active(set).count()).unwrap_or(i64::MAX),
                false => i64::from(set.status.replicas),
            };
            let difference = i64::from(set.replicas()).saturating_sub(exist);
            let pods = if difference.abs() == 1 { "pod" } else { "pods" };
            let name = &set.metadata.name;
            if difference > 0 && !terminates {
                next.push(format!("create {difference} {pods} of replica set {name}"));
            } else if difference < 0 {
                next.push(format!("delete {} {pods} of replica set {name}", difference.abs()));
            }
        }
        match &plan.end {
            // The plan is based on a status that differs from the pods.
            PlanEnd::Done(Ok(outcome))
                if outcome.blocked_on == BlockedOn::Nothing && !self.differences().is_empty() => {}
            PlanEnd::Done(Ok(outcome)) if !terminates => {
                next.push(format!("then wait for {}", outcome.blocked_on));
            }
            PlanEnd::Done(Err(error)) => next.push(format!("fail: {error}")),
            _ => {}
        }
        if let [only] = &mut *next
            && let Some(rest) = only.strip_prefix("then ")
        {
            *only = rest.to_owned();
        }
        next
    }
}

/// Times of the changes of an object, from its metadata and conditions.
pub(crate) fn last_changes(object: &Value) -> impl Iterator<Item = Timestamp> {
    let fields = ["/metadata/creationTimestamp", "/metadata/deletionTimestamp"];
    let managed = list(object, "/metadata/managedFields").iter().filter_map(|entry| time(entry, "/time"));
    let conditions =
        list(object, "/status/conditions").iter().filter_map(|one| time(one, "/lastTransitionTime"));
    let updates = list(object, "/status/conditions").iter().filter_map(|one| time(one, "/lastUpdateTime"));
    fields.into_iter().filter_map(|field| time(object, field)).chain(managed).chain(conditions).chain(updates)
}
