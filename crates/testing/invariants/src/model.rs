//! Model of the cluster, built from the observed changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::{
    basis::Basis,
    object_state::{Bounds, DeploymentState, ObjectState, PodState, ReplicaSetState},
};

/// Time for which superseded states are kept. Writers do not act on older states.
const RETENTION: SignedDuration = SignedDuration::from_mins(10);

/// Values of an object by generation, from the observed generation on, and superseded ones for a limited time.
#[derive(Debug, Clone, Default)]
struct Generations<T>(Vec<Generation<T>>);

#[derive(Debug, Clone)]
struct Generation<T> {
    generation: i64,
    value: T,
    superseded: Option<Timestamp>,
}

impl<T: Copy> Generations<T> {
    /// Adds the value of `generation`, and drops values that no writer may act on.
    fn record(&mut self, generation: i64, observed: i64, value: T, now: Timestamp) {
        if self.0.last().map(|last| last.generation) != Some(generation) {
            if let Some(last) = self.0.last_mut() {
                last.superseded = Some(now);
            }
            self.0.push(Generation { generation, value, superseded: None });
        }
        let observed = observed.min(generation);
        self.0.retain(|one| {
            one.generation >= observed
                || one
                    .superseded
                    .is_some_and(|at| at >= now.saturating_sub(RETENTION).unwrap_or(Timestamp::MIN))
        });
    }

    /// Value of a generation, if it is kept.
    fn at(&self, generation: i64) -> Option<T> {
        self.0.iter().find(|one| one.generation == generation).map(|one| one.value)
    }

    /// Values that a controller may act on if it has observed generation `observed`.
    fn possible(&self, observed: i64, basis: Basis) -> impl Iterator<Item = T> {
        let last = self.0.last().map_or(0, |last| last.generation);
        let observed = observed.min(last);
        let is_possible = move |one: &&Generation<T>| {
            one.generation >= observed || one.superseded.is_some_and(|at| at > basis.since)
        };
        self.0.iter().filter(is_possible).map(|one| one.value)
    }
}

/// All objects, by UID.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Number of changes so far.
    changes: u64,
    deployments: BTreeMap<String, TrackedDeployment>,
    sets: BTreeMap<String, TrackedReplicaSet>,
    pods: HashMap<String, PodState>,
    /// Times of each pod, by UID.
    pod_times: HashMap<String, PodTimes>,
}

/// Times of a pod.
#[derive(Debug, Clone, Copy)]
struct PodTimes {
    /// Time of the last change of its owner.
    owned: Timestamp,
    ready: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct TrackedDeployment {
    pub(crate) current: DeploymentState,
    bounds: Generations<Bounds>,
    /// Time of the last change of its state.
    changed: Option<Timestamp>,
    /// Last time at which it had to be [scaled](Model::is_scaled).
    scaled: Option<Timestamp>,
    /// Time of the last change of the template.
    template_changed: Option<Timestamp>,
    /// UIDs of ReplicaSets that it controls.
    sets: BTreeSet<String>,
    /// ReplicaSets that it no longer controls.
    released: Vec<ReleasedReplicaSet>,
}

/// A ReplicaSet that was deleted or has lost its owner.
#[derive(Debug)]
pub(crate) struct ReleasedReplicaSet {
    at: Timestamp,
    /// `true` if the manager has deleted or released it.
    pub(crate) by_manager: bool,
    /// State when it was released.
    pub(crate) last: TrackedReplicaSet,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TrackedReplicaSet {
    pub(crate) current: ReplicaSetState,
    replicas: Generations<i32>,
    /// Time of the last change of [`ReplicaSetState::desired`].
    desired_changed: Option<Timestamp>,
    /// Number of the change by which the manager scaled it to 0, unless it was scaled since.
    emptied: Option<u64>,
    /// Number of the change by which the manager scaled it up last, if the strategy was Recreate.
    scaled_up: Option<u64>,
    /// Superseded numbers of available pods, with the time until which they were reported.
    reported_available: Vec<(Timestamp, i32)>,
    /// UIDs of its pods, including terminating ones.
    pods: BTreeSet<String>,
    /// Pods removed or made unready by other clients, with time.
    removed: Vec<(Timestamp, PodLoss)>,
    /// Pods that the manager adopted, or that other clients added.
    added: Vec<Addition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Addition {
    at: Timestamp,
    by_manager: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PodLoss {
    active: bool,
    ready: bool,
}

/// Previous state of an object.
#[derive(Debug, Default)]
pub(crate) struct Before {
    pub(crate) state: Option<ObjectState>,
    /// Time since which a Deployment had this state, and was not scaled.
    pub(crate) since: Option<Timestamp>,
}

/// Numbers of pods of a ReplicaSet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pods {
    /// Pods that are neither finished nor terminating.
    pub(crate) active: i32,
    /// Active pods that are ready.
    pub(crate) ready: i32,
}

impl Model {
    /// Applies a new state. Returns the previous one. `by_manager` is the basis of a write of the manager.
    pub(crate) fn apply(
        &mut self,
        new: &ObjectState,
        deleted: bool,
        now: Timestamp,
        by_manager: Option<Basis>,
    ) -> Before {
        let uid = new.identity().uid.clone();
        self.note_scaling(new, now);
        let since = self.deployments.get(&uid).and_then(TrackedDeployment::since);
        self.changes += 1;
        let old = match new {
            ObjectState::Deployment(new) => {
                self.apply_deployment(&uid, new, deleted, now).map(ObjectState::Deployment)
            }
            ObjectState::ReplicaSet(new) => {
                self.apply_set(&uid, new, deleted, now, by_manager).map(ObjectState::ReplicaSet)
            }
            ObjectState::Pod(new) => {
                self.apply_pod(&uid, new, deleted, now, by_manager.is_some()).map(ObjectState::Pod)
            }
        };
        Before { state: old, since }
    }

    /// Records that the Deployment that an object is, or belongs to, was scaled until now.
    fn note_scaling(&mut self, of: &ObjectState, now: Timestamp) {
        let uid = &of.identity().uid;
        let deployment = match of {
            ObjectState::Deployment(_) => Some(&**uid),
            ObjectState::ReplicaSet(_) => {
                self.sets.get(uid).and_then(|set| set.current.identity.controller())
            }
            ObjectState::Pod(_) => None,
        };
        let Some(deployment) = deployment.map(str::to_owned) else { return };
        if self.deployments.get(&deployment).is_some_and(|tracked| self.is_scaled(tracked))
            && let Some(tracked) = self.deployments.get_mut(&deployment)
        {
            tracked.scaled = Some(now);
        }
    }

    /// `true` if an active ReplicaSet has another size of the Deployment in its annotations. The controller then scales, and does
    /// not check the progress deadline (US-4.7).
    fn is_scaled(&self, deployment: &TrackedDeployment) -> bool {
        let size = i64::from(deployment.current.bounds.replicas);
        let is_other = |set: &TrackedReplicaSet| {
            set.current.replicas > 0 && set.current.desired.is_some_and(|desired| desired != size)
        };
        self.sets_of(deployment).any(is_other)
    }

    /// States of the Deployments that are not scaled.
    pub(crate) fn unscaled_deployments(&self) -> impl Iterator<Item = Before> {
        self.deployments.values().filter(|tracked| !self.is_scaled(tracked)).map(|tracked| Before {
            state: Some(ObjectState::Deployment(tracked.current.clone())),
            since: tracked.since(),
        })
    }

    fn apply_deployment(
        &mut self,
        uid: &str,
        new: &DeploymentState,
        deleted: bool,
        now: Timestamp,
    ) -> Option<DeploymentState> {
        if deleted {
            return self.deployments.remove(uid).map(|tracked| tracked.current);
        }
        let is_new = !self.deployments.contains_key(uid);
        let tracked = self.deployments.entry(uid.to_owned()).or_default();
        tracked.bounds.record(new.generation, new.observed, new.bounds, now);
        if is_new || tracked.current.template != new.template {
            tracked.template_changed = Some(now);
        }
        if is_new || tracked.current != *new {
            tracked.changed = Some(now);
        }
        if is_new {
            // Its ReplicaSets may have existed before it.
            let sets = self.sets.iter().filter(|(_, set)| set.current.identity.controller() == Some(uid));
            tracked.sets = sets.map(|(set, _)| set.clone()).collect();
        }
        let old = std::mem::replace(&mut tracked.current, new.clone());
        (!is_new).then_some(old)
    }

    fn apply_set(
        &mut self,
        uid: &str,
        new: &ReplicaSetState,
        deleted: bool,
        now: Timestamp,
        by_manager: Option<Basis>,
    ) -> Option<ReplicaSetState> {
        let owner = new.identity.controller().filter(|_| !deleted);
        if let Some(last) = self.sets.get(uid)
            && let Some(old_owner) = last.current.identity.controller().filter(|old| Some(*old) != owner)
            && let Some(deployment) = self.deployments.get_mut(old_owner)
        {
            deployment.sets.remove(uid);
            deployment.released.retain(|released| is_retained(released.at, now));
            let (by_manager, last) = (by_manager.is_some(), last.clone());
            deployment.released.push(ReleasedReplicaSet { at: now, by_manager, last });
        }
        if let Some(deployment) = owner.and_then(|owner| self.deployments.get_mut(owner)) {
            deployment.sets.insert(uid.to_owned());
        }
        if deleted {
            return self.sets.remove(uid).map(|tracked| tracked.current);
        }
        let is_new = !self.sets.contains_key(uid);
        let tracked = self.sets.entry(uid.to_owned()).or_default();
        tracked.replicas.record(new.generation, new.observed, new.replicas, now);
        let replicas = if is_new { 0 } else { tracked.current.replicas };
        if new.replicas != replicas {
            tracked.emptied = (by_manager.is_some() && new.replicas == 0).then_some(self.changes);
        }
        let deployment = owner.and_then(|owner| self.deployments.get(owner));
        if new.replicas > replicas
            && by_manager.zip(deployment).is_some_and(|(basis, deployment)| deployment.is_recreate(basis))
        {
            tracked.scaled_up = Some(self.changes);
        }
        if is_new {
            let pods = self.pods.iter().filter(|(_, pod)| pod.identity.controller() == Some(uid));
            tracked.pods = pods.map(|(pod, _)| pod.clone()).collect();
        } else if tracked.current.available != new.available {
            tracked.reported_available.push((now, tracked.current.available));
        }
        tracked.reported_available.retain(|(until, _)| is_retained(*until, now));
        if !is_new && tracked.current.desired != new.desired {
            tracked.desired_changed = Some(now);
        }
        let old = std::mem::replace(&mut tracked.current, new.clone());
        (!is_new).then_some(old)
    }

    fn apply_pod(
        &mut self,
        uid: &str,
        new: &PodState,
        deleted: bool,
        now: Timestamp,
        by_manager: bool,
    ) -> Option<PodState> {
        let old = if deleted { self.pods.remove(uid) } else { self.pods.insert(uid.to_owned(), new.clone()) };
        if deleted {
            self.pod_times.remove(uid);
        } else {
            let times = self.pod_times.entry(uid.to_owned()).or_insert(PodTimes { owned: now, ready: None });
            if old.as_ref().is_some_and(|old| old.identity.controller() != new.identity.controller()) {
                times.owned = now;
            }
            times.ready = new.ready.then_some(times.ready.unwrap_or(now));
        }
        let owner = new.identity.controller().filter(|_| !deleted);
        if let Some(set) = old.as_ref().and_then(|old| old.identity.controller()) {
            let is_kept = owner == Some(set);
            if let Some(tracked) = self.sets.get_mut(set) {
                let was_active = old.as_ref().is_some_and(PodState::is_active);
                let was_ready = was_active && old.as_ref().is_some_and(|old| old.ready);
                let is_active = is_kept && new.is_active();
                let loss = PodLoss {
                    active: was_active && !is_active,
                    ready: was_ready && !(is_active && new.ready),
                };
                if !by_manager && (loss.active || loss.ready) {
                    tracked.removed.retain(|(at, _)| is_retained(*at, now));
                    tracked.removed.push((now, loss));
                }
                if !is_kept {
                    tracked.pods.remove(uid);
                }
            }
        }
        if let Some(tracked) = owner.and_then(|owner| self.sets.get_mut(owner))
            && tracked.pods.insert(uid.to_owned())
            && (!by_manager || old.is_some())
        {
            tracked.added.retain(|added| is_retained(added.at, now));
            tracked.added.push(Addition { at: now, by_manager });
        }
        old
    }

    pub(crate) fn deployment(&self, uid: &str) -> Option<&TrackedDeployment> {
        self.deployments.get(uid)
    }

    pub(crate) fn set(&self, uid: &str) -> Option<&TrackedReplicaSet> {
        self.sets.get(uid)
    }

    /// Returns the Deployment that controls a ReplicaSet.
    pub(crate) fn deployment_of(&self, set: &ReplicaSetState) -> Option<&TrackedDeployment> {
        self.deployment(set.identity.controller()?)
    }

    /// Returns the ReplicaSets that a Deployment controls.
    pub(crate) fn sets_of(&self, deployment: &TrackedDeployment) -> impl Iterator<Item = &TrackedReplicaSet> {
        deployment.sets.iter().filter_map(|uid| self.sets.get(uid))
    }

    /// `true` if a writer may still consider a ReplicaSet controlled by a Deployment.
    pub(crate) fn was_released(&self, set: &ReplicaSetState, basis: Basis) -> bool {
        let mut released =
            self.deployments.values().flat_map(|tracked| Self::released_sets_of(tracked, basis));
        released.any(|released| released.uid() == set.identity.uid)
    }

    /// Returns ReplicaSets that a writer may still consider controlled by a Deployment.
    pub(crate) fn released_sets_of(
        deployment: &TrackedDeployment,
        basis: Basis,
    ) -> impl Iterator<Item = &ReleasedReplicaSet> {
        let released = deployment.released.iter().filter(move |set| is_recent(set.at, basis));
        released.filter(|set| !deployment.sets.contains(set.uid()))
    }

    /// Returns a ReplicaSet by name.
    pub(crate) fn set_named(&self, namespace: &str, name: &str) -> Option<&TrackedReplicaSet> {
        self.sets
            .values()
            .find(|set| set.current.identity.namespace == namespace && set.current.identity.name == name)
    }

    pub(crate) fn count_objects(&self) -> usize {
        self.deployments.len() + self.sets.len() + self.pods.len()
    }

    pub(crate) fn count_sets(&self) -> usize {
        self.sets.len()
    }

    /// Number of unfinished pods that a writer may have observed.
    pub(crate) fn unfinished_pods(&self, set: &TrackedReplicaSet, basis: Basis) -> i32 {
        let is_observed = |uid: &&String| {
            let times = self.pod_times.get(*uid);
            !basis.is_old() || times.is_some_and(|times| times.owned <= basis.since)
        };
        let observed = set.pods.iter().filter(is_observed).filter_map(|uid| self.pods.get(uid));
        i32::try_from(observed.filter(|pod| !pod.finished).count()).unwrap_or(i32::MAX)
    }

    /// `true` if a writer may have observed the pod as unready.
    pub(crate) fn was_unready(&self, uid: &str, basis: Basis) -> bool {
        let ready = self.pod_times.get(uid).and_then(|times| times.ready);
        basis.is_old() && ready.is_some_and(|ready| ready >= basis.since)
    }

    pub(crate) fn pods_of(&self, set: &TrackedReplicaSet) -> Pods {
        let mut pods = Pods::default();
        for pod in set.pods.iter().filter_map(|uid| self.pods.get(uid)) {
            pods.active += i32::from(pod.is_active());
            pods.ready += i32::from(pod.is_active() && pod.ready);
        }
        pods
    }
}

impl TrackedDeployment {
    /// Time since which it has had its state, and was not scaled.
    fn since(&self) -> Option<Timestamp> {
        self.changed.max(self.scaled)
    }

    /// `true` if a writer may not have observed the template.
    pub(crate) fn has_unobserved_template(&self, basis: Basis) -> bool {
        basis.is_old() && self.template_changed.is_some_and(|changed| changed >= basis.since)
    }

    /// Bounds that a writer may have observed.
    pub(crate) fn bounds(&self, basis: Basis) -> impl Iterator<Item = Bounds> {
        self.bounds.possible(self.current.observed, basis)
    }

    /// Bounds of the generation that the status has observed.
    pub(crate) fn observed_bounds(&self) -> Option<Bounds> {
        self.bounds.at(self.current.observed)
    }

    /// `true` if the strategy is Recreate, whatever a writer may have observed.
    pub(crate) fn is_recreate(&self, basis: Basis) -> bool {
        self.bounds(basis).all(|bounds| bounds.recreate)
    }
}

impl ReleasedReplicaSet {
    fn uid(&self) -> &str {
        &self.last.current.identity.uid
    }
}

impl TrackedReplicaSet {
    /// Largest number of replicas that a writer may have observed.
    pub(crate) fn max_replicas(&self, basis: Basis) -> i32 {
        self.replicas.possible(self.current.observed, basis).max().unwrap_or(self.current.replicas)
    }

    /// Smallest number of replicas that a writer may have observed.
    pub(crate) fn min_replicas(&self, basis: Basis) -> i32 {
        self.replicas.possible(self.current.observed, basis).min().unwrap_or(self.current.replicas)
    }

    /// Smallest number of replicas that a writer of other objects may have observed.
    pub(crate) fn min_replicas_of_others(&self, basis: Basis) -> i32 {
        self.replicas.possible(i64::MAX, basis).fold(self.current.replicas, i32::min)
    }

    /// Largest number of replicas that a writer of other objects may have observed.
    pub(crate) fn max_replicas_of_others(&self, basis: Basis) -> i32 {
        self.replicas.possible(i64::MAX, basis).fold(self.current.replicas, i32::max)
    }

    /// `true` if this ReplicaSet was scaled down since the state that a writer has observed.
    pub(crate) fn has_shrunk(&self, basis: Basis) -> bool {
        self.replicas.0.iter().any(|one| {
            one.value > self.current.replicas && one.superseded.is_some_and(|at| at >= basis.since)
        })
    }

    /// `true` if a writer may have observed that this ReplicaSet has replicas, and was last scaled for another size of its
    /// Deployment than `desired`.
    pub(crate) fn was_scaled_for_another(&self, desired: Option<i64>, basis: Basis) -> bool {
        let is_another = self.current.desired.is_some() && self.current.desired != desired;
        self.max_replicas_of_others(basis) > 0 && (is_another || self.has_new_size(basis))
    }

    /// `true` if a writer may have observed another size of the Deployment in the annotation of this ReplicaSet.
    pub(crate) fn has_new_size(&self, basis: Basis) -> bool {
        self.desired_changed.is_some_and(|at| at > basis.since)
    }

    /// `true` if the manager has scaled this ReplicaSet up for a Recreate since it scaled `other` to 0.
    pub(crate) fn was_scaled_up_after(&self, other: &Self) -> bool {
        self.current.replicas > 0
            && self.scaled_up.zip(other.emptied).is_some_and(|(scaled_up, emptied)| scaled_up > emptied)
    }

    /// Largest number of available pods that a writer may have observed.
    pub(crate) fn available(&self, basis: Basis) -> i32 {
        let reported = self.reported_available.iter().filter(|(until, _)| is_recent(*until, basis));
        reported.map(|(_, available)| *available).fold(self.current.available, i32::max)
    }

    /// Number of pods that were adopted, or created by other clients, and that a writer may not have observed. The manager
    /// observes its own adoptions, except if the write was decided before and is executed late.
    pub(crate) fn added(&self, basis: Basis) -> i32 {
        let unobserved = self.added.iter().filter(|added| {
            basis.is_old() && added.at >= basis.since && (!added.by_manager || basis.is_abandoned)
        });
        i32::try_from(unobserved.count()).unwrap_or(i32::MAX)
    }

    /// Adds pods that other clients have just removed.
    pub(crate) fn with_removed(&self, pods: Pods, basis: Basis) -> Pods {
        let removed = self.removed.iter().filter(|(at, _)| is_recent(*at, basis));
        removed.fold(pods, |pods, (_, loss)| Pods {
            active: pods.active + i32::from(loss.active),
            ready: pods.ready + i32::from(loss.ready),
        })
    }
}

fn is_retained(then: Timestamp, now: Timestamp) -> bool {
    now.duration_since(then) <= RETENTION
}

fn is_recent(then: Timestamp, basis: Basis) -> bool {
    basis.now.duration_since(then) <= basis.delay.max(basis.now.duration_since(basis.since))
}
