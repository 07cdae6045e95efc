//! Fingerprints of a run: hashes of all that its next steps depend on.
//!
//! The state of the store is known. That of a process is known when it is **settled**: it waits for no response, its caches
//! contain what the store contains, and no record of an own write is left. Then only its queues matter. Otherwise, the
//! fingerprint contains the steps of the process since it was settled last. See `docs/simulation.md`.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kcm_apiserver::WatchEvent;

use super::{
    choices::StepKind,
    host::Process,
    objects::{Objects, Scope, written_name},
};

/// Resolution of times. Longer than a brief surprise.
pub(super) const RESOLUTION: Duration = Duration::from_millis(100);

/// Time within which sleeps of a process count. Those that end later are timeouts of requests and watches.
const HORIZON: Duration = Duration::from_secs(30);

/// The same at the end of the scenario. Longer than a run that has converged continues.
const END_HORIZON: Duration = Duration::from_secs(120);

/// Time after which a key is not delayed if no rollout has a deadline. Longer than runs take to converge.
const KEY_HORIZON: Duration = Duration::from_secs(400);

/// State of a run.
#[derive(Debug, Default)]
pub(super) struct RunState {
    objects: Objects,
    /// `true` if only the controllers of the manager run. All members of an object may matter to others.
    has_only_known_controllers: bool,
    processes: BTreeMap<usize, ProcessState>,
    /// Hash of the objects when they were backed up.
    backup: u64,
    /// Times of the last step.
    last: Duration,
    wall: Timestamp,
    /// Time of the last change of a Lease.
    lease: Duration,
}

/// Steps of a process since it was settled.
#[derive(Debug)]
struct ProcessState {
    process: Arc<Process>,
    /// Keys of the queues when the process was settled last.
    keys: Vec<QueuedKey>,
    /// `true` if the process has read something else than Leases.
    is_reading: bool,
    /// Time at which the process observed the last change of a Lease.
    observed: Duration,
    /// Time at which the end of the process was observed.
    ended: Option<Duration>,
    trace: Trace,
}

/// A key that a queue contains, that is delayed, or of which a sync has failed.
#[derive(Debug)]
struct QueuedKey {
    /// Hash of the controller, the key, its place in the queue, and its failures.
    id: u64,
    /// Time at which the key is added. `None` without a delay.
    due: Option<Duration>,
    /// `true` if the key is not in the queue and has no failures.
    is_only_delayed: bool,
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
    pub(super) fn new(has_only_known_controllers: bool) -> Self {
        Self { has_only_known_controllers, ..Self::default() }
    }

    /// A process starts.
    pub(super) fn started(&mut self, process: &Arc<Process>) {
        let process = Arc::clone(process);
        let state = ProcessState {
            keys: Vec::new(),
            is_reading: false,
            observed: Duration::ZERO,
            ended: None,
            trace: Trace::default(),
            process,
        };
        self.processes.insert(state.process.manager, state);
    }

    /// A process sends a request of this kind.
    pub(super) fn requested(&mut self, process: &Process, kind: StepKind, step: &str) {
        if let Some(state) = self.processes.get_mut(&process.manager) {
            state.is_reading |= kind != StepKind::Lease;
            state.trace.push("requests", step);
        }
    }

    /// A process receives a response, or its connection breaks.
    pub(super) fn responded(&mut self, process: &Process, kind: StepKind, result: &str) {
        if let Some(state) = self.processes.get_mut(&process.manager) {
            let is_success = result.starts_with('2');
            if kind == StepKind::Lease && is_success && state.observed <= self.lease {
                state.observed = self.last;
            }
            state.trace.push("requests", result);
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
        let Some((object, place, hashes)) = self.objects.changed(event, self.last) else { return };
        let (resource, is_gone) = (object.resource().plural(), matches!(event, WatchEvent::Deleted(_)));
        if resource == "leases" {
            self.lease = self.last;
        } else {
            let name = written_name(resource, object.name());
            for process in self.processes.values_mut().filter(|process| process.is_reading) {
                let content =
                    if process.process.controllers().is_empty() { hashes.exact } else { hashes.content };
                process.trace.push(resource, (name, place, content, is_gone));
            }
        }
    }

    /// The store is backed up.
    pub(super) fn backed_up(&mut self) {
        self.backup = self.objects.hash(Scope::All, Duration::ZERO, self.wall);
    }

    /// A step happens. If time has passed since the one before, all tasks were waiting.
    pub(super) fn advance(&mut self, now: Duration, wall: Timestamp) {
        if now <= self.last {
            return;
        }
        (self.last, self.wall) = (now, wall);
        for process in self.processes.values_mut() {
            if process.process.is_dead() {
                process.ended.get_or_insert(now);
                continue;
            }
            if let Some(keys) = process.keys_if_settled(now, wall, &self.objects) {
                (process.keys, process.trace) = (keys, Trace::default());
            }
        }
    }

    /// Hash of the state at a choice point.
    pub(super) fn fingerprint(&self) -> u64 {
        hash((bucket(self.last, Duration::ZERO), self.backup, self.hash(false)))
    }

    /// Hash of the state at the end of the scenario. What follows depends neither on the time nor on users.
    pub(super) fn end_fingerprint(&self) -> u64 {
        self.hash(true)
    }

    fn hash(&self, is_end: bool) -> u64 {
        let (origin, horizon) = if is_end { (self.last, END_HORIZON) } else { (Duration::ZERO, HORIZON) };
        let scope = match (self.has_only_known_controllers, is_end) {
            (false, _) => Scope::All,
            (true, false) => Scope::Steps,
            (true, true) => Scope::End,
        };
        let (until, end) = (self.last + horizon, self.last + KEY_HORIZON);
        let ignores_late_keys = self.has_only_known_controllers && !self.objects.have_deadline();
        let mut hasher = DefaultHasher::new();
        self.objects.hash(scope, origin, self.wall).hash(&mut hasher);
        for ProcessState { process, keys, observed, ended, trace, .. } in self.processes.values() {
            let (observed, ended) = (bucket(*observed, origin), ended.map(|ended| bucket(ended, origin)));
            (process.manager, observed, ended, trace.total).hash(&mut hasher);
            if trace.total != 0 {
                // Of what the process remembers, the times are not known.
                bucket(self.last, Duration::ZERO).hash(&mut hasher);
            }
            for QueuedKey { id, due, is_only_delayed } in keys {
                if !(ignores_late_keys && *is_only_delayed && due.is_some_and(|due| due > end)) {
                    let soon = due.filter(|due| *due <= until).map(|due| bucket(due, origin));
                    (id, due.is_some(), soon).hash(&mut hasher);
                }
            }
            for sleep in process.sleeps(until) {
                bucket(sleep, origin).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

impl ProcessState {
    /// Keys of the queues if the process is settled.
    fn keys_if_settled(&self, now: Duration, wall: Timestamp, objects: &Objects) -> Option<Vec<QueuedKey>> {
        let controllers = self.process.controllers();
        if !self.process.is_waiting(wall) || self.is_reading && controllers.is_empty() {
            return None;
        }
        let mut keys = Vec::new();
        for (number, controller) in controllers.iter().enumerate() {
            if controller.own_writes().is_some_and(|own_writes| !own_writes.is_settled())
                || !objects.are_cached(controller)
            {
                return None;
            }
            for key in objects.keys() {
                let mut state = controller.queue().state_of(key);
                if !state.is_idle() {
                    let due = state.delay.take().map(|delay| now + delay);
                    let id = hash((number, &*key.namespace, &*key.name, state.phase, state.requeues));
                    keys.push(QueuedKey { id, due, is_only_delayed: state.is_idle() });
                }
            }
        }
        Some(keys)
    }
}

pub(super) fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Time since `origin`, in units of [`RESOLUTION`].
pub(super) fn bucket(time: Duration, origin: Duration) -> i64 {
    let units = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    units(time).saturating_sub(units(origin)).div_euclid(units(RESOLUTION))
}

#[cfg(test)]
mod tests {
    use super::*;

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
