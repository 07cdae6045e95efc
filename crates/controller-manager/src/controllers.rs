//! Starting controllers, watching over them, and stopping them.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use kcm_client::{ClientFactory, ClientOptions, InProcessServer};
use kcm_clock::{Clock, Random, jitter};
use kcm_events::EventBroadcaster;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::{
    Dependencies, ManagerConfig,
    context::Context,
    descriptor::{CONTROLLERS, Constructor, Runner},
    informer_factory::InformerFactory,
    informers::{AnyInformer, Informers},
    tasks::{Ended, Tasks},
    user_agent,
};

/// How long the last events may take to be written. They must not hold up who leads next.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How long writes may take that are under way when the time for stopping is over, where there is an election.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// How often it is said that controllers have not stopped yet, when they may take for ever.
const STILL_WAITING: Duration = Duration::from_secs(5);

/// What can become of running controllers.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ControllerError {
    /// One has panicked; what it was about to do is lost.
    #[error("{0} has panicked")]
    Panicked(&'static str),
    /// One has ended without being asked to.
    #[error("{0} has ended by itself")]
    Ended(&'static str),
    /// They did not stop in time. Upstream's words, with the names.
    #[error("controller shutdown timeout reached: {} did not stop", .0.join(", "))]
    ShutdownTimeout(Vec<&'static str>),
}

impl From<Ended> for ControllerError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Returned(name) => Self::Ended(name),
            Ended::Panicked(name) => Self::Panicked(name),
        }
    }
}

/// Controllers that are wanted and do not run yet, with the caches that they will need: those are kept up to date.
///
/// What a standby is, in a word: it reads everything and writes nothing. Once it [leads](Self::lead), its controllers
/// start at once.
///
/// DEVIATION: upstream's standby knows nothing, and reads everything when it becomes leader.
pub struct Standby {
    context: Context,
    constructors: Vec<(&'static str, Constructor)>,
    /// Informers that do not run yet.
    idle: Vec<AnyInformer>,
    informers: Informers,
}

impl Standby {
    /// Runs the informers of the controllers that `config` names.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(config: &ManagerConfig, dependencies: Dependencies) -> Self {
        let mut this = Self::idle(config, dependencies);
        this.run_idle_informers();
        this
    }

    fn idle(config: &ManagerConfig, dependencies: Dependencies) -> Self {
        let factory = InformerFactory::new(config.clone(), dependencies.clone());
        let selected = CONTROLLERS.iter().filter(|descriptor| config.controllers.includes(descriptor));
        let constructors =
            selected.map(|descriptor| (descriptor.name, (descriptor.prepare)(&factory))).collect();
        let context = Context::new(config.clone(), dependencies);
        Self { context, constructors, idle: factory.into_informers(), informers: Informers::default() }
    }

    fn run_idle_informers(&mut self) {
        for informer in self.idle.drain(..) {
            self.informers.add(informer);
        }
    }

    /// Waits until a cache fails, which none should. For ever, if all goes well.
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

    /// Runs the controllers once each cache is at a version at or after the time of the call.
    ///
    /// Call it after the election is won: the caches then hold every write of the leader before. Until the API server
    /// has answered for each cache, the controllers wait.
    ///
    /// # Errors
    ///
    /// If an informer has failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends everything where it is.
    pub async fn lead(mut self) -> Result<Controllers, ControllerError> {
        let clock = self.context.clock();
        let started = clock.monotonic();
        self.informers.refresh_caches().await?;
        let duration = clock.monotonic().saturating_sub(started);
        tracing::info!(?duration, "Caches are synced after the election");
        Ok(self.run())
    }

    fn run(mut self) -> Controllers {
        for descriptor in CONTROLLERS {
            if !self.context.config().controllers.includes(descriptor) {
                // Upstream's words, and upstream's level.
                tracing::info!(controller = descriptor.name, "Warning: controller is disabled");
            }
        }
        // All controllers are constructed before any of them runs, as upstream.
        let construct = |(name, constructor): (_, Constructor)| (name, constructor(&self.context));
        let constructed: Vec<_> = self.constructors.drain(..).map(construct).collect();
        self.run_idle_informers();
        let Self { context, informers, .. } = self;
        let (clock, random) = (context.clock(), context.random());
        let interval = context.config().controller_start_interval;
        let mut controllers = Controllers {
            running: Tasks::default(),
            informers,
            stop: CancellationToken::new(),
            clock,
            clients: context.clients(),
            time_out: context.config().controller_shutdown_timeout,
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

/// Running controllers, with the informers and event writers that they share.
///
/// Dropping it ends them where they are; [`stop`](Self::stop) lets them finish what they are at.
///
/// Upstream counterpart: `RunControllers`.
pub struct Controllers {
    running: Tasks,
    informers: Informers,
    broadcasters: Vec<EventBroadcaster>,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
    clients: ClientFactory,
    time_out: Duration,
}

impl Controllers {
    /// Puts together the controllers that `config` names, and runs them.
    ///
    /// They begin once their caches are filled from the API server that `clients` lead to; until then, and whenever
    /// it cannot be reached, they wait. There is no election: nobody else may run the same controllers. With one, a
    /// [`Standby`] leads.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
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
    /// Outside a tokio runtime.
    pub fn start_in(config: &ManagerConfig, dependencies: Dependencies) -> Self {
        // All are put together before the informers run: a handler that joins late is told everything in one go.
        Standby::idle(config, dependencies).run()
    }

    /// As [`start`](Self::start), on an API server in this process, such as the embedded one's service.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn in_process(
        config: &ManagerConfig,
        server: impl InProcessServer,
        clock: &Arc<dyn Clock>,
        random: &Arc<dyn Random>,
    ) -> Self {
        let options = ClientOptions::new(user_agent(), Arc::clone(clock));
        Self::start(config, &server.clients(options), clock, random)
    }

    /// Those that run, in order of names.
    pub fn names(&self) -> Vec<&'static str> {
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

    /// Waits until one of them fails, which none should. For ever, if all goes well.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn failed(&mut self) -> ControllerError {
        let ended = tokio::select! {
            biased;
            Some(ended) = self.running.next() => ended,
            Some(ended) = self.informers.next_ended() => ended,
            // There are none.
            else => return std::future::pending().await,
        };
        ended.into()
    }

    /// Lets the controllers finish what they are at; then the informers stop and the last events are written.
    ///
    /// # Errors
    ///
    /// When one has not stopped in time, or has panicked on the way.
    pub async fn stop(mut self) -> Result<(), ControllerError> {
        self.stop.cancel();
        let outcome = self.stopped().await;
        let panicked = self.informers.stop().await;
        if !matches!(outcome, Err(ControllerError::ShutdownTimeout(_))) {
            self.write_last_events().await;
        }
        outcome.and_then(|()| none_of(&panicked))
    }

    async fn write_last_events(&self) {
        let all = self.broadcasters.iter().map(|broadcaster| broadcaster.shutdown(LAST_EVENTS + LAST_WRITES));
        let all = join_all(all);
        let no_longer = async {
            self.clock.sleep(LAST_EVENTS).await;
            self.clients.stop_writing(LAST_WRITES).await;
        };
        tokio::select! {
            biased;
            _ = all => {}
            () = no_longer => {}
        }
    }

    async fn stopped(&mut self) -> Result<(), ControllerError> {
        let deadline =
            (!self.time_out.is_zero()).then(|| self.clock.monotonic().saturating_add(self.time_out));
        let pause = if deadline.is_some() { self.time_out / 3 } else { STILL_WAITING };
        let mut panicked = Vec::new();
        loop {
            let left = deadline.map(|deadline| deadline.saturating_sub(self.clock.monotonic()));
            if left.is_some_and(|left| left.is_zero()) {
                // So that it is known what has become of them.
                self.clients.stop_writing(LAST_WRITES).await;
                return Err(ControllerError::ShutdownTimeout(self.running.names()));
            }
            let pause = self.clock.sleep(left.map_or(pause, |left| left.min(pause)));
            tokio::select! {
                biased;
                ended = self.running.next() => match ended {
                    Some(Ended::Returned(_)) => {}
                    Some(Ended::Panicked(name)) => panicked.push(name),
                    None => return none_of(&panicked),
                },
                () = pause => {
                    let controllers = self.running.names().join(",");
                    tracing::info!(controllers, "Still waiting for some controllers to terminate...");
                }
            }
        }
    }
}

fn none_of(panicked: &[&'static str]) -> Result<(), ControllerError> {
    panicked.first().map_or(Ok(()), |name| Err(ControllerError::Panicked(name)))
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controllers").field("running", &self.running.names()).finish_non_exhaustive()
    }
}
