//! Fingerprints of a run: hashes of all that its next steps depend on.
//!
//! The state of the store is known. That of a process is known when it is **settled**: it waits for no response, its caches
//! contain what the store contains, and no record of an own write is left. Then only its queues matter. Otherwise, the
//! fingerprint contains the steps of the process since it was settled last. See `docs/simulation.md`.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kcm_apiserver::{Object, WatchEvent};
use kcm_runtime::{ControllerState, ObjectKey};
use serde_json::Value;

use super::{choices::StepKind, host::Process};

/// Resolution of times. Longer than a brief surprise.
pub(super) const RESOLUTION: Duration = Duration::from_millis(100);

/// Time within which sleeps of a process count. Those that end later are timeouts that depend on chance.
const HORIZON: Duration = Duration::from_secs(30);

/// Members of metadata that steps depend on.
const METADATA: [&str; 7] = [
    "labels",
    "annotations",
    "ownerReferences",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "generation",
];

/// Members that differ between runs, and on which no step depends.
const IDENTITIES: [&str; 3] = ["podIP", "podIPs", "containerID"];

/// Resource and key of an object.
type ObjectId = (Box<str>, ObjectKey);

/// State of a run.
#[derive(Debug, Default)]
pub(super) struct RunState {
    /// All objects that have existed.
    objects: BTreeMap<ObjectId, TracedObject>,
    /// Number of each object among those of its name that have existed, by UID.
    numbers: HashMap<Box<str>, u32>,
    processes: BTreeMap<usize, ProcessState>,
    /// Hash of the objects when they were backed up.
    backup: u64,
    /// Monotonic time of the last step.
    last: Duration,
}

#[derive(Debug, Default)]
struct TracedObject {
    /// Number of objects of this name that have existed.
    number: u32,
    /// `None` after the deletion.
    stored: Option<StoredObject>,
}

#[derive(Debug)]
struct StoredObject {
    version: String,
    content: u64,
    /// Time of the creation of a pod, or of the last change of a Lease.
    time: Option<u64>,
    /// Time at which the deletion began.
    deletion: Option<u64>,
}

/// Steps of a process since it was settled.
#[derive(Debug)]
struct ProcessState {
    process: Arc<Process>,
    /// Hash of the queues when the process was settled last.
    queues: u64,
    /// `true` if the process has read something else than Leases.
    is_reading: bool,
    /// Time at which the end of the process was observed.
    ended: Option<u64>,
    trace: Trace,
}

/// Hashes of the sequences of dependent steps, and of all of them.
#[derive(Debug, Default)]
struct Trace {
    sequences: BTreeMap<String, u64>,
    total: u64,
}

impl Trace {
    /// Appends a step to a sequence.
    fn push(&mut self, sequence: &str, step: impl Hash) {
        let old = self.sequences.get(sequence).copied().unwrap_or_default();
        let new = hash((old, step));
        if old != 0 {
            self.total ^= hash((sequence, old));
        }
        self.total ^= hash((sequence, new));
        match self.sequences.get_mut(sequence) {
            Some(slot) => *slot = new,
            None => {
                self.sequences.insert(sequence.to_owned(), new);
            }
        }
    }
}

impl RunState {
    /// A process starts.
    pub(super) fn started(&mut self, process: &Arc<Process>) {
        let process = Arc::clone(process);
        let state =
            ProcessState { queues: 0, is_reading: false, ended: None, trace: Trace::default(), process };
        self.processes.insert(state.process.manager, state);
    }

    /// A process sends a request of this kind, or receives the response.
    pub(super) fn requested(&mut self, process: &Process, kind: StepKind, what: &str) {
        if let Some(state) = self.processes.get_mut(&process.manager) {
            state.is_reading |= kind != StepKind::Lease;
            state.trace.push("requests", what);
        }
    }

    /// A process receives events of the collection at `path`.
    pub(super) fn received(&mut self, process: &Process, path: &str, events: usize) {
        if let Some(state) = self.processes.get_mut(&process.manager) {
            (0..events).for_each(|_| state.trace.push(path, ()));
        }
    }

    /// The store changes. Events are ignored.
    pub(super) fn changed(&mut self, event: &WatchEvent) {
        let Some(object) = event.object().filter(|object| object.resource().plural() != "events") else {
            return;
        };
        let resource = object.resource().plural();
        let key = ObjectKey::new(object.namespace(), object.name());
        let traced = self.objects.entry((resource.into(), key)).or_default();
        if traced.stored.is_none() {
            traced.number += 1;
            self.numbers.insert(object.uid().into(), traced.number);
        }
        let (content, is_gone) = (content(object, &self.numbers), matches!(event, WatchEvent::Deleted(_)));
        if resource != "leases" {
            for process in self.processes.values_mut().filter(|process| process.is_reading) {
                process.trace.push(resource, (object.name(), content, is_gone));
            }
        }
        let now = bucket(self.last);
        let before = traced.stored.as_ref();
        let time = match resource {
            "pods" => before.map_or(Some(now), |before| before.time),
            "leases" => Some(now),
            _ => None,
        };
        let deletion = before.and_then(|before| before.deletion).or(object.is_deleting().then_some(now));
        let version = object.revision().to_string();
        traced.stored = (!is_gone).then_some(StoredObject { version, content, time, deletion });
    }

    /// The store is backed up.
    pub(super) fn backed_up(&mut self) {
        self.backup = self.hash_of_objects();
    }

    /// A step happens. If time has passed since the one before, all tasks were waiting.
    pub(super) fn advance(&mut self, now: Duration, wall: Timestamp) {
        if now <= self.last {
            return;
        }
        self.last = now;
        for process in self.processes.values_mut() {
            if process.process.is_dead() {
                process.ended.get_or_insert(bucket(now));
            } else if let Some(queues) = process.queues_if_settled(now, wall, &self.objects) {
                (process.queues, process.trace) = (queues, Trace::default());
            }
        }
    }

    /// Hash of the state.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (bucket(self.last), self.hash_of_objects(), self.backup).hash(&mut hasher);
        for ProcessState { process, queues, ended, trace, .. } in self.processes.values() {
            let sleeps = process.sleeps(self.last + HORIZON).into_iter().map(bucket);
            (process.manager, queues, ended, trace.total, sleeps.collect::<Vec<_>>()).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn hash_of_objects(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for ((resource, key), object) in &self.objects {
            let Some(StoredObject { content, time, deletion, .. }) = &object.stored else { continue };
            // Names of pods are drawn. Their order matters: users and controllers choose pods by it.
            let name = if **resource == *"pods" { "" } else { &*key.name };
            (resource, &*key.namespace, name, content, time, deletion).hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl ProcessState {
    /// Hash of the queues if the process is settled.
    fn queues_if_settled(
        &self,
        now: Duration,
        wall: Timestamp,
        objects: &BTreeMap<ObjectId, TracedObject>,
    ) -> Option<u64> {
        if !self.process.is_waiting(wall) {
            return None;
        }
        let controllers = self.process.controllers();
        if self.is_reading && controllers.is_empty() {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        for (number, controller) in controllers.iter().enumerate() {
            if controller.own_writes().is_some_and(|own_writes| !own_writes.is_settled())
                || !is_current(controller, objects)
            {
                return None;
            }
            for (_, key) in objects.keys() {
                let state = controller.queue().state_of(key);
                let delay = state.delay.map(|delay| bucket(now + delay));
                if !state.is_idle() {
                    (number, &*key.namespace, &*key.name, state.phase, delay, state.requeues)
                        .hash(&mut hasher);
                }
            }
        }
        Some(hasher.finish())
    }
}

/// `true` if the caches of a controller contain all that the store contains.
fn is_current(controller: &ControllerState, objects: &BTreeMap<ObjectId, TracedObject>) -> bool {
    controller.cached_versions().all(|(informer, cached)| {
        // Its resource, and perhaps the group.
        let resource = informer.split('.').next().unwrap_or_default();
        let stored = objects.iter().filter(|((of, _), _)| **of == *resource);
        let stored = stored.filter_map(|((_, key), object)| Some((key, &*object.stored.as_ref()?.version)));
        let mut cached: Vec<_> = cached.iter().map(|(key, version)| (key, &**version)).collect();
        cached.sort_unstable();
        stored.eq(cached)
    })
}

pub(super) fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn bucket(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / RESOLUTION.as_millis()).unwrap_or(u64::MAX)
}

/// Hash of an object without [`IDENTITIES`]. Of a Lease, only the holder. `numbers` replace UIDs.
fn content(object: &Object, numbers: &HashMap<Box<str>, u32>) -> u64 {
    let value = object.value();
    if object.resource().plural() == "leases" {
        return hash(value["spec"]["holderIdentity"].as_str());
    }
    let mut hasher = DefaultHasher::new();
    object.is_deleting().hash(&mut hasher);
    for member in METADATA {
        hash_value(&value["metadata"][member], numbers, &mut hasher);
    }
    for (name, member) in value.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata") {
        name.hash(&mut hasher);
        hash_value(member, numbers, &mut hasher);
    }
    hasher.finish()
}

fn hash_value(value: &Value, numbers: &HashMap<Box<str>, u32>, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(members) => {
            members.len().hash(hasher);
            for (name, member) in members.iter().filter(|(name, _)| !IDENTITIES.contains(&&***name)) {
                name.hash(hasher);
                match member.as_str().filter(|_| name == "uid").and_then(|uid| numbers.get(uid)) {
                    Some(number) => number.hash(hasher),
                    None => hash_value(member, numbers, hasher),
                }
            }
        }
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash_value(item, numbers, hasher));
        }
        scalar => scalar.hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owners_are_identified_by_their_numbers_and_addresses_are_ignored() {
        let numbers = HashMap::from([("a".into(), 1), ("b".into(), 1), ("c".into(), 2)]);
        let of = |owner: &str, address: &str, image: &str| {
            let value = json!({"owner": {"uid": owner}, "podIP": address, "images": [image]});
            let mut hasher = DefaultHasher::new();
            hash_value(&value, &numbers, &mut hasher);
            hasher.finish()
        };
        assert_eq!(of("a", "10.0.0.1", "x"), of("b", "10.0.0.2", "x"));
        assert_ne!(of("a", "10.0.0.1", "x"), of("c", "10.0.0.1", "x"));
        assert_ne!(of("a", "10.0.0.1", "x"), of("unknown", "10.0.0.1", "x"));
        assert_ne!(of("a", "10.0.0.1", "x"), of("a", "10.0.0.1", "y"));
    }

    #[test]
    fn order_of_independent_steps_does_not_change_the_trace() {
        let trace = |steps: &[(&str, u32)]| {
            let mut trace = Trace::default();
            steps.iter().for_each(|(sequence, step)| trace.push(sequence, step));
            trace.total
        };
        assert_eq!(trace(&[("a", 1), ("b", 1), ("a", 2)]), trace(&[("b", 1), ("a", 1), ("a", 2)]));
        assert_ne!(trace(&[("a", 1), ("a", 2)]), trace(&[("a", 2), ("a", 1)]));
        assert_ne!(trace(&[("a", 1)]), trace(&[("b", 1)]));
    }
}
