//! Start, supervision and shutdown of controllers.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use kcm_client::{ClientFactory, ClientOptions, InProcessServer};
use kcm_clock::{Clock, Random, jitter};
use kcm_events::EventBroadcaster;
use kcm_informer::AnyInformer;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    Dependencies, ManagerConfig,
    context::Context,
    descriptor::{CONTROLLERS, Constructor, Runner},
    informers::Informers,
    manager_informers::ManagerInformers,
    tasks::{Ended, Tasks},
    user_agent,
};

/// Time to write queued events at shutdown. The next leader waits for it.
const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for writes in progress when the shutdown timeout expires. Only with leader election.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between log lines about running controllers if there is no shutdown timeout.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Failure of a running controller or informer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The task panicked.
    #[error("{0} panicked")]
    Panicked(String),
    /// The task returned before shutdown.
    #[error("{0} stopped unexpectedly")]
    Ended(String),
    /// These controllers did not stop in time. Upstream's message, with the names.
    #[error("controller shutdown timeout reached: {} did not stop", .0.join(", "))]
    ShutdownTimeout(Vec<String>),
    /// The API server's storage was restored from a backup. The caches contain changes that were lost, or are of different
    /// times, until all objects are listed again. Watches receive no change until the storage reaches their versions from
    /// before the restore.
    #[error("etcd was restored from a backup; the caches contain changes that were lost")]
    Restored,
}

impl From<Ended> for ControllerError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Returned(name) => Self::Ended(name),
            Ended::Panicked(name) => Self::Panicked(name),
        }
    }
}

/// Standby of a leader: its informers run, its controllers do not. It reads and never writes.
///
/// DEVIATION: upstream's standby has no informers and lists all objects when it becomes the leader.
pub struct Standby {
    context: Context,
    constructors: Vec<(&'static str, Constructor)>,
    /// Informers that do not run yet.
    idle: Vec<Arc<dyn AnyInformer>>,
    informers: Informers,
    /// `true` after a list of an older storage than before.
    restored: Arc<watch::Sender<bool>>,
}

impl Standby {
    /// Starts the informers of the controllers that `config` selects.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn start(config: &ManagerConfig, dependencies: Dependencies) -> Self {
        let mut this = Self::idle(config, dependencies);
        this.run_idle_informers();
        this
    }

    fn idle(config: &ManagerConfig, dependencies: Dependencies) -> Self {
        let shared = ManagerInformers::new(config.clone(), dependencies.clone());
        let selected = CONTROLLERS.iter().filter(|descriptor| config.controllers.includes(descriptor.name));
        let constructors =
            selected.map(|descriptor| (descriptor.name, (descriptor.prepare)(&shared))).collect();
        let context = Context::new(config.clone(), dependencies);
        let (restored, informers) = (shared.restored(), Informers::default());
        Self { context, constructors, idle: shared.into_informers(), informers, restored }
    }

    fn run_idle_informers(&mut self) {
        for informer in self.idle.drain(..) {
            self.informers.add(informer);
        }
    }

    /// Waits until an informer panics or stops.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn failed(&mut self) -> ControllerError {
        match self.informers.next_ended().await {
            Some(ended) => ended.into(),
            None => std::future::pending().await,
        }
    }

    /// Refreshes the caches, then starts the controllers.
    ///
    /// After the election is won, refreshed caches contain every write of the previous leader. The controllers start
    /// when the API server has responded for each cache.
    ///
    /// # Errors
    ///
    /// If an informer has panicked or stopped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the informers.
    pub async fn lead(mut self) -> Result<Controllers, ControllerError> {
        let clock = self.context.clock();
        let started = clock.monotonic();
        loop {
            self.restored.send_replace(false);
            self.informers.refresh_caches().await?;
            if !*self.restored.borrow() {
                break;
            }
            // Caches that were refreshed earlier may be of the time before the restore.
        }
        let duration = clock.monotonic().saturating_sub(started);
        tracing::info!(?duration, "Caches are synced");
        Ok(self.run())
    }

    fn run(mut self) -> Controllers {
        for descriptor in CONTROLLERS {
            if !self.context.config().controllers.includes(descriptor.name) {
                // Upstream's message and level.
                tracing::info!(controller = descriptor.name, "Warning: controller is disabled");
            }
        }
        // All controllers are constructed before any of them runs, as upstream.
        let construct = |(name, constructor): (_, Constructor)| (name, constructor(&self.context));
        let constructed: Vec<_> = self.constructors.drain(..).map(construct).collect();
        self.run_idle_informers();
        let Self { context, informers, restored, .. } = self;
        let (clock, random) = (context.clock(), context.random());
        let interval = context.config().controller_start_interval;
        let mut controllers = Controllers {
            running: Tasks::default(),
            informers,
            restored: restored.subscribe(),
            stop: CancellationToken::new(),
            clock,
            clients: context.clients(),
            timeout: context.config().controller_shutdown_timeout,
            broadcasters: context.into_broadcasters(),
        };
        for (name, runner) in constructed {
            controllers.run_controller(name, runner, jitter(&*random, interval, 1.0));
        }
        controllers
    }
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").field("informers", &self.informers).finish_non_exhaustive()
    }
}

/// Running controllers with their informers and event broadcasters.
///
/// Dropping it aborts all tasks; [`stop`](Self::stop) lets syncs in progress finish.
///
/// Upstream counterpart: `RunControllers`.
pub struct Controllers {
    running: Tasks,
    informers: Informers,
    restored: watch::Receiver<bool>,
    broadcasters: Vec<EventBroadcaster>,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
    clients: ClientFactory,
    timeout: Duration,
}

impl Controllers {
    /// Starts the controllers that `config` selects, without leader election. No other process may run the same
    /// controllers; see [`Standby`] otherwise.
    ///
    /// Workers start when the caches have synced. Requests are retried while the API server is unreachable.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn start(
        config: &ManagerConfig,
        clients: &ClientFactory,
        clock: &Arc<dyn Clock>,
        random: &Arc<dyn Random>,
    ) -> Self {
        Self::start_in(config, Dependencies::new(clients, clock, random))
    }

    /// As [`start`](Self::start), in any dependencies.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn start_in(config: &ManagerConfig, dependencies: Dependencies) -> Self {
        // Controllers are constructed before the informers run, so that no handler is added to a filled store.
        Standby::idle(config, dependencies).run()
    }

    /// As [`start`](Self::start), with an API server in this process, such as the embedded one's service.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn in_process(
        config: &ManagerConfig,
        server: impl InProcessServer,
        clock: &Arc<dyn Clock>,
        random: &Arc<dyn Random>,
    ) -> Self {
        let options = ClientOptions::new(user_agent(), Arc::clone(clock));
        Self::start(config, &server.clients(options), clock, random)
    }

    /// Names of the running controllers, sorted.
    pub fn names(&self) -> Vec<String> {
        self.running.names()
    }

    fn run_controller(&mut self, name: &'static str, runner: Runner, delay: Duration) {
        let (stop, clock) = (self.stop.clone(), Arc::clone(&self.clock));
        self.running.spawn(name, async move {
            if stop.run_until_cancelled(clock.sleep(delay)).await.is_some() {
                runner(stop).await;
            }
        });
    }

    /// Waits until a controller or informer panics or stops, or a list shows that the API server's storage was restored from a
    /// backup. After [`ControllerError::Restored`], [`abort`](Self::abort) them.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn failed(&mut self) -> ControllerError {
        let ended = tokio::select! {
            biased;
            true = async { self.restored.wait_for(|restored| *restored).await.is_ok() } => {
                return ControllerError::Restored;
            }
            Some(ended) = self.running.next() => ended,
            Some(ended) = self.informers.next_ended() => ended,
            else => return std::future::pending().await,
        };
        ended.into()
    }

    /// Waits for syncs in progress, stops the informers and writes the queued events.
    ///
    /// # Errors
    ///
    /// If a controller does not stop in time, or a task panicked.
    pub async fn stop(mut self) -> Result<(), ControllerError> {
        self.stop.cancel();
        let outcome = self.stopped().await;
        let panicked = self.informers.stop().await;
        if !matches!(outcome, Err(ControllerError::ShutdownTimeout(_))) {
            self.write_queued_events().await;
        }
        outcome.and_then(|()| first_panic(&panicked))
    }

    /// Ends all syncs at once. Stops the writes of [gated](ClientFactory::gated) clients, and waits up to two seconds for those
    /// in flight. Queued keys are not synced, and queued events are not written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the syncs.
    pub async fn abort(self) {
        self.clients.stop_writing(WRITE_TIMEOUT).await;
    }

    async fn write_queued_events(&self) {
        let shutdowns =
            self.broadcasters.iter().map(|broadcaster| broadcaster.shutdown(EVENT_TIMEOUT + WRITE_TIMEOUT));
        let shutdowns = join_all(shutdowns);
        let timeout = async {
            self.clock.sleep(EVENT_TIMEOUT).await;
            self.clients.stop_writing(WRITE_TIMEOUT).await;
        };
        tokio::select! {
            biased;
            _ = shutdowns => {}
            () = timeout => {}
        }
    }

    async fn stopped(&mut self) -> Result<(), ControllerError> {
        let deadline = (!self.timeout.is_zero()).then(|| self.clock.monotonic().saturating_add(self.timeout));
        let pause = if deadline.is_some() { self.timeout / 3 } else { LOG_INTERVAL };
        let mut panicked = Vec::new();
        loop {
            let left = deadline.map(|deadline| deadline.saturating_sub(self.clock.monotonic()));
            if left.is_some_and(|left| left.is_zero()) {
                // The outcome of a write that completes is known.
                self.clients.stop_writing(WRITE_TIMEOUT).await;
                return Err(ControllerError::ShutdownTimeout(self.running.names()));
            }
            let pause = self.clock.sleep(left.map_or(pause, |left| left.min(pause)));
            tokio::select! {
                biased;
                ended = self.running.next() => match ended {
                    Some(Ended::Returned(_)) => {}
                    Some(Ended::Panicked(name)) => panicked.push(name),
                    None => return first_panic(&panicked),
                },
                () = pause => {
                    let controllers = self.running.names().join(",");
                    tracing::info!(controllers, "Still waiting for some controllers to terminate...");
                }
            }
        }
    }
}

fn first_panic(panicked: &[String]) -> Result<(), ControllerError> {
    panicked.first().map_or(Ok(()), |name| Err(ControllerError::Panicked(name.clone())))
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controllers").field("running", &self.running.names()).finish_non_exhaustive()
    }
}
