//! Start, supervision and shutdown of controllers.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use kcm_client::ClientFactory;
use kcm_clock::{Clock, jitter};
use kcm_informer::AnyInformer;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    Context,
    informers::Informers,
    tasks::{Ended, Tasks},
};

/// Runs a constructed controller until the token is cancelled.
pub type Runner = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Constructs a controller. Its handlers are registered when this returns.
pub(crate) type Constructor = Box<dyn FnOnce(&Context) -> Runner + Send + Sync>;

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
    pub(crate) context: Context,
    pub(crate) constructors: Vec<(String, Constructor)>,
    /// Informers that do not run yet.
    pub(crate) idle: Vec<Arc<dyn AnyInformer>>,
    pub(crate) informers: Informers,
    /// `true` after a list of an older storage than before.
    pub(crate) restored: Arc<watch::Sender<bool>>,
    pub(crate) start_interval: Duration,
    pub(crate) shutdown_timeout: Duration,
}

impl Standby {
    pub(crate) fn run_idle_informers(&mut self) {
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

    pub(crate) fn run(mut self) -> Controllers {
        // All controllers are constructed before any of them runs, as upstream.
        let construct = |(name, constructor): (String, Constructor)| (name, constructor(&self.context));
        let constructed: Vec<_> = self.constructors.drain(..).map(construct).collect();
        self.run_idle_informers();
        let Self { context, informers, restored, start_interval, shutdown_timeout, .. } = self;
        let random = context.random();
        let mut controllers = Controllers {
            running: Tasks::default(),
            informers,
            restored: restored.subscribe(),
            stop: CancellationToken::new(),
            clock: context.clock(),
            clients: context.dependencies().clients.clone(),
            timeout: shutdown_timeout,
            context,
        };
        for (name, runner) in constructed {
            controllers.run_controller(name, runner, jitter(&*random, start_interval, 1.0));
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
    /// Owner of the event broadcasters.
    context: Context,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
    clients: ClientFactory,
    timeout: Duration,
}

impl Controllers {
    /// Names of the running controllers, sorted.
    pub fn names(&self) -> Vec<String> {
        self.running.names()
    }

    fn run_controller(&mut self, name: String, runner: Runner, delay: Duration) {
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
        let broadcasters = self.context.take_broadcasters();
        let shutdowns =
            broadcasters.iter().map(|broadcaster| broadcaster.shutdown(EVENT_TIMEOUT + WRITE_TIMEOUT));
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
