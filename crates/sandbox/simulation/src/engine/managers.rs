//! Controller managers that compete for one lease, and what happens to their processes.

use std::{
    any::Any,
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::FutureExt;
use jiff::SignedDuration;
use kcm_clock::Clock;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{
    faults::Incident,
    host::{Host, Process},
    network::{Network, ProcessConnection},
};

/// Program that all managers of a cluster run.
pub trait ManagerProgram: Send + Sync {
    /// Runs one life of a manager until it exits. Returns the error with which it exits.
    fn run(&self, connection: ProcessConnection, seed: u64, stop: CancellationToken) -> Execution;
}

/// Execution of a program.
pub type Execution = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// All managers of a cluster.
pub struct ManagerGroup {
    clock: Arc<dyn Clock>,
    program: Arc<dyn ManagerProgram>,
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
    pub fn new(
        clock: &Arc<dyn Clock>,
        program: Arc<dyn ManagerProgram>,
        count: usize,
        restart_after: Duration,
        seed: u64,
    ) -> Arc<Self> {
        let slot = |_| Slot { host: Host::new(Arc::clone(clock)), state: Mutex::default() };
        Arc::new(Self {
            clock: Arc::clone(clock),
            program,
            seed,
            restart_after,
            network: OnceLock::new(),
            slots: (0..count).map(slot).collect(),
        })
    }

    /// Starts all managers.
    pub fn start(self: &Arc<Self>, network: &Arc<Network>) {
        // It is called once.
        let _ = self.network.set(Arc::clone(network));
        for manager in 0..self.slots.len() {
            self.start_one(manager);
        }
    }

    fn start_one(self: &Arc<Self>, manager: usize) {
        let (Some(slot), Some(network)) = (self.slots.get(manager), self.network.get()) else { return };
        network.observer.process_starts();
        let mut life = slot.state.lock();
        life.number += 1;
        let seed = self.seed ^ (u64::from(life.number) << 32) ^ ((manager as u64 + 1) << 56);
        let process = Process::new(manager, life.number, &slot.host, seed);
        network.choices.trace_start(&process);
        let link = ProcessConnection {
            process: Arc::clone(&process),
            network: Arc::clone(network),
            managers_of_cluster: Arc::clone(self),
        };
        let shutdown = CancellationToken::new();
        let run = self.program.run(link, seed, shutdown.clone());
        let (managers_of_cluster, own) = (Arc::clone(self), Arc::clone(&process));
        let task = tokio::spawn(async move {
            let outcome = AssertUnwindSafe(run).catch_unwind().await;
            if let Some(network) = managers_of_cluster.network.get() {
                match &outcome {
                    Ok(Ok(())) => network.observer.exited(&format!("{own:?} exits")),
                    Ok(Err(error)) => network.observer.exited(&format!("{own:?} exits: {error}")),
                    Err(panic) => {
                        network.observer.panicked(&format!("{own:?} panics: {}", panic_message(&**panic)));
                    }
                }
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
            process.exit(self.clock.monotonic());
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
    pub fn kill(self: &Arc<Self>, process: &Arc<Process>) {
        if let Some(network) = self.network.get() {
            network.observer.note(&format!("{process:?} is killed"));
        }
        self.end(process);
    }

    /// Stops a process and continues it after `time`.
    pub fn stop(&self, process: &Arc<Process>, time: Duration) {
        if let Some(network) = self.network.get() {
            network.observer.note(&format!("{process:?} is stopped for {time:?}"));
        }
        process.stop();
        let (clock, process) = (Arc::clone(&self.clock), Arc::clone(process));
        tokio::spawn(async move {
            clock.sleep(time).await;
            process.resume();
        });
    }

    /// Applies an incident.
    pub fn apply_incident(self: &Arc<Self>, incident: &Incident) {
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
    pub fn end_faults(&self) {
        for slot in &self.slots {
            slot.host.end_faults();
            if let Some(process) = &slot.state.lock().process {
                process.resume_permanently();
            }
        }
    }

    /// Drops what refers to the simulation. Called at its end.
    pub fn release(&self) {
        for slot in &self.slots {
            if let Some(process) = &slot.state.lock().process {
                process.forget_controllers();
            }
        }
    }

    /// Syncs begun by the processes that run.
    pub fn syncs(&self) -> u64 {
        let of = |slot: &Slot| slot.state.lock().process.as_ref().map_or(0, |process| process.syncs());
        self.slots.iter().map(of).sum()
    }
}

impl fmt::Debug for ManagerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerGroup").finish_non_exhaustive()
    }
}

/// Message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
