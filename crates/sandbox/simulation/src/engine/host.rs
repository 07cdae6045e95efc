//! Hosts of controller managers, and the processes on them.
//!
//! A process is stopped and continued by its clock and its network: while it is stopped, no sleep of it ends, no
//! request of it is sent and no response reaches it. A stopped process has no other effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kcm_apiserver::WatchCacheLag;
use kcm_clock::{Clock, Sleep};
use kcm_runtime::{ControllerState, SyncMetrics, SyncResult};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{network::Network, random::ScenarioRandom, surprises};

/// A machine that runs one manager at a time.
#[derive(Debug)]
pub struct Host {
    clock: Arc<dyn Clock>,
    /// Time by which the wall clock is ahead.
    skew: Mutex<SignedDuration>,
    /// Number of incidents that keep the host off the network.
    cuts: Count,
}

impl Host {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, skew: Mutex::default(), cuts: Count::default() })
    }

    pub fn step_wall_clock(&self, by: SignedDuration) {
        let mut skew = self.skew.lock();
        *skew = skew.saturating_add(by);
    }

    pub fn cut(&self) {
        self.cuts.raise();
    }

    pub fn reconnect(&self) {
        self.cuts.lower();
    }

    pub fn end_faults(&self) {
        self.cuts.clear();
        *self.skew.lock() = SignedDuration::ZERO;
    }

    /// Waits until packets pass.
    pub async fn connected(&self) {
        self.cuts.zero().await;
    }
}

/// A number that can be waited for to become zero. Those that wait are woken in the order in which they came.
#[derive(Debug, Default)]
struct Count {
    value: Mutex<u32>,
    zero: Notify,
}

impl Count {
    fn raise(&self) {
        *self.value.lock() += 1;
    }

    fn lower(&self) {
        let mut value = self.value.lock();
        *value = value.saturating_sub(1);
        if *value == 0 {
            self.zero.notify_waiters();
        }
    }

    fn clear(&self) {
        *self.value.lock() = 0;
        self.zero.notify_waiters();
    }

    async fn zero(&self) {
        loop {
            let mut notified = pin!(self.zero.notified());
            notified.as_mut().enable();
            if *self.value.lock() == 0 {
                return;
            }
            notified.await;
        }
    }
}

/// Position of a manager, and number of the life of its process.
pub type ProcessId = (usize, u32);

/// One life of a manager.
pub struct Process {
    /// Position of the manager.
    pub manager: usize,
    /// Number of the life, from 1.
    pub life: u32,
    pub host: Arc<Host>,
    pub random: ScenarioRandom,
    /// Time of the exit.
    exited: OnceLock<Duration>,
    /// Number of reasons for which the process is stopped.
    stops: Count,
    /// Identity under which the process holds the lease.
    identity: Mutex<Option<String>>,
    views: Mutex<WatchedCollections>,
    /// Controllers with observed syncs.
    controllers: Mutex<Vec<ControllerState>>,
    sleeps: Mutex<Sleeps>,
    /// Number of requests that wait for a response, without watches.
    requests: AtomicU32,
}

/// Sleeps that have not ended.
#[derive(Debug, Default)]
struct Sleeps {
    next: u64,
    /// Deadlines by number.
    deadlines: BTreeMap<u64, Duration>,
}

/// Part of a collection's history that a process has received.
#[derive(Debug, Clone)]
pub enum ObservedHistory {
    /// Everything up to this time.
    UpTo(Timestamp),
    /// All that the watch cache with this lag shows.
    Cached(WatchCacheLag),
}

impl ObservedHistory {
    fn time(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::UpTo(time) => *time,
            Self::Cached(lag) => now.saturating_sub(lag.get()).unwrap_or(now),
        }
    }
}

/// Progress of a process in watching the cluster.
#[derive(Debug, Default)]
struct WatchedCollections {
    /// Progress by path of the collection.
    seen: BTreeMap<String, ObservedHistory>,
    /// Number of watches begun, by path of the collection. Only the last one counts.
    watches: BTreeMap<String, u64>,
    /// Syncs under way, and the state that the first of them began with, by controller.
    busy: BTreeMap<String, (u32, Timestamp)>,
    syncs: u64,
}

impl Process {
    pub fn new(manager: usize, life: u32, host: &Arc<Host>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            manager,
            life,
            host: Arc::clone(host),
            random: ScenarioRandom::new(seed),
            exited: OnceLock::new(),
            stops: Count::default(),
            identity: Mutex::default(),
            views: Mutex::default(),
            controllers: Mutex::default(),
            sleeps: Mutex::default(),
            requests: AtomicU32::default(),
        })
    }

    pub fn exit(&self, now: Duration) {
        let _ = self.exited.set(now);
        self.forget_controllers();
    }

    /// Drops the controllers. Their clients refer to the process.
    pub fn forget_controllers(&self) {
        self.controllers.lock().clear();
    }

    pub fn is_dead(&self) -> bool {
        self.exited.get().is_some()
    }

    /// Time of the exit.
    pub fn exited(&self) -> Option<Duration> {
        self.exited.get().copied()
    }

    pub fn stop(&self) {
        self.stops.raise();
    }

    pub fn resume(&self) {
        self.stops.lower();
    }

    pub fn resume_permanently(&self) {
        self.stops.clear();
    }

    /// Waits until the process runs; for ever if it is dead.
    pub async fn running(&self) {
        self.stops.zero().await;
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    pub fn identity(&self) -> Option<String> {
        self.identity.lock().clone()
    }

    pub fn set_identity(&self, identity: &str) {
        *self.identity.lock() = Some(identity.to_owned());
    }

    /// Begins a watch on the collection at `path`, and returns its number.
    pub fn begin_watch(&self, path: &str) -> u64 {
        let mut views = self.views.lock();
        let watches = views.watches.entry(path.to_owned()).or_default();
        *watches += 1;
        *watches
    }

    /// Records up to which change a watch has received the collection at `path`.
    pub fn record_observed(&self, path: &str, watch: u64, what: ObservedHistory) {
        let mut views = self.views.lock();
        if views.watches.get(path) != Some(&watch) {
            return;
        }
        match views.seen.get_mut(path) {
            Some(seen) => *seen = what,
            None => {
                views.seen.insert(path.to_owned(), what);
            }
        }
    }

    /// Time up to which the process has received the collection at `path`, if it was watched before.
    pub fn seen(&self, path: &str, now: Timestamp) -> Option<Timestamp> {
        self.views.lock().seen.get(path).map(|seen| seen.time(now))
    }

    /// Notes that a watch on the collection at `path` is over: the process does not receive changes from `now` on.
    pub fn watch_ended(&self, path: &str, watch: u64, now: Timestamp) {
        let mut views = self.views.lock();
        if views.watches.get(path) != Some(&watch) {
            return;
        }
        if let Some(seen) = views.seen.get_mut(path) {
            *seen = ObservedHistory::UpTo(seen.time(now));
        }
    }

    /// Position of the manager and number of the life.
    pub fn id(&self) -> ProcessId {
        (self.manager, self.life)
    }

    /// The oldest state that a request sent at `now` may be based on.
    pub fn basis(&self, now: Timestamp) -> Timestamp {
        let views = self.views.lock();
        let busy = views.busy.values().map(|(_, since)| *since);
        busy.fold(views.seen_until(now), Timestamp::min)
    }

    /// Controllers with observed syncs.
    pub fn controllers(&self) -> Vec<ControllerState> {
        self.controllers.lock().clone()
    }

    pub fn has_controllers(&self) -> bool {
        !self.controllers.lock().is_empty()
    }

    /// Deadlines of the sleeps that end until `horizon`, in ascending order.
    pub fn sleeps(&self, horizon: Duration) -> Vec<Duration> {
        let sleeps = self.sleeps.lock();
        let mut deadlines: Vec<_> =
            sleeps.deadlines.values().copied().filter(|deadline| *deadline <= horizon).collect();
        deadlines.sort_unstable();
        deadlines
    }

    /// `true` if the process waits for no response, syncs nothing, and has received all events.
    pub fn is_waiting(&self, now: Timestamp) -> bool {
        let views = self.views.lock();
        self.requests.load(Ordering::Relaxed) == 0 && views.busy.is_empty() && views.seen_until(now) == now
    }

    /// `true` if the process has watched all of these collections.
    pub fn has_watched(&self, collections: &BTreeSet<String>) -> bool {
        let views = self.views.lock();
        collections.iter().all(|path| views.seen.contains_key(path))
    }

    /// Number of syncs begun so far.
    pub fn syncs(&self) -> u64 {
        self.views.lock().syncs
    }

    /// The clock of the process. Its timers are choice points.
    pub fn clock(self: &Arc<Self>, network: &Arc<Network>) -> Arc<dyn Clock> {
        Arc::new(ProcessClock { process: Arc::clone(self), network: Arc::clone(network) })
    }

    /// Observes the syncs of a controller.
    pub fn sync_metrics(self: &Arc<Self>, controller: &str) -> Arc<dyn SyncMetrics> {
        Arc::new(Syncs { process: Arc::clone(self), controller: controller.to_owned() })
    }
}

/// A sleep that has not ended.
struct PendingSleep {
    process: Arc<Process>,
    number: u64,
}

impl PendingSleep {
    fn new(process: &Arc<Process>, deadline: Duration) -> Self {
        let mut sleeps = process.sleeps.lock();
        let number = sleeps.next;
        sleeps.next += 1;
        sleeps.deadlines.insert(number, deadline);
        Self { process: Arc::clone(process), number }
    }
}

impl Drop for PendingSleep {
    fn drop(&mut self) {
        self.process.sleeps.lock().deadlines.remove(&self.number);
    }
}

/// A request that waits for its response.
pub(super) struct PendingRequest(Arc<Process>);

impl PendingRequest {
    pub(super) fn new(process: &Arc<Process>) -> Self {
        process.requests.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(process))
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WatchedCollections {
    fn seen_until(&self, now: Timestamp) -> Timestamp {
        // No decision is based on the Lease. A leader does not watch it.
        let seen = self.seen.iter().filter(|(path, _)| !path.ends_with("/leases"));
        seen.map(|(_, seen)| seen.time(now)).fold(now, Timestamp::min)
    }
}

struct Syncs {
    process: Arc<Process>,
    controller: String,
}

impl SyncMetrics for Syncs {
    fn built(&self, state: ControllerState) {
        self.process.controllers.lock().push(state);
    }

    fn started(&self) {
        let now = self.process.host.clock.now();
        let mut views = self.process.views.lock();
        let seen = views.seen_until(now);
        views.syncs += 1;
        let (running, since) = views.busy.entry(self.controller.clone()).or_insert((0, seen));
        *running += 1;
        *since = (*since).min(seen);
    }

    fn ended(&self, _: Duration, _: SyncResult) {
        let mut views = self.process.views.lock();
        if let Some((running, _)) = views.busy.get_mut(&self.controller) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                views.busy.remove(&self.controller);
            }
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}.{}", self.manager, self.life)
    }
}

#[derive(Debug)]
struct ProcessClock {
    process: Arc<Process>,
    network: Arc<Network>,
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        let host = &self.process.host;
        let skew = *host.skew.lock();
        host.clock.now().saturating_add(skew).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.process.host.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let process = Arc::clone(&self.process);
        let sleep = process.host.clock.sleep(duration);
        let pending = PendingSleep::new(&process, self.monotonic().saturating_add(duration));
        Box::pin(async move {
            sleep.await;
            drop(pending);
            process.running().await;
        })
    }

    fn timer(&self, name: &'static str, duration: Duration) -> Sleep {
        let (sleep, network, process) =
            (self.sleep(duration), Arc::clone(&self.network), Arc::clone(&self.process));
        Box::pin(async move {
            sleep.await;
            if network.is_late(&process, name) {
                network.clock.sleep(surprises::delay()).await;
                process.running().await;
            }
        })
    }
}
