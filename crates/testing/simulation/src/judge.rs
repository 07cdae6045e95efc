//! Judges every write, when it is sent and when it takes effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use http::Method;
use jiff::{SignedDuration, Timestamp};
use kcm_apiserver::{ApiServer, AuditEvent, Resource, WatchEvent, Watcher};
use kcm_clock::Clock;
use kcm_invariants::{Basis, Change, Entry, Invariant, Invariants, Violation};
pub(crate) use kcm_simulation::Finding;
pub(crate) use kcm_simulation::engine::observer::{Observer, RequestOrigin, START_MILLISECOND};
use kcm_simulation::engine::{
    observer::{log_line, watch},
    step::namespaced_object,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    choices::Choices,
    host::{Process, ProcessId},
    ledger::{Cause, Ledger, TRUE_STATUS, full_name},
    scenario::{Incident, Scenario, Strategy, UserAction},
    webhooks::RemovedOwners,
};

/// Observes a cluster and collects findings.
pub(crate) struct Judge {
    clock: Arc<dyn Clock>,
    /// Duration for which a leader may write after a renewal.
    term: Duration,
    /// `true` if managers elect a leader.
    elects: bool,
    exempt: BTreeSet<Invariant>,
    choices: Arc<Choices>,
    /// `true` if wall clocks step in the scenario.
    steps_clocks: bool,
    state: Mutex<State>,
    write_limit_reached: Notify,
}

#[derive(Default)]
struct State {
    watcher: Option<Watcher>,
    invariants: Invariants,
    ledger: Ledger,
    /// Sender of the request that is being executed.
    sender: Option<RequestOrigin>,
    /// Identity of the holder of the lease and time of its last renewal.
    holder: (String, Timestamp),
    /// Paths of writes that were executed although their sender may have got no response.
    unanswered: BTreeSet<String>,
    /// Pods that managers have created, by namespace and name.
    pods: BTreeSet<String>,
    /// Times of the last changes of each object, by [`full_name`] and by writer. Those of other clients, and of requests that were
    /// given up, have none.
    touched: BTreeMap<String, BTreeMap<Option<ProcessId>, Timestamp>>,
    /// Time of the last change of each Deployment by a manager.
    changed: BTreeMap<String, Timestamp>,
    /// Deployments of ReplicaSets that were created or updated after the sender had given the request up, had exited or had lost
    /// the Lease, as `namespace/name`.
    have_late_sets: BTreeSet<String>,
    /// `true` if the store was restored from a backup. From then on, only the end is judged: the caches of managers contain
    /// what has never happened.
    is_restored: bool,
    removed_owners: RemovedOwners,
    findings: Vec<Finding>,
    taken: usize,
    log: Vec<String>,
    /// Writes of managers so far, leases and events apart.
    writes: u64,
}

impl Judge {
    pub(crate) fn new(clock: Arc<dyn Clock>, scenario: &Scenario, choices: &Arc<Choices>) -> Arc<Self> {
        let term = Duration::from_secs(scenario.managers.lease * 2 / 3);
        let exempt = exemptions(scenario);
        let steps_clocks = steps_clocks(scenario);
        Arc::new(Self {
            clock,
            term,
            elects: scenario.managers.lease > 0,
            exempt,
            choices: Arc::clone(choices),
            steps_clocks,
            state: Mutex::default(),
            write_limit_reached: Notify::new(),
        })
    }

    /// Judges what happens to `server` from now on.
    pub(crate) fn watch(self: &Arc<Self>, server: &ApiServer) {
        self.state.lock().watcher = Some(watch(Arc::clone(self), server));
    }

    /// Notes that the store was restored from a backup.
    pub(crate) fn restored(self: &Arc<Self>, server: &ApiServer) {
        self.state.lock().is_restored = true;
        self.choices.trace_restore(server);
        self.watch(server);
    }
}

impl Observer for Judge {
    fn sent(&self, process: &Process, method: &Method, path: &str) {
        if !self.elects || !needs_leader(path) {
            return;
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.is_restored {
            return;
        }
        let (holder, renewed) = &state.holder;
        let is_holder = process.identity().is_some_and(|own| own == *holder);
        let age = now.duration_since(*renewed).unsigned_abs();
        let what = if !is_holder {
            format!("{process:?} sends {method} {path}, and the lease is held by {holder:?}")
        } else if age > self.term {
            format!("{process:?} sends {method} {path} {} ms after its last renewal", age.as_millis())
        } else {
            return;
        };
        state.find("lease-term", what, now);
    }

    fn process_starts(&self) {
        if !self.elects {
            self.state.lock().invariants.manager_restarted();
        }
    }

    fn panicked(&self, what: &str) {
        self.find("panic", what);
    }

    fn response_lost(&self, path: &str) {
        // Names of pods are drawn.
        self.choices.excuse(if path.contains("/pods/") { "pods" } else { path });
        self.state.lock().unanswered.insert(path.to_owned());
    }

    fn begin_read(&self, sender: &RequestOrigin, path: &str) {
        let Some((resource, namespace, name)) = namespaced_object(path) else { return };
        if !matches!(resource, "deployments" | "replicasets" | "replicationcontrollers") {
            return;
        }
        self.catch_up();
        let mut state = self.state.lock();
        let revision = state.watcher.as_ref().map_or(0, Watcher::revision);
        let owner = full_name(resource, namespace, name);
        state.ledger.note_read(&sender.process, owner, revision, basis_of(sender, self.clock.now()));
    }

    fn begin_write(&self, sender: RequestOrigin) {
        self.catch_up();
        self.state.lock().sender = Some(sender);
    }

    fn finish_write(&self) {
        self.state.lock().sender = None;
    }

    fn catch_up(&self) {
        let now = self.clock.now();
        self.state.lock().caused(0..0, now, &self.choices);
    }

    fn note(&self, what: &str) {
        let now = self.clock.now();
        self.state.lock().line(now, what);
    }
}

impl Judge {
    /// A request was executed.
    pub(crate) fn audit(&self, event: &AuditEvent) {
        let entry = Entry::from(event);
        if !entry.is_write() {
            return;
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Some(sender) = state.sender.clone() else { return };
        let caused = state.caused(event.revision_before..event.revision_after, now, &self.choices);
        state.log(&sender, &entry, event.revision_after, now);
        if entry.resource == "leases" {
            self.note_lease(&mut state, &sender, &entry, now);
            return;
        }
        // Events may be written long after what they are about, and requests executed long after they were sent.
        state.writes += u64::from(entry.resource != "events" && !sender.is_abandoned);
        if state.writes == MAX_WRITES {
            state.find("effort", format!("{MAX_WRITES} writes"), now);
            self.write_limit_reached.notify_one();
        }
        if state.is_restored {
            return;
        }
        let is_new_name = entry.resource != "pods"
            || entry.verb != "create"
            || entry.code >= 300
            || state.pods.insert(format!("{}/{}", entry.namespace, entry.name));
        let leads = !self.elects || sender.process.identity().is_some_and(|own| own == state.holder.0);
        let is_creation = entry.verb == "create";
        let is_over = sender.process.is_dead() || !leads;
        let can_note_size = entry.subresource.is_empty() && matches!(&*entry.verb, "create" | "update");
        if (is_over || sender.is_abandoned)
            && entry.resource == "replicasets"
            && can_note_size
            && entry.code < 300
            && let Some(deployment) = deployment_of(&entry)
        {
            self.choices.excuse(&format!("late ReplicaSet of {deployment}"));
            state.have_late_sets.insert(deployment);
        }
        if is_over || (sender.is_abandoned && !(is_creation && is_new_name)) {
            // The sender does not run or lead any more, or has given the request up.
            for event in &caused {
                state.others(event, now);
            }
            return;
        }
        state.removed_owners.note(&entry, &caused);
        let owned: Vec<_> = caused.iter().map(|event| state.removed_owners.put_back(event)).collect();
        let changes: Vec<Change<'_>> =
            caused.iter().zip(&owned).filter_map(|(event, owned)| change(event, owned.as_ref())).collect();
        let basis = basis_of(&sender, now);
        state.invariants.check_write(&entry, &changes, basis);
        self.take_violations(&mut state, &entry, basis);
        for event in &caused {
            state.touch(event, Some(sender.process.id()), now);
            let cause = Cause { writer: &sender.process, is_status: entry.subresource == "status" };
            match state.ledger.apply(event, basis, Some(cause)) {
                // Pods become available by wall clocks.
                Some((TRUE_STATUS, _)) if self.steps_clocks => {}
                Some((rule, what)) => state.find(rule, what, now),
                None => {}
            }
        }
        // The status of a Deployment is written after its ReplicaSet was created, also if it says so already (US-4.8).
        let is_creation_or_status = entry.resource == "deployments" || is_creation;
        if let Some(deployment) =
            deployment_of(&entry).filter(|_| is_creation_or_status && !changes.is_empty())
        {
            state.changed.insert(deployment, now);
        }
    }

    fn note_lease(&self, state: &mut State, sender: &RequestOrigin, entry: &Entry, now: Timestamp) {
        let holder = entry.body.as_ref().and_then(|body| body["spec"]["holderIdentity"].as_str());
        if entry.code >= 300 {
            return;
        }
        let holder = holder.unwrap_or_default();
        if holder.is_empty() {
            state.holder.0.clear();
            return;
        }
        sender.process.set_identity(holder);
        if state.holder.0 != holder {
            state.invariants.manager_restarted();
        }
        state.holder = (holder.to_owned(), now);
    }

    fn take_violations(&self, state: &mut State, write: &Entry, basis: Basis) {
        let now = basis.now;
        let new: Vec<Violation> =
            state.invariants.violations().get(state.taken..).unwrap_or_default().to_vec();
        state.taken += new.len();
        for violation in new {
            if self.exempt.contains(&violation.invariant) || state.excuses(&violation, write, basis) {
                continue;
            }
            let Violation { invariant, object, description, write: described, .. } = violation;
            let mut what = format!("{object}: {description}; by {described}");
            if invariant == Invariant::IdleWrite
                && let Some(body) = &write.body
            {
                what = format!("{what}: {}", body.get("status").unwrap_or(body));
            }
            state.find(&rule_name(invariant), what, now);
        }
    }

    /// The run ends. Reports rollouts without progress that were not marked, also those that no write has followed.
    pub(crate) fn end(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.is_restored || self.exempt.contains(&Invariant::MissedTimeout) {
            return;
        }
        state.invariants.end(now);
        let pending = state.invariants.violations().get(state.taken..).unwrap_or_default().to_vec();
        for Violation { object, description, .. } in
            pending.into_iter().filter(|violation| violation.invariant == Invariant::MissedTimeout)
        {
            state.find(&rule_name(Invariant::MissedTimeout), format!("{object}: {description}"), now);
        }
    }

    /// Waits until managers have written more than any scenario requires. They may do so without an end, at one instant.
    pub(crate) async fn write_limit_reached(&self) {
        self.write_limit_reached.notified().await;
    }

    pub(crate) fn find(&self, rule: &str, what: impl Into<String>) {
        let now = self.clock.now();
        self.state.lock().find(rule, what.into(), now);
    }

    pub(crate) fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.state.lock().findings.clone()
    }

    pub(crate) fn has_findings(&self) -> bool {
        !self.state.lock().findings.is_empty()
    }

    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().log)
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl State {
    /// Takes in what has happened. Returns what happened in `revisions`, which is left to the caller.
    fn caused(
        &mut self,
        revisions: std::ops::Range<u64>,
        now: Timestamp,
        choices: &Choices,
    ) -> Vec<WatchEvent> {
        let mut caused = Vec::new();
        loop {
            let event = match self.watcher.as_mut().map(Watcher::try_next) {
                None | Some(Ok(None)) => break,
                Some(Ok(Some(event))) => event,
                Some(Err(error)) => {
                    // A defect of the simulation: the history is too short for it.
                    self.watcher = None;
                    self.find("simulation", error.to_string(), now);
                    break;
                }
            };
            choices.trace_change(&event);
            if event.revision() > revisions.start && event.revision() <= revisions.end {
                caused.push(event);
            } else {
                self.others(&event, now);
            }
        }
        caused
    }

    fn others(&mut self, event: &WatchEvent, now: Timestamp) {
        let is_known = event.object().is_some_and(|object| {
            matches!(
                object.resource(),
                Resource::DEPLOYMENTS
                    | Resource::REPLICA_SETS
                    | Resource::PODS
                    | Resource::REPLICATION_CONTROLLERS
            )
        });
        let owned = self.removed_owners.put_back(event);
        if is_known && let Some(change) = change(event, owned.as_ref()) {
            self.invariants.observe_change(change, now);
            self.ledger.apply(event, Basis::current(now), None);
            self.touch(event, None, now);
        }
    }

    fn touch(&mut self, event: &WatchEvent, writer: Option<ProcessId>, now: Timestamp) {
        if let Some(object) = event.object() {
            let name = full_name(object.resource().plural(), object.namespace(), object.name());
            self.touched.entry(name).or_default().insert(writer, now);
        }
    }

    fn find(&mut self, rule: &str, what: String, now: Timestamp) {
        self.line(now, &format!("FINDING {rule}: {what}"));
        // The first ones matter; others follow from them.
        if self.findings.len() < 20 {
            self.findings.push(Finding { rule: rule.to_owned(), what });
        }
    }

    /// `true` for a violation that follows from a fault.
    fn excuses(&self, violation: &Violation, write: &Entry, basis: Basis) -> bool {
        let path = |what: &str| format!("/{}/{what}", write.namespace);
        let key = full_name(&write.resource, &write.namespace, &write.name);
        let writer = self.sender.as_ref().map(|sender| sender.process.id());
        let is_unseen = |counts: &dyn Fn(Option<ProcessId>) -> bool| {
            let mut times = self.touched.get(&key).into_iter().flatten();
            times.any(|(by, at)| counts(*by) && *at >= basis.since)
        };
        let has_late_set = || deployment_of(write).is_some_and(|name| self.have_late_sets.contains(&name));
        let is_old = basis.since.saturating_add(RESOLUTION).is_ok_and(|seen| seen < basis.now);
        match violation.invariant {
            // What was done without a response, or not seen, is done again. Times in a status are exact in memory and whole seconds on
            // the wire (US-4.12).
            Invariant::IdleWrite => {
                let object = path(&format!("{}/{}", write.resource, write.name));
                // A patch requires no version, so it may repeat what the cache does not contain yet.
                is_unseen(&|by| write.verb == "patch" || by != writer)
                    || self.unanswered.iter().any(|path| path.contains(&object))
                    || write.resource == "deployments" && self.is_just_changed(write, basis)
            }
            // A creation that got no response is repeated.
            Invariant::CreatedTwice => {
                let collection = path("replicasets");
                write.code >= 300 && self.unanswered.iter().any(|path| path.ends_with(&collection))
            }
            // A creation that was given up may be executed after the ReplicaSet controller has observed the scale-down.
            Invariant::RecreateOldPods => self.sender.as_ref().is_some_and(|sender| sender.is_abandoned),
            // The owner that a webhook has removed no longer exists, so another ReplicaSet adopts the pod.
            Invariant::TwoControllers => {
                write.resource == "pods"
                    && self
                        .removed_owners
                        .former_owner(&write.namespace, &write.name)
                        .is_some_and(|owner| self.ledger.is_deleted(owner))
            }
            // A pod may be orphaned before its deletion takes effect. A ReplicaSet may get pods, too, but with current caches
            // none is deleted that has some. The cleanup uses the ReplicaSets from before a paused Deployment was scaled (US-4.7,
            // US-4.13).
            Invariant::DeletedInUse => {
                is_unseen(&|_| true) && (write.resource == "pods" || is_old)
                    || write.resource == "replicasets" && self.ledger.was_owner_paused(&key, basis)
            }
            // A ReplicaSet that is written late says that it was scaled for another size: all are then scaled in proportion,
            // whatever is available (US-4.8b).
            Invariant::Availability | Invariant::SurplusReplicas => has_late_set(),
            // Revisions follow from the ReplicaSets that exist (US-4.8).
            Invariant::Revisions => has_late_set(),
            _ => false,
        }
    }

    /// `true` if the object of a write has been changed within the same second, or since the sync began.
    fn is_just_changed(&self, write: &Entry, basis: Basis) -> bool {
        let changed = self.changed.get(&format!("{}/{}", write.namespace, write.name));
        changed.is_some_and(|changed| changed.as_second() == basis.now.as_second() || *changed >= basis.since)
    }

    fn log(&mut self, sender: &RequestOrigin, entry: &Entry, revision: u64, now: Timestamp) {
        let Entry { verb, resource, subresource, namespace, name, code, .. } = entry;
        let part = if subresource.is_empty() { "" } else { "/" };
        let late = if sender.is_abandoned { " (late)" } else { "" };
        let process = &sender.process;
        let line = format!(
            "{process:?} {verb} {resource}{part}{subresource} {namespace}/{name} {code} at {revision}{late}"
        );
        self.line(now, &line);
    }

    fn line(&mut self, now: Timestamp, what: &str) {
        self.log.push(log_line(now, what));
    }
}

/// Writes in one run after which it ends. Runs with 300 pods have some thousands.
const MAX_WRITES: u64 = 20_000;

/// Resolution of simulated time.
const RESOLUTION: SignedDuration = SignedDuration::from_millis(1);

/// Basis of a request that is executed at `now`.
fn basis_of(sender: &RequestOrigin, now: Timestamp) -> Basis {
    // A sync may have begun right before what others did within the same millisecond.
    let since = sender.basis.min(now);
    let since = since.saturating_sub(RESOLUTION).unwrap_or(since);
    Basis { now, since, delay: SignedDuration::ZERO, is_abandoned: sender.is_abandoned }
}

/// Namespace and name of the Deployment that a write concerns: the object, or the owner of a ReplicaSet.
fn deployment_of(write: &Entry) -> Option<String> {
    let name = match &*write.resource {
        "deployments" => &*write.name,
        "replicasets" => write.body.as_ref()?.pointer("/metadata/ownerReferences/0/name")?.as_str()?,
        _ => return None,
    };
    Some(format!("{}/{name}", write.namespace))
}

/// The change of an event, or of `owned` in place of the object.
fn change<'a>(event: &'a WatchEvent, owned: Option<&'a Value>) -> Option<Change<'a>> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            Some(Change::Applied(owned.unwrap_or_else(|| object.value())))
        }
        WatchEvent::Deleted(object) => Some(Change::Deleted(owned.unwrap_or_else(|| object.value()))),
        WatchEvent::InitialEventsEnd(_) => None,
    }
}

/// `true` for writes of controllers. The election itself and its events need no leader.
fn needs_leader(path: &str) -> bool {
    ["/pods", "/replicasets", "/deployments", "/replicationcontrollers"]
        .iter()
        .any(|what| path.contains(what))
}

/// `true` if the wall clock of a host steps.
fn steps_clocks(scenario: &Scenario) -> bool {
    scenario.incidents.iter().any(|one| matches!(one.event, Incident::ClockStep { .. }))
}

/// Invariants that upstream's controllers do not hold in such a scenario either, each for a reason.
fn exemptions(scenario: &Scenario) -> BTreeSet<Invariant> {
    let mut exempt = BTreeSet::from([
        // Counts requests and syncs between the steps of a story. Here, actions overlap.
        Invariant::Effort,
    ]);
    let (mut deletes_sets, mut scales_sets, mut pauses) = (false, false, false);
    let (mut sets_strategy, mut rolls_back) = (false, false);
    let is_recreate = scenario.workloads.iter().any(|one| matches!(one.strategy, Strategy::Recreate));
    for action in &scenario.actions {
        match action.event {
            UserAction::DeleteSet { .. }
            | UserAction::ReleaseSet { .. }
            | UserAction::OrphanSet { .. }
            | UserAction::Delete { .. } => deletes_sets = true,
            UserAction::ScaleSet { .. } => scales_sets = true,
            // A rollback by annotation creates the ReplicaSet of the current template first, with all its pods if the strategy
            // is Recreate (US-4.14).
            UserAction::Undo { .. } => {
                exempt.insert(Invariant::RecreateOverlap);
                rolls_back = true;
            }
            UserAction::Pause { .. } => pauses = true,
            UserAction::SetStrategy { .. } => sets_strategy = true,
            _ => {}
        }
    }
    if rolls_back && (is_recreate || sets_strategy) {
        exempt.insert(Invariant::SurplusReplicas);
    }
    if deletes_sets {
        // They follow from the ReplicaSets that exist (US-4.8).
        exempt.insert(Invariant::Revisions);
    }
    if scales_sets {
        // Shares are in proportion to the sizes that the controller has noted, whatever is available (US-4.8b).
        exempt.insert(Invariant::SurplusReplicas);
        exempt.insert(Invariant::Availability);
        // Nor does a Deployment that is scaled wait for pods to be gone.
        exempt.insert(Invariant::RecreateOverlap);
    }
    if pauses {
        // If the cleanup deletes all ReplicaSets, revisions start again.
        exempt.insert(Invariant::Revisions);
    }
    if steps_clocks(scenario) {
        exempt.insert(Invariant::EarlyTimeout);
    }
    if scenario.has_faults() {
        // The manager may be stopped, and retries may be delayed for longer.
        exempt.insert(Invariant::MissedTimeout);
    }
    if pauses && sets_strategy {
        // A paused Deployment whose strategy allows fewer pods is scaled in proportion, whatever is available (US-4.8b).
        exempt.insert(Invariant::Availability);
    }
    exempt
}

/// The name of an invariant in story files.
fn rule_name(invariant: Invariant) -> String {
    let name = serde_json::to_value(invariant);
    name.ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_else(|| format!("{invariant:?}"))
}

/// Value of `spec.replicas`.
pub(crate) fn replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}
