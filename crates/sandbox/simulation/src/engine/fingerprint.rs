//! Fingerprints of a run: hashes of all that its next steps depend on.
//!
//! The state of the store is known. That of a process is known when it is **settled**: it waits for no response, its caches
//! contain what the store contains, and no record of an own write is left. Then only its queues matter. Otherwise, the
//! fingerprint contains the steps of the process since it was settled last. See `docs/simulation.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kcm_apiserver::{Object, WatchEvent};
use kcm_runtime::{ControllerState, OwnWrites};

use super::{
    host::Process,
    objects::{Change, Hashes, ObjectVersion, Objects, Scope, written_name},
    surprises::StepKind,
};

/// Resolution of times. Longer than a brief surprise.
pub(super) const RESOLUTION: Duration = Duration::from_millis(100);

/// Time within which sleeps of a process count. Those that end later are timeouts of requests and watches.
const HORIZON: Duration = Duration::from_secs(30);

/// The same at the end of the scenario. Longer than a run that has converged continues.
const END_HORIZON: Duration = Duration::from_secs(120);

/// State of a run.
#[derive(Debug, Default)]
pub(super) struct RunState {
    objects: Objects,
    /// Longest time that a run continues after a choice point. A longer delay of a key does not matter if no rollout has a deadline.
    /// `None` if other controllers than those of the manager run: all members of an object may matter to them.
    settles_within: Option<Duration>,
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
    /// Paths of the collections that the process has listed or watched, without those of Leases.
    collections: BTreeSet<String>,
    /// Time at which the process observed the last change of a Lease.
    observed: Option<Duration>,
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
    pub(super) fn new(settles_within: Option<Duration>) -> Self {
        Self { settles_within, ..Self::default() }
    }

    /// A process starts.
    pub(super) fn started(&mut self, process: &Arc<Process>) {
        let process = Arc::clone(process);
        let state = ProcessState {
            keys: Vec::new(),
            is_reading: false,
            collections: BTreeSet::new(),
            observed: None,
            trace: Trace::default(),
            process,
        };
        self.processes.insert(state.process.manager, state);
    }

    /// A process sends a request of this kind.
    pub(super) fn requested(&mut self, process: &Process, kind: StepKind, step: &str, path: &str) {
        if let Some(state) = self.processes.get_mut(&process.manager) {
            state.is_reading |= kind != StepKind::Lease;
            if kind == StepKind::Read && step.contains(" list ") && !state.collections.contains(path) {
                state.collections.insert(path.to_owned());
            }
            let path = if self.settles_within.is_some() { written_path(path) } else { path.to_owned() };
            state.trace.push("requests", (step, path));
        }
    }

    /// A process receives a response, or its connection breaks.
    pub(super) fn responded(&mut self, process: &Process, kind: StepKind, result: &str) {
        if let Some(state) = self.processes.get_mut(&process.manager) {
            let is_success = result.starts_with('2');
            if kind == StepKind::Lease && is_success && state.observed.is_none_or(|at| at <= self.lease) {
                state.observed = Some(self.last);
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
        let Some(object) = event.object() else { return };
        let is_gone = matches!(event, WatchEvent::Deleted(_));
        let Some(Change { written, place, before, after }) = self.objects.changed(object, is_gone, self.last)
        else {
            return;
        };
        let resource = object.resource().plural();
        if resource == "leases" {
            self.lease = self.last;
        } else {
            let of =
                |hashes: Hashes| if self.settles_within.is_some() { hashes.content } else { hashes.exact };
            let change = (written, place, before.map(of), of(after), is_gone);
            for process in self.processes.values_mut().filter(|process| process.is_reading) {
                process.trace.push(resource, &change);
            }
        }
    }

    /// The store is replaced. It contains `objects` now.
    pub(super) fn restored(&mut self, objects: &[Arc<Object>]) {
        self.objects.replace(objects, self.last);
        self.lease = self.last;
        for process in self.processes.values_mut() {
            process.trace.push("restores", self.backup);
        }
    }

    /// The store is backed up.
    pub(super) fn backed_up(&mut self) {
        self.backup = self.objects.hash(Scope::All, Duration::ZERO, self.wall);
    }

    /// `false` if the object will never have this version again. A restore may bring an older version back.
    pub(super) fn may_have(&self, version: &ObjectVersion) -> bool {
        self.backup != 0 || self.objects.has(version)
    }

    /// A step happens. If time has passed since the one before, all tasks were waiting.
    pub(super) fn advance(&mut self, now: Duration, wall: Timestamp) {
        if now <= self.last {
            return;
        }
        (self.last, self.wall) = (now, wall);
        let has_other_controllers = self.settles_within.is_none();
        for process in self.processes.values_mut() {
            if process.process.is_dead() {
                continue;
            }
            if let Some(keys) = process.keys_if_settled(now, wall, &self.objects, has_other_controllers) {
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
        let scope = match (self.settles_within, is_end) {
            (None, _) => Scope::All,
            (Some(_), false) => Scope::Steps,
            (Some(_), true) => Scope::End,
        };
        let until = self.last + horizon;
        let end = self
            .settles_within
            .filter(|_| !self.objects.have_deadline())
            .map(|time| self.last + time + END_HORIZON);
        let mut hasher = DefaultHasher::new();
        self.objects.hash(scope, origin, self.wall).hash(&mut hasher);
        for ProcessState { process, keys, is_reading, observed, trace, .. } in self.processes.values() {
            let is_settled = trace.total == 0;
            // After the end, only the time of the last change of a Lease matters to an election of processes that wait for nothing
            // else.
            let has_times = !(is_end && is_settled && process.is_waiting(self.wall));
            let observed = observed.filter(|_| has_times).map(|at| bucket(at, origin));
            let exited = process.exited().map(|exited| bucket(exited, origin));
            (process.manager, observed, exited, trace.total).hash(&mut hasher);
            // A manager that leads has controllers.
            (is_reading, process.has_controllers()).hash(&mut hasher);
            let mut current = Vec::new();
            if !is_settled {
                // Of what the process remembers, the times are not known.
                bucket(self.last, Duration::ZERO).hash(&mut hasher);
                current = queued_keys(&process.controllers(), self.last, &self.objects);
            }
            for queued in [keys, &current] {
                for QueuedKey { id, due, is_only_delayed } in queued {
                    let due = due.filter(|due| end.is_none_or(|end| *due <= end));
                    if due.is_some() || !is_only_delayed {
                        let soon = due.filter(|due| *due <= until).map(|due| bucket(due, origin));
                        (id, due.is_some(), soon).hash(&mut hasher);
                    }
                }
                hasher.write_u8(0xff);
            }
            let sleeps = if has_times { process.sleeps(until) } else { Vec::new() };
            sleeps.into_iter().for_each(|sleep| bucket(sleep, origin).hash(&mut hasher));
        }
        hasher.finish()
    }
}

impl ProcessState {
    /// Keys of the queues if the process is settled. A controller manager that does not lead has no controllers yet. Its caches
    /// do not matter, because it lists again when it is elected.
    fn keys_if_settled(
        &self,
        now: Duration,
        wall: Timestamp,
        objects: &Objects,
        has_other_controllers: bool,
    ) -> Option<Vec<QueuedKey>> {
        let controllers = self.process.controllers();
        let is_standby = || !has_other_controllers && self.process.has_watched(&self.collections);
        let is_known = !self.is_reading || !controllers.is_empty() || is_standby();
        if !is_known || !self.process.is_waiting(wall) {
            return None;
        }
        let is_settled = |controller: &ControllerState| {
            controller.own_writes().is_none_or(OwnWrites::is_settled) && objects.are_cached(controller)
        };
        controllers.iter().all(is_settled).then(|| queued_keys(&controllers, now, objects))
    }
}

/// Keys of the queues of controllers.
fn queued_keys(controllers: &[ControllerState], now: Duration, objects: &Objects) -> Vec<QueuedKey> {
    let mut keys = Vec::new();
    for (number, controller) in controllers.iter().enumerate() {
        for key in objects.keys() {
            let mut state = controller.queue().state_of(key);
            if !state.is_idle() {
                let due = state.delay.take().map(|delay| now + delay);
                let id = hash((number, &*key.namespace, &*key.name, state.phase, state.requeues));
                keys.push(QueuedKey { id, due, is_only_delayed: state.is_idle() });
            }
        }
    }
    keys
}

/// Path of a request, without the drawn parts of names.
fn written_path(path: &str) -> String {
    let mut resource = "";
    let written = path.split('/').map(|part| written_name(std::mem::replace(&mut resource, part), part));
    written.collect::<Vec<_>>().join("/")
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
    use kcm_clock::SimulatedClock;

    use super::{
        super::host::{Host, ObservedHistory},
        *,
    };

    #[test]
    fn drawn_parts_of_names_are_left_out_of_paths() {
        assert_eq!(
            written_path("/api/v1/namespaces/n-1/pods/w-abc/status"),
            "/api/v1/namespaces/n-1/pods/w/status"
        );
        assert_eq!(written_path("/apis/apps/v1/replicasets/w-abc"), "/apis/apps/v1/replicasets/w-abc");
    }

    /// Process that has listed nodes and pods, and has observed a change of a Lease at the second `observed`.
    fn listed(observed: u64) -> (RunState, Arc<Process>) {
        let process = Process::new(0, 1, &Host::new(Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH))), 0);
        let mut run = RunState::new(Some(Duration::ZERO));
        run.started(&process);
        run.requested(&process, StepKind::Read, "m0 list nodes", "/api/v1/nodes");
        run.requested(&process, StepKind::Read, "m0 list pods", "/api/v1/pods");
        run.last = Duration::from_secs(observed);
        run.responded(&process, StepKind::Lease, "200");
        (run, process)
    }

    fn watch(process: &Process, path: &str) {
        let number = process.begin_watch(path);
        process.record_observed(path, number, ObservedHistory::UpTo(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn manager_without_controllers_is_settled_when_it_watches_all_collections() {
        let (mut now, wall) = (Duration::from_secs(9), Timestamp::UNIX_EPOCH);
        let (mut run, process) = listed(1);
        let mut is_settled = |settles_within| {
            now += RESOLUTION;
            run.settles_within = settles_within;
            run.advance(now, wall);
            run.processes[&0].trace.total == 0
        };
        watch(&process, "/api/v1/nodes");
        assert!(!is_settled(Some(Duration::ZERO)));
        watch(&process, "/api/v1/pods");
        assert!(!is_settled(None), "other controllers");
        assert!(is_settled(Some(Duration::ZERO)));
    }

    #[test]
    fn manager_that_has_read_nothing_differs_at_the_end() {
        let (now, wall) = (Duration::from_secs(9), Timestamp::UNIX_EPOCH);
        let (mut run, process) = listed(1);
        let end = |run: &mut RunState| {
            run.advance(now, wall);
            (run.processes[&0].trace.total, run.end_fingerprint())
        };
        watch(&process, "/api/v1/nodes");
        watch(&process, "/api/v1/pods");
        let (trace, watching) = end(&mut run);
        let mut fresh = RunState::new(Some(Duration::ZERO));
        fresh.started(&Process::new(0, 2, &process.host, 0));
        let (other, reading_nothing) = end(&mut fresh);
        assert_eq!((trace, other), (0, 0));
        assert_ne!(watching, reading_nothing);
    }

    #[test]
    fn times_of_elections_do_not_matter_at_the_end() {
        let ends = |watches: bool, observed: u64| {
            let (now, wall) = (Duration::from_secs(9), Timestamp::UNIX_EPOCH);
            let (mut run, process) = listed(observed);
            if watches {
                watch(&process, "/api/v1/nodes");
                watch(&process, "/api/v1/pods");
            }
            run.advance(now, wall);
            (run.end_fingerprint(), run.fingerprint())
        };
        assert_eq!(ends(true, 1).0, ends(true, 2).0);
        assert_ne!(ends(true, 1).1, ends(true, 2).1, "before the end");
        assert_ne!(ends(false, 1).0, ends(false, 2).0, "not settled");
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
