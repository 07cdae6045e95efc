//! Candidates in tasks, with clocks of different machines.

use kcm_api::ObjectKey;
use kcm_clock::{Clock, SeededRandom, Sleep, Timestamp};
use kcm_events::FakeRecorder;
use tokio::{task::JoinHandle, time::sleep};

use super::{
    network::Network,
    pause::{Pausable, Pause},
};
use crate::{ElectionMetrics, elector::*};

/// Clock of a machine: its wall clock jumps, its monotonic clock has its own rate.
#[derive(Debug)]
pub(super) struct MachineClock {
    origin: tokio::time::Instant,
    /// Seconds of this clock in one real second.
    rate: f64,
    jumps: SeededRandom,
    is_jumpy: bool,
    /// Time in which the machine was suspended. Its timers did not run.
    suspended: Mutex<Duration>,
}

impl MachineClock {
    pub(super) fn exact() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
            rate: 1.0,
            jumps: SeededRandom::new(1),
            is_jumpy: false,
            suspended: Mutex::default(),
        }
    }

    pub(super) fn suspend(&self, time: Duration) {
        *self.suspended.lock() += time;
    }

    pub(super) fn wrong(rate: f64, seed: u64) -> Self {
        Self { rate, is_jumpy: true, jumps: SeededRandom::new(seed), ..Self::exact() }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let jump = if self.is_jumpy { kcm_clock::Random::next_u64(&self.jumps) % 1_000_000 } else { 0 };
        start.checked_add(self.monotonic() + Duration::from_secs(jump)).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed().mul_f64(self.rate) + *self.suspended.lock()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(sleep(duration.div_f64(self.rate)))
    }
}

/// Calls of the metrics, in order.
#[derive(Default)]
pub(super) struct Told {
    pub(super) lines: Mutex<Vec<String>>,
    /// Called when a leadership starts.
    pub(super) elected: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Told {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock())
    }
}

impl ElectionMetrics for Told {
    fn leading(&self, election: &str, leading: bool) {
        self.lines.lock().push(format!("{election} leading {leading}"));
        if let Some(elected) = self.elected.as_ref().filter(|_| leading) {
            elected();
        }
    }

    fn slow_path(&self, election: &str) {
        self.lines.lock().push(format!("{election} slow path"));
    }

    fn new_leader(&self, election: &str, identity: &str) {
        self.lines.lock().push(format!("{election} new leader {identity:?}"));
    }

    fn identity_shared(&self, election: &str) {
        self.lines.lock().push(format!("{election} identity shared"));
    }
}

pub(super) fn config(identity: &str, lock: &Arc<Network>, clock: Arc<dyn Clock>) -> LeaderElectionConfig {
    let seed = identity.bytes().map(u64::from).sum();
    LeaderElectionConfig {
        unique_identity: true,
        ..LeaderElectionConfig::new(
            ObjectKey::new("kube-system", "kcm"),
            identity,
            Arc::clone(lock) as _,
            clock,
            Arc::new(SeededRandom::new(seed)),
        )
    }
}

/// Candidate in a task.
pub(super) struct Running {
    pub(super) gate: LeaderGate,
    pub(super) status: ElectionStatus,
    pub(super) acquire_trigger: AcquireTrigger,
    pub(super) restored: Arc<Notify>,
    pub(super) told: Arc<Told>,
    pub(super) events: Arc<FakeRecorder>,
    /// Stops a standby or, through `lead`, a leader.
    pub(super) stop: CancellationToken,
    pub(super) lost: CancellationToken,
    pub(super) task: JoinHandle<ElectionOutcome<()>>,
    pub(super) paused: Arc<Pause>,
}

impl Running {
    pub(super) fn start(config: LeaderElectionConfig) -> Self {
        Self::start_watched(config, Told::default())
    }

    pub(super) fn start_watched(config: LeaderElectionConfig, told: Told) -> Self {
        let (told, events) = (Arc::new(told), Arc::new(FakeRecorder::new()));
        let config = LeaderElectionConfig {
            metrics: Arc::clone(&told) as _,
            recorder: Some(Arc::clone(&events) as _),
            ..config
        };
        let mut elector = LeaderElector::new(config).unwrap();
        let (gate, status, trigger) = (elector.gate(), elector.status(), elector.acquire_trigger());
        let restored = elector.restored();
        let (stop, lost) = (CancellationToken::new(), CancellationToken::new());
        let paused = Arc::new(Pause::default());
        let task = tokio::spawn(Pausable::new(Arc::clone(&paused), {
            let (stop, lost) = (stop.clone(), lost.clone());
            async move {
                let outcome = elector
                    .run(&stop, |leadership| {
                        let stop = stop.clone();
                        // In a task, because `lead` is dropped at the loss.
                        tokio::spawn({
                            let leadership = leadership.clone();
                            async move {
                                leadership.lost().cancelled().await;
                                assert!(!leadership.is_leader());
                                lost.cancel();
                            }
                        });
                        async move { stop.cancelled().await }
                    })
                    .await;
                drop(elector);
                outcome
            }
        }));
        Self { gate, status, acquire_trigger: trigger, restored, told, events, stop, lost, task, paused }
    }

    pub(super) async fn outcome(self) -> ElectionOutcome<()> {
        self.task.await.unwrap()
    }
}
