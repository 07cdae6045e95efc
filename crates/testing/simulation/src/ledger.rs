//! Pods and their owners as the judge has seen them, for rules that need their history.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kcm_apiserver::{Object, OwnerReference, Resource, WatchEvent, json::condition};
use kcm_invariants::Basis;
use serde_json::Value;

use crate::host::{Process, ProcessId};

/// Time that the whole seconds of a condition can hide.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Observed states of pods, ReplicaSets, ReplicationControllers and Deployments, by UID.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pods: BTreeMap<String, Pod>,
    objects: BTreeMap<String, TrackedObject>,
    reads: Vec<Read>,
}

/// Read of a Deployment, ReplicaSet or ReplicationController by a manager.
#[derive(Debug)]
struct Read {
    /// Reader.
    process: ProcessId,
    /// [`full_name`] of the object.
    object: String,
    at: Timestamp,
    revision: u64,
}

#[derive(Debug, Default)]
struct Pod {
    owner: Option<String>,
    /// Time since which the pod is ready and active.
    ready: Option<Timestamp>,
    /// Times at which it stopped being ready and active, with the time since which it was so.
    lost: Vec<(Timestamp, Timestamp)>,
}

/// An object that owns others, or is owned.
#[derive(Debug)]
struct TrackedObject {
    /// Revision since which the object exists.
    created: u64,
    /// [`full_name`].
    name: String,
    owner: Option<String>,
    labels: Value,
    selector: Value,
    deleting: Option<Deletion>,
    /// Time since which `spec.paused` is set.
    paused: Option<Timestamp>,
    /// Time at which `spec.paused` was last removed.
    resumed: Option<Timestamp>,
    /// Time of the last change of labels or owner.
    changed: Timestamp,
}

/// Time and revision since which an object is being deleted or gone.
#[derive(Debug, Clone, Copy)]
struct Deletion {
    since: Timestamp,
    revision: u64,
}

/// Manager's write that caused a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cause<'a> {
    pub(crate) writer: &'a Process,
    pub(crate) is_status: bool,
}

/// Rule for the numbers of pods in a status.
pub(crate) const TRUE_STATUS: &str = "true-status";

impl Ledger {
    /// Notes that `reader` reads the object with a [`full_name`].
    pub(crate) fn note_read(&mut self, reader: &Process, object: String, revision: u64, basis: Basis) {
        let process = reader.id();
        self.reads.retain(|read| read.process != process || read.at >= basis.since);
        self.reads.push(Read { process, object, at: basis.now, revision });
    }

    /// Applies a change. `cause` is `None` if it was not caused by a manager. Returns the rule that a manager's write
    /// violates, and a description.
    pub(crate) fn apply(
        &mut self,
        event: &WatchEvent,
        basis: Basis,
        cause: Option<Cause<'_>>,
    ) -> Option<(&'static str, String)> {
        let object = event.object()?;
        let is_gone = matches!(event, WatchEvent::Deleted(_));
        let resource = object.resource();
        let is_set = matches!(resource, Resource::REPLICA_SETS | Resource::REPLICATION_CONTROLLERS);
        if !is_set && !matches!(resource, Resource::PODS | Resource::DEPLOYMENTS) {
            return None;
        }
        let cause = cause.filter(|_| !is_gone);
        let wrong_owner = cause.and_then(|cause| self.wrong_owner(object, cause.writer, basis));
        let paused = cause.and_then(|_| self.created_while_paused(object, basis));
        if resource == Resource::PODS {
            self.apply_pod(object, is_gone, basis.now);
        }
        self.apply_object(object, is_gone, basis.now, event.revision());
        if let Some(what) = wrong_owner {
            return Some(("ownership", what));
        }
        if let Some(what) = paused {
            return Some(("paused", what));
        }
        let is_status = is_set && cause.is_some_and(|cause| cause.is_status);
        let found = if is_status { self.wrong_status(object, basis) } else { None };
        found.map(|what| (TRUE_STATUS, what))
    }

    /// `true` if no ReplicaSet or Deployment has the UID, or if it is being deleted.
    pub(crate) fn is_deleted(&self, uid: &str) -> bool {
        self.objects.get(uid).is_none_or(|object| object.deleting.is_some())
    }

    /// `true` if a writer may have observed that the owner of the object with a [`full_name`] was paused.
    pub(crate) fn was_owner_paused(&self, name: &str, basis: Basis) -> bool {
        let newest =
            self.objects.values().filter(|object| object.name == name).max_by_key(|object| object.created);
        let owner = newest.and_then(|object| self.objects.get(object.owner.as_ref()?));
        owner.is_some_and(|owner| {
            owner.paused.is_some() || owner.resumed.is_some_and(|resumed| resumed >= basis.since)
        })
    }

    fn apply_object(&mut self, object: &Object, is_gone: bool, now: Timestamp, revision: u64) {
        let value = object.value();
        let (owner, labels) = (controller(object), value["metadata"]["labels"].clone());
        let old = self.objects.get(object.uid());
        let is_same = old.is_some_and(|old| old.owner == owner && old.labels == labels);
        let changed = old.filter(|_| is_same).map_or(now, |old| old.changed);
        let is_deleting = is_gone || object.is_deleting();
        let deleting =
            old.and_then(|old| old.deleting).or(is_deleting.then_some(Deletion { since: now, revision }));
        let (was_paused, resumed) = old.map_or((None, None), |old| (old.paused, old.resumed));
        let is_paused = value["spec"]["paused"] == true;
        let known = TrackedObject {
            created: old.map_or(revision, |old| old.created),
            name: full_name(object.resource().plural(), object.namespace(), object.name()),
            owner,
            labels,
            selector: value["spec"]["selector"].clone(),
            deleting,
            paused: is_paused.then_some(was_paused.unwrap_or(now)),
            resumed: if was_paused.is_some() && !is_paused { Some(now) } else { resumed },
            changed,
        };
        self.objects.insert(object.uid().to_owned(), known);
    }

    fn apply_pod(&mut self, object: &Object, is_gone: bool, now: Timestamp) {
        let value = object.value();
        let ready = condition(value, "Ready");
        let is_ready = ready.is_some_and(|ready| ready["status"] == "True");
        let is_finished = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let owner = controller(object);
        let pod = self.pods.entry(object.uid().to_owned()).or_default();
        let counts = is_ready && !is_finished && !is_gone && !object.is_deleting();
        let is_same_owner = pod.owner == owner;
        match (pod.ready, counts && is_same_owner) {
            (Some(since), false) => {
                pod.lost.push((now, since));
                pod.ready = None;
            }
            (None, true) => pod.ready = Some(now),
            _ => {}
        }
        if counts && !is_same_owner {
            // It becomes another's, ready as it is.
            pod.ready = Some(ready.map_or(now, transition));
        }
        pod.owner = owner.or_else(|| pod.owner.take());
    }

    /// A creation for a Deployment that the writer must have seen paused.
    fn created_while_paused(&self, object: &Object, basis: Basis) -> Option<String> {
        if object.resource() != Resource::REPLICA_SETS || self.objects.contains_key(object.uid()) {
            return None;
        }
        let owner = self.objects.get(&controller(object)?)?;
        let is_paused = owner.paused.is_some_and(|since| since < basis.since);
        is_paused.then(|| format!("{} is created while {} is paused", object.name(), owner.name))
    }

    /// An adoption or a release that breaks the rules.
    fn wrong_owner(&self, object: &Object, writer: &Process, basis: Basis) -> Option<String> {
        let old = self.objects.get(object.uid())?;
        let new = controller(object);
        if old.owner == new {
            return None;
        }
        // A decision may be based on labels and owners that have changed since.
        let is_old = old.changed >= basis.since;
        let what = |why: &str| Some(format!("{} {why}", old.name));
        match new.as_ref().map(|new| self.objects.get(new)) {
            None => {
                let owner = self.objects.get(old.owner.as_ref()?)?;
                let matches = selects(&owner.selector, &old.labels);
                if matches && !is_old { what("is released although its labels match") } else { None }
            }
            Some(None) => what("is adopted by an owner that does not exist"),
            Some(Some(owner)) if !self.was_read(owner, writer, basis) => {
                what("is adopted by an owner that was not read, or was being deleted")
            }
            Some(Some(_)) if old.deleting.is_some_and(|deletion| deletion.since < basis.since) => {
                what("is adopted while it is being deleted")
            }
            Some(Some(owner)) if !is_old && !selects(&owner.selector, &old.labels) => {
                what("is adopted although its labels do not match")
            }
            Some(Some(_)) => None,
        }
    }

    /// `true` if `reader` has read `owner` since the state that it acts on, when the owner was not being deleted. The read may be
    /// that of another sync.
    fn was_read(&self, owner: &TrackedObject, reader: &Process, basis: Basis) -> bool {
        self.reads.iter().any(|read| {
            read.process == reader.id()
                && read.object == owner.name
                && read.at >= basis.since
                && read.revision >= owner.created
                && owner.deleting.is_none_or(|deletion| read.revision < deletion.revision)
        })
    }

    /// A status that reports more than there was.
    fn wrong_status(&self, set: &Object, basis: Basis) -> Option<String> {
        let value = set.value();
        let reported = |field: &str| value["status"][field].as_u64().unwrap_or(0);
        let wait = value["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
        let own = || self.pods.values().filter(|pod| pod.owner.as_deref() == Some(set.uid()));
        // The writer may not have received a loss since.
        let since = |pod: &Pod| {
            let lost = pod.lost.iter().filter(|(lost, _)| *lost >= basis.since).map(|(_, since)| *since);
            pod.ready.into_iter().chain(lost).min()
        };
        let ready = own().filter_map(since).count() as u64;
        let waited =
            |since: &Timestamp| basis.now.duration_since(*since) + SECOND >= SignedDuration::from_secs(wait);
        let available = own().filter_map(since).filter(waited).count() as u64;
        let name = set.name();
        if reported("readyReplicas") > ready {
            let reported = reported("readyReplicas");
            return Some(format!("{name} reports {reported} ready pods and has {ready}"));
        }
        if reported("availableReplicas") > available {
            let reported = reported("availableReplicas");
            return Some(format!("{name} reports {reported} available pods and has {available}"));
        }
        None
    }
}

/// Resource, namespace and name of an object.
pub(crate) fn full_name(resource: &str, namespace: &str, name: &str) -> String {
    format!("{resource} {namespace}/{name}")
}

fn controller(object: &Object) -> Option<String> {
    let controller = object.owner_references().find(|owner: &OwnerReference<'_>| owner.controller);
    controller.map(|owner| owner.uid.to_owned())
}

fn transition(condition: &Value) -> Timestamp {
    let time = condition["lastTransitionTime"].as_str().and_then(|time| time.parse().ok());
    time.unwrap_or(Timestamp::MIN)
}

/// `true` if a selector of the scenarios, which have only labels to match, selects `labels`.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.get("matchLabels").unwrap_or(selector);
    wanted.as_object().is_some_and(|wanted| wanted.iter().all(|(name, value)| labels[name] == *value))
}
