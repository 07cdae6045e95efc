//! Controller managers that compete for one lease, and what happens to their processes.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::SignedDuration;
use kcm_client::{ClientFactory, ClientOptions, RateLimit};
use kcm_clock::{Clock, Random, SeededRandom};
use kcm_controller_manager::{
    ControllerFeatures, ControllerSelection, Dependencies, LeaderElectionSettings, ManagerConfig, RunError,
    UnknownControllers, user_agent,
};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    host::{Host, Process},
    network::{Network, ProcessConnection},
    scenario::{Incident, ManagerSettings},
};

const CONTROLLERS: [&str; 3] =
    ["deployment-controller", "replicaset-controller", "replicationcontroller-controller"];

/// Timeout of requests, in place of the pings of HTTP/2, which find a silent connection dead.
const SILENT_CONNECTION: Duration = Duration::from_secs(60);

/// All managers of a cluster.
pub(crate) struct ManagerGroup {
    clock: Arc<dyn Clock>,
    config: ManagerConfig,
    seed: u64,
    restart_after: Duration,
    network: OnceLock<Arc<Network>>,
    slots: Vec<Slot>,
}

struct Slot {
    host: Arc<Host>,
    state: Mutex<ManagerState>,
}

#[derive(Default)]
struct ManagerState {
    number: u32,
    process: Option<Arc<Process>>,
    task: Option<AbortHandle>,
    shutdown: CancellationToken,
}

impl ManagerGroup {
    pub(crate) fn new(
        clock: &Arc<dyn Clock>,
        settings: &ManagerSettings,
        seed: u64,
    ) -> Result<Arc<Self>, UnknownControllers> {
        let lease = Duration::from_secs(settings.lease);
        let config = ManagerConfig {
            controllers: ControllerSelection::new(&CONTROLLERS.map(str::to_owned))?,
            concurrent_deployment_syncs: settings.workers,
            concurrent_replica_set_syncs: settings.workers,
            concurrent_replication_controller_syncs: settings.workers,
            rate_limit: RateLimit { qps: f64::from(settings.qps), burst: settings.qps * 3 / 2 },
            leader_election: (settings.lease > 0).then(|| LeaderElectionSettings {
                lease_duration: lease,
                renew_deadline: lease * 2 / 3,
                retry_period: lease * 2 / 15,
                ..LeaderElectionSettings::new("kube-system", "kube-controller-manager-rs")
            }),
            features: ControllerFeatures {
                deployment_replica_set_terminating_replicas: settings.terminating_replicas,
                ..ControllerFeatures::default()
            },
            ..ManagerConfig::default()
        };
        let slot = |_| Slot { host: Host::new(Arc::clone(clock)), state: Mutex::default() };
        Ok(Arc::new(Self {
            clock: Arc::clone(clock),
            config,
            seed,
            restart_after: Duration::from_millis(settings.restart_after),
            network: OnceLock::new(),
            slots: (0..settings.count).map(slot).collect(),
        }))
    }

    /// Starts all managers.
    pub(crate) fn start(self: &Arc<Self>, network: &Arc<Network>) {
        // It is called once.
        let _ = self.network.set(Arc::clone(network));
        for manager in 0..self.slots.len() {
            self.start_one(manager);
        }
    }

    fn start_one(self: &Arc<Self>, manager: usize) {
        let (Some(slot), Some(network)) = (self.slots.get(manager), self.network.get()) else { return };
        network.judge.manager_starts();
        let mut life = slot.state.lock();
        life.number += 1;
        let seed = self.seed ^ (u64::from(life.number) << 32) ^ ((manager as u64 + 1) << 56);
        let process = Process::new(manager, life.number, &slot.host, seed);
        let link = ProcessConnection {
            process: Arc::clone(&process),
            network: Arc::clone(network),
            managers_of_cluster: Arc::clone(self),
        };
        let clock = process.clock(network);
        let options = ClientOptions {
            timeout: Some(SILENT_CONNECTION),
            ..ClientOptions::new(user_agent(), Arc::clone(&clock))
        };
        let clients = ClientFactory::in_process(link, options);
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(!seed));
        let observed = Arc::clone(&process);
        let mut dependencies = Dependencies::new(&clients, &clock, &random);
        dependencies.manager.syncs = Some(Arc::new(move |controller| observed.sync_metrics(controller)));
        let shutdown = CancellationToken::new();
        let (config, stop) = (self.config.clone(), shutdown.clone());
        let run = async move {
            let manager = kcm_controller_manager::manager(&config, &dependencies, format!("m{manager}"))?;
            manager.run(stop).await
        };
        let (managers_of_cluster, own) = (Arc::clone(self), Arc::clone(&process));
        let task = tokio::spawn(async move {
            let outcome: Result<(), RunError> = run.await;
            if let (Err(error), Some(network)) = (&outcome, managers_of_cluster.network.get()) {
                network.judge.note(&format!("{own:?} exits: {error}"));
            }
            managers_of_cluster.end(&own);
        });
        *life = ManagerState {
            number: life.number,
            process: Some(process),
            task: Some(task.abort_handle()),
            shutdown,
        };
    }

    /// Ends a process if it is not over yet, and starts the next one later.
    fn end(self: &Arc<Self>, process: &Arc<Process>) {
        let Some(slot) = self.slots.get(process.manager) else { return };
        {
            let mut life = slot.state.lock();
            if life.process.take_if(|running| Arc::ptr_eq(running, process)).is_none() {
                return;
            }
            process.exit();
            if let Some(task) = life.task.take() {
                task.abort();
            }
        }
        let (managers_of_cluster, manager) = (Arc::clone(self), process.manager);
        tokio::spawn(async move {
            managers_of_cluster.clock.sleep(managers_of_cluster.restart_after).await;
            managers_of_cluster.start_one(manager);
        });
    }

    /// Kills a process.
    pub(crate) fn kill(self: &Arc<Self>, process: &Arc<Process>) {
        if let Some(network) = self.network.get() {
            network.judge.note(&format!("{process:?} is killed"));
        }
        self.end(process);
    }

    /// Stops a process and continues it after `time`.
    pub(crate) fn stop(&self, process: &Arc<Process>, time: Duration) {
        if let Some(network) = self.network.get() {
            network.judge.note(&format!("{process:?} is stopped for {time:?}"));
        }
        process.stop();
        let (clock, process) = (Arc::clone(&self.clock), Arc::clone(process));
        tokio::spawn(async move {
            clock.sleep(time).await;
            process.resume();
        });
    }

    /// Applies an incident.
    pub(crate) fn apply_incident(self: &Arc<Self>, incident: &Incident) {
        let slot = |manager: usize| self.slots.get(manager);
        let process = |manager: usize| slot(manager).and_then(|slot| slot.state.lock().process.clone());
        match *incident {
            Incident::Kill { manager } => {
                if let Some(process) = process(manager) {
                    self.kill(&process);
                }
            }
            Incident::Terminate { manager } => {
                if let Some(slot) = slot(manager) {
                    slot.state.lock().shutdown.cancel();
                }
            }
            Incident::Stop { manager, time } => {
                if let Some(process) = process(manager) {
                    self.stop(&process, Duration::from_millis(time));
                }
            }
            Incident::Cut { manager, time } => {
                if let Some(host) = slot(manager).map(|slot| Arc::clone(&slot.host)) {
                    host.cut();
                    let clock = Arc::clone(&self.clock);
                    tokio::spawn(async move {
                        clock.sleep(Duration::from_millis(time)).await;
                        host.reconnect();
                    });
                }
            }
            Incident::ClockStep { manager, by } => {
                if let Some(slot) = slot(manager) {
                    slot.host.step_wall_clock(SignedDuration::from_millis(by));
                }
            }
            Incident::Lag { front_end, lag } => {
                if let Some(network) = self.network.get() {
                    network.set_lag(front_end, Duration::from_millis(lag));
                }
            }
            // Of the store, not of a manager.
            Incident::Restore { .. } => {}
        }
    }

    /// Continues what is stopped, and reconnects what is cut off.
    pub(crate) fn end_faults(&self) {
        for slot in &self.slots {
            slot.host.end_faults();
            if let Some(process) = &slot.state.lock().process {
                process.resume_permanently();
            }
        }
    }

    /// Syncs begun by the processes that run.
    pub(crate) fn syncs(&self) -> u64 {
        let of = |slot: &Slot| slot.state.lock().process.as_ref().map_or(0, |process| process.syncs());
        self.slots.iter().map(of).sum()
    }
}

impl fmt::Debug for ManagerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerGroup").finish_non_exhaustive()
    }
}
