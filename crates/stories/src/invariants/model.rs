//! The cluster as far as it is known from what has happened.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::facts::{Deployment, Facts, Pod, ReplicaSet, Wish};

/// How long what somebody else did may be unknown to a controller. In simulated time news travels at once, but a
/// sync that has begun goes on with what it knows.
pub(super) const MOMENT: SignedDuration = SignedDuration::from_millis(100);

/// All objects, by UID.
#[derive(Debug, Default)]
pub(super) struct Model {
    deployments: BTreeMap<String, KnownDeployment>,
    sets: BTreeMap<String, KnownSet>,
    pods: HashMap<String, Pod>,
}

#[derive(Debug, Default)]
pub(super) struct KnownDeployment {
    pub(super) now: Deployment,
    /// What it asked for in each generation since the observed one.
    wishes: Vec<(i64, Wish)>,
    /// UIDs of ReplicaSets that it controls.
    sets: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct KnownSet {
    pub(super) now: ReplicaSet,
    /// Its size in each generation since the observed one.
    sizes: Vec<(i64, i32)>,
    /// How many it said were available, and until when.
    said: Vec<(Timestamp, i32)>,
    /// UIDs of pods that it controls, those on their way out among them.
    pods: BTreeSet<String>,
    /// What others took from it, and when.
    lost: Vec<(Timestamp, Loss)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loss {
    active: bool,
    ready: bool,
}

/// How an object was.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub(super) facts: Option<Facts>,
}

/// How many pods a ReplicaSet has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pods {
    /// That are neither finished nor on their way out.
    pub(super) active: i32,
    /// Of those, that are ready.
    pub(super) ready: i32,
    /// That have not finished, those on their way out among them.
    pub(super) unfinished: i32,
}

impl Model {
    /// Takes a new state in, and answers the old one.
    pub(super) fn apply(&mut self, facts: &Facts, gone: bool, now: Timestamp, by_manager: bool) -> Before {
        let uid = facts.is().uid.clone();
        let old = match facts {
            Facts::Deployment(new) => self.apply_deployment(&uid, new, gone).map(Facts::Deployment),
            Facts::ReplicaSet(new) => self.apply_set(&uid, new, gone, now).map(Facts::ReplicaSet),
            Facts::Pod(new) => self.apply_pod(&uid, new, gone, now, by_manager).map(Facts::Pod),
        };
        Before { facts: old }
    }

    fn apply_deployment(&mut self, uid: &str, new: &Deployment, gone: bool) -> Option<Deployment> {
        if gone {
            return self.deployments.remove(uid).map(|known| known.now);
        }
        let is_new = !self.deployments.contains_key(uid);
        let known = self.deployments.entry(uid.to_owned()).or_default();
        if known.wishes.last().map(|(generation, _)| *generation) != Some(new.generation) {
            known.wishes.push((new.generation, new.wish));
        }
        known.wishes.retain(|(generation, _)| *generation >= new.observed.min(new.generation));
        if is_new {
            // What it controls may have been there before it.
            let of_it = self.sets.iter().filter(|(_, set)| set.now.is.controller() == Some(uid));
            known.sets = of_it.map(|(set, _)| set.clone()).collect();
        }
        let old = std::mem::replace(&mut known.now, new.clone());
        (!is_new).then_some(old)
    }

    fn apply_set(&mut self, uid: &str, new: &ReplicaSet, gone: bool, now: Timestamp) -> Option<ReplicaSet> {
        let old_owner = self.sets.get(uid).and_then(|known| known.now.is.controller().map(str::to_owned));
        let owner = new.is.controller().filter(|_| !gone);
        if old_owner.as_deref() != owner
            && let Some(deployment) = old_owner.and_then(|owner| self.deployments.get_mut(&owner))
        {
            deployment.sets.remove(uid);
        }
        if let Some(deployment) = owner.and_then(|owner| self.deployments.get_mut(owner)) {
            deployment.sets.insert(uid.to_owned());
        }
        if gone {
            return self.sets.remove(uid).map(|known| known.now);
        }
        let is_new = !self.sets.contains_key(uid);
        let known = self.sets.entry(uid.to_owned()).or_default();
        if known.sizes.last().map(|(generation, _)| *generation) != Some(new.generation) {
            known.sizes.push((new.generation, new.replicas));
        }
        known.sizes.retain(|(generation, _)| *generation >= new.observed.min(new.generation));
        if is_new {
            let of_it = self.pods.iter().filter(|(_, pod)| pod.is.controller() == Some(uid));
            known.pods = of_it.map(|(pod, _)| pod.clone()).collect();
        } else if known.now.available != new.available {
            known.said.push((now, known.now.available));
        }
        known.said.retain(|(until, _)| is_recent(*until, now));
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
        let owner = new.is.controller().filter(|_| !gone);
        if let Some(set) = old.as_ref().and_then(|old| old.is.controller()) {
            let kept = owner == Some(set);
            if let Some(known) = self.sets.get_mut(set) {
                let was = old.as_ref().is_some_and(Pod::is_active);
                let was_ready = was && old.as_ref().is_some_and(|old| old.ready);
                let is = kept && new.is_active();
                let loss = Loss { active: was && !is, ready: was_ready && !(is && new.ready) };
                if !by_manager && (loss.active || loss.ready) {
                    known.lost.retain(|(at, _)| is_recent(*at, now));
                    known.lost.push((now, loss));
                }
                if !kept {
                    known.pods.remove(uid);
                }
            }
        }
        if let Some(known) = owner.and_then(|owner| self.sets.get_mut(owner)) {
            known.pods.insert(uid.to_owned());
        }
        old
    }

    pub(super) fn deployment(&self, uid: &str) -> Option<&KnownDeployment> {
        self.deployments.get(uid)
    }

    pub(super) fn set(&self, uid: &str) -> Option<&KnownSet> {
        self.sets.get(uid)
    }

    /// The Deployment that controls a ReplicaSet.
    pub(super) fn deployment_of(&self, set: &ReplicaSet) -> Option<&KnownDeployment> {
        self.deployment(set.is.controller()?)
    }

    /// The ReplicaSets that a Deployment controls.
    pub(super) fn sets_of(&self, deployment: &KnownDeployment) -> impl Iterator<Item = &KnownSet> {
        deployment.sets.iter().filter_map(|uid| self.sets.get(uid))
    }

    /// A ReplicaSet by its name.
    pub(super) fn set_named(&self, namespace: &str, name: &str) -> Option<&KnownSet> {
        self.sets.values().find(|set| set.now.is.namespace == namespace && set.now.is.name == name)
    }

    pub(super) fn count_objects(&self) -> usize {
        self.deployments.len() + self.sets.len() + self.pods.len()
    }

    pub(super) fn count_sets(&self) -> usize {
        self.sets.len()
    }

    pub(super) fn pods_of(&self, set: &KnownSet) -> Pods {
        let mut count = Pods::default();
        for pod in set.pods.iter().filter_map(|uid| self.pods.get(uid)) {
            count.active += i32::from(pod.is_active());
            count.ready += i32::from(pod.is_active() && pod.ready);
            count.unfinished += i32::from(!pod.finished);
        }
        count
    }
}

impl KnownDeployment {
    /// What it may be known to ask for.
    pub(super) fn wishes(&self) -> impl Iterator<Item = Wish> {
        self.wishes.iter().map(|(_, wish)| *wish)
    }
}

impl KnownSet {
    /// The largest size that it may be known to have.
    pub(super) fn largest(&self) -> i32 {
        self.sizes.iter().map(|(_, size)| *size).max().unwrap_or(self.now.replicas)
    }

    /// And the smallest.
    pub(super) fn smallest(&self) -> i32 {
        self.sizes.iter().map(|(_, size)| *size).min().unwrap_or(self.now.replicas)
    }

    /// How many it may be taken to have available.
    pub(super) fn available(&self, now: Timestamp) -> i32 {
        let said = self.said.iter().filter(|(until, _)| is_recent(*until, now));
        said.map(|(_, available)| *available).fold(self.now.available, i32::max)
    }

    /// Its pods, with those that others have just taken.
    pub(super) fn with_lost(&self, pods: Pods, now: Timestamp) -> Pods {
        let lost = self.lost.iter().filter(|(at, _)| is_recent(*at, now));
        lost.fold(pods, |pods, (_, loss)| Pods {
            active: pods.active + i32::from(loss.active),
            ready: pods.ready + i32::from(loss.ready),
            ..pods
        })
    }
}

fn is_recent(then: Timestamp, now: Timestamp) -> bool {
    now.duration_since(then) <= MOMENT
}
