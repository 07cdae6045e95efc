//! Model of the cluster, built from the observed changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::{
    Basis,
    facts::{Deployment, Facts, Pod, ReplicaSet, Wish},
};

/// Time for which changes by other clients may be unknown to a controller. In simulated time, watches have no delay, but a
/// running sync uses the state from its start.
pub(super) const MOMENT: SignedDuration = SignedDuration::from_millis(100);

/// Time for which superseded states are kept. Writers do not act on older states.
const KEEP: SignedDuration = SignedDuration::from_mins(10);

/// Values of an object by generation, from the observed generation on, and superseded ones for a limited time.
#[derive(Debug, Default)]
struct Generations<T>(Vec<Generation<T>>);

#[derive(Debug)]
struct Generation<T> {
    generation: i64,
    value: T,
    superseded: Option<Timestamp>,
}

impl<T: Copy> Generations<T> {
    /// Adds the value of `generation`, and drops values that no writer may act on.
    fn note(&mut self, generation: i64, observed: i64, value: T, now: Timestamp) {
        if self.0.last().map(|last| last.generation) != Some(generation) {
            if let Some(last) = self.0.last_mut() {
                last.superseded = Some(now);
            }
            self.0.push(Generation { generation, value, superseded: None });
        }
        let observed = observed.min(generation);
        self.0.retain(|one| {
            one.generation >= observed
                || one.superseded.is_some_and(|at| at >= now.saturating_sub(KEEP).unwrap_or(Timestamp::MIN))
        });
    }

    /// Values that a controller may act on if it has observed generation `observed`.
    fn known(&self, observed: i64, basis: Basis) -> impl Iterator<Item = T> {
        let last = self.0.last().map_or(0, |last| last.generation);
        let observed = observed.min(last);
        let known = move |one: &&Generation<T>| {
            one.generation >= observed || one.superseded.is_some_and(|at| at > basis.since)
        };
        self.0.iter().filter(known).map(|one| one.value)
    }
}

/// All objects, by UID.
#[derive(Debug, Default)]
pub(super) struct Model {
    deployments: BTreeMap<String, KnownDeployment>,
    sets: BTreeMap<String, KnownSet>,
    pods: HashMap<String, Pod>,
    /// Times of each pod, by UID.
    since: HashMap<String, PodTimes>,
}

/// Times of a pod.
#[derive(Debug, Clone, Copy)]
struct PodTimes {
    /// Time of the last change of its owner.
    owned: Timestamp,
    ready: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct KnownDeployment {
    pub(super) now: Deployment,
    wishes: Generations<Wish>,
    /// Time of the last change of the template.
    template_changed: Option<Timestamp>,
    /// UIDs of ReplicaSets that it controls.
    sets: BTreeSet<String>,
    /// ReplicaSets that it no longer controls.
    lost: Vec<LostSet>,
}

/// A ReplicaSet that was deleted or has lost its owner.
#[derive(Debug)]
pub(super) struct LostSet {
    uid: String,
    at: Timestamp,
    /// Number of available pods that it reported last.
    pub(super) available: i32,
}

#[derive(Debug, Default)]
pub(super) struct KnownSet {
    pub(super) now: ReplicaSet,
    sizes: Generations<i32>,
    /// Superseded numbers of available pods, with the time until which they were reported.
    said: Vec<(Timestamp, i32)>,
    /// UIDs of its pods, including terminating ones.
    pods: BTreeSet<String>,
    /// Pods removed or made unready by other clients, with time.
    lost: Vec<(Timestamp, Loss)>,
    /// Times at which other clients added a pod.
    gained: Vec<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loss {
    active: bool,
    ready: bool,
}

/// Previous state of an object.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub(super) facts: Option<Facts>,
}

/// Numbers of pods of a ReplicaSet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pods {
    /// Pods that are neither finished nor terminating.
    pub(super) active: i32,
    /// Active pods that are ready.
    pub(super) ready: i32,
}

impl Model {
    /// Applies a new state. Returns the previous one.
    pub(super) fn apply(&mut self, facts: &Facts, gone: bool, now: Timestamp, by_manager: bool) -> Before {
        let uid = facts.is().uid.clone();
        let old = match facts {
            Facts::Deployment(new) => self.apply_deployment(&uid, new, gone, now).map(Facts::Deployment),
            Facts::ReplicaSet(new) => self.apply_set(&uid, new, gone, now).map(Facts::ReplicaSet),
            Facts::Pod(new) => self.apply_pod(&uid, new, gone, now, by_manager).map(Facts::Pod),
        };
        Before { facts: old }
    }

    fn apply_deployment(
        &mut self,
        uid: &str,
        new: &Deployment,
        gone: bool,
        now: Timestamp,
    ) -> Option<Deployment> {
        if gone {
            return self.deployments.remove(uid).map(|known| known.now);
        }
        let is_new = !self.deployments.contains_key(uid);
        let known = self.deployments.entry(uid.to_owned()).or_default();
        known.wishes.note(new.generation, new.observed, new.wish, now);
        if is_new || known.now.template != new.template {
            known.template_changed = Some(now);
        }
        if is_new {
            // Its ReplicaSets may have existed before it.
            let of_it = self.sets.iter().filter(|(_, set)| set.now.is.controller() == Some(uid));
            known.sets = of_it.map(|(set, _)| set.clone()).collect();
        }
        let old = std::mem::replace(&mut known.now, new.clone());
        (!is_new).then_some(old)
    }

    fn apply_set(&mut self, uid: &str, new: &ReplicaSet, gone: bool, now: Timestamp) -> Option<ReplicaSet> {
        let old = self.sets.get(uid).map(|known| &known.now);
        let available = old.map_or(0, |old| old.available);
        let old_owner = old.and_then(|old| old.is.controller().map(str::to_owned));
        let owner = new.is.controller().filter(|_| !gone);
        if old_owner.as_deref() != owner
            && let Some(deployment) = old_owner.and_then(|owner| self.deployments.get_mut(&owner))
        {
            deployment.sets.remove(uid);
            deployment.lost.retain(|lost| is_kept(lost.at, now));
            deployment.lost.push(LostSet { uid: uid.to_owned(), at: now, available });
        }
        if let Some(deployment) = owner.and_then(|owner| self.deployments.get_mut(owner)) {
            deployment.sets.insert(uid.to_owned());
        }
        if gone {
            return self.sets.remove(uid).map(|known| known.now);
        }
        let is_new = !self.sets.contains_key(uid);
        let known = self.sets.entry(uid.to_owned()).or_default();
        known.sizes.note(new.generation, new.observed, new.replicas, now);
        if is_new {
            let of_it = self.pods.iter().filter(|(_, pod)| pod.is.controller() == Some(uid));
            known.pods = of_it.map(|(pod, _)| pod.clone()).collect();
        } else if known.now.available != new.available {
            known.said.push((now, known.now.available));
        }
        known.said.retain(|(until, _)| is_kept(*until, now));
        let old = std::mem::replace(&mut known.now, new.clone());
        (!is_new).then_some(old)
    }

    fn apply_pod(
        &mut self,
        uid: &str,
        new: &Pod,
        gone: bool,
        now: Timestamp,
        by_manager: bool,
    ) -> Option<Pod> {
        let old = if gone { self.pods.remove(uid) } else { self.pods.insert(uid.to_owned(), new.clone()) };
        if gone {
            self.since.remove(uid);
        } else {
            let times = self.since.entry(uid.to_owned()).or_insert(PodTimes { owned: now, ready: None });
            if old.as_ref().is_some_and(|old| old.is.controller() != new.is.controller()) {
                times.owned = now;
            }
            times.ready = new.ready.then_some(times.ready.unwrap_or(now));
        }
        let owner = new.is.controller().filter(|_| !gone);
        if let Some(set) = old.as_ref().and_then(|old| old.is.controller()) {
            let kept = owner == Some(set);
            if let Some(known) = self.sets.get_mut(set) {
                let was = old.as_ref().is_some_and(Pod::is_active);
                let was_ready = was && old.as_ref().is_some_and(|old| old.ready);
                let is = kept && new.is_active();
                let loss = Loss { active: was && !is, ready: was_ready && !(is && new.ready) };
                if !by_manager && (loss.active || loss.ready) {
                    known.lost.retain(|(at, _)| is_kept(*at, now));
                    known.lost.push((now, loss));
                }
                if !kept {
                    known.pods.remove(uid);
                }
            }
        }
        if let Some(known) = owner.and_then(|owner| self.sets.get_mut(owner))
            && known.pods.insert(uid.to_owned())
            && !by_manager
        {
            known.gained.retain(|at| is_kept(*at, now));
            known.gained.push(now);
        }
        old
    }

    pub(super) fn deployment(&self, uid: &str) -> Option<&KnownDeployment> {
        self.deployments.get(uid)
    }

    pub(super) fn set(&self, uid: &str) -> Option<&KnownSet> {
        self.sets.get(uid)
    }

    /// Returns the Deployment that controls a ReplicaSet.
    pub(super) fn deployment_of(&self, set: &ReplicaSet) -> Option<&KnownDeployment> {
        self.deployment(set.is.controller()?)
    }

    /// Returns the ReplicaSets that a Deployment controls.
    pub(super) fn sets_of(&self, deployment: &KnownDeployment) -> impl Iterator<Item = &KnownSet> {
        deployment.sets.iter().filter_map(|uid| self.sets.get(uid))
    }

    /// `true` if a writer may still consider a ReplicaSet controlled by a Deployment.
    pub(super) fn has_lost(&self, set: &ReplicaSet, basis: Basis) -> bool {
        let mut lost = self.deployments.values().flat_map(|known| Self::lost_sets_of(known, basis));
        lost.any(|lost| lost.uid == set.is.uid)
    }

    /// Returns ReplicaSets that a writer may still consider controlled by a Deployment.
    pub(super) fn lost_sets_of(deployment: &KnownDeployment, basis: Basis) -> impl Iterator<Item = &LostSet> {
        let lost = deployment.lost.iter().filter(move |lost| is_recent(lost.at, basis));
        lost.filter(|lost| !deployment.sets.contains(&lost.uid))
    }

    /// Returns a ReplicaSet by name.
    pub(super) fn set_named(&self, namespace: &str, name: &str) -> Option<&KnownSet> {
        self.sets.values().find(|set| set.now.is.namespace == namespace && set.now.is.name == name)
    }

    pub(super) fn count_objects(&self) -> usize {
        self.deployments.len() + self.sets.len() + self.pods.len()
    }

    pub(super) fn count_sets(&self) -> usize {
        self.sets.len()
    }

    /// Number of unfinished pods that a writer may have observed.
    pub(super) fn unfinished_seen(&self, set: &KnownSet, basis: Basis) -> i32 {
        let is_seen = |uid: &&String| {
            let times = self.since.get(*uid);
            !basis.is_old() || times.is_some_and(|times| times.owned <= basis.since)
        };
        let seen = set.pods.iter().filter(is_seen).filter_map(|uid| self.pods.get(uid));
        i32::try_from(seen.filter(|pod| !pod.finished).count()).unwrap_or(i32::MAX)
    }

    /// `true` if a writer may have observed the pod as unready.
    pub(super) fn was_unready(&self, uid: &str, basis: Basis) -> bool {
        let ready = self.since.get(uid).and_then(|times| times.ready);
        basis.is_old() && ready.is_some_and(|ready| ready >= basis.since)
    }

    pub(super) fn pods_of(&self, set: &KnownSet) -> Pods {
        let mut count = Pods::default();
        for pod in set.pods.iter().filter_map(|uid| self.pods.get(uid)) {
            count.active += i32::from(pod.is_active());
            count.ready += i32::from(pod.is_active() && pod.ready);
        }
        count
    }
}

impl KnownDeployment {
    /// `true` if a writer may not have observed the template.
    pub(super) fn has_unseen_template(&self, basis: Basis) -> bool {
        basis.is_old() && self.template_changed.is_some_and(|changed| changed >= basis.since)
    }

    /// Bounds that a writer may have observed.
    pub(super) fn wishes(&self, basis: Basis) -> impl Iterator<Item = Wish> {
        self.wishes.known(self.now.observed, basis)
    }
}

impl KnownSet {
    /// Largest number of replicas that a writer may have observed.
    pub(super) fn largest(&self, basis: Basis) -> i32 {
        self.sizes.known(self.now.observed, basis).max().unwrap_or(self.now.replicas)
    }

    /// Smallest number of replicas that a writer may have observed.
    pub(super) fn smallest(&self, basis: Basis) -> i32 {
        self.sizes.known(self.now.observed, basis).min().unwrap_or(self.now.replicas)
    }

    /// Smallest number of replicas that a writer of other objects may have observed.
    pub(super) fn smallest_seen(&self, basis: Basis) -> i32 {
        self.sizes.known(i64::MAX, basis).fold(self.now.replicas, i32::min)
    }

    /// Largest number of available pods that a writer may have observed.
    pub(super) fn available(&self, basis: Basis) -> i32 {
        let said = self.said.iter().filter(|(until, _)| is_recent(*until, basis));
        said.map(|(_, available)| *available).fold(self.now.available, i32::max)
    }

    /// Number of pods added by other clients that a writer may not have observed.
    pub(super) fn gained(&self, basis: Basis) -> i32 {
        let unseen = self.gained.iter().filter(|at| basis.is_old() && **at >= basis.since);
        i32::try_from(unseen.count()).unwrap_or(i32::MAX)
    }

    /// Adds pods that other clients have just removed.
    pub(super) fn with_lost(&self, pods: Pods, basis: Basis) -> Pods {
        let lost = self.lost.iter().filter(|(at, _)| is_recent(*at, basis));
        lost.fold(pods, |pods, (_, loss)| Pods {
            active: pods.active + i32::from(loss.active),
            ready: pods.ready + i32::from(loss.ready),
        })
    }
}

fn is_kept(then: Timestamp, now: Timestamp) -> bool {
    now.duration_since(then) <= KEEP
}

fn is_recent(then: Timestamp, basis: Basis) -> bool {
    basis.now.duration_since(then) <= MOMENT.max(basis.now.duration_since(basis.since))
}
