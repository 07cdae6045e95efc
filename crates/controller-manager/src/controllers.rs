//! Starting controllers, watching over them, and stopping them.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use kcm_client::ClientFactory;
use kcm_clock::{Clock, Random, jitter};
use kcm_events::EventBroadcaster;
use kcm_informer::{Object, SharedInformer};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::{
    ManagerConfig,
    context::{Context, Parts},
    descriptor::{CONTROLLERS, Runner},
    tasks::{Ended, Tasks},
};

/// How long the last events may take to be written when controllers may take for ever.
const LAST_EVENTS: Duration = Duration::from_secs(10);

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

/// Running controllers, with the informers and event writers that they share.
///
/// Dropping it ends them where they are; [`stop`](Self::stop) lets them finish what they are at.
///
/// Upstream counterpart: `RunControllers`.
pub struct Controllers {
    running: Tasks,
    informers: Tasks,
    broadcasters: Vec<EventBroadcaster>,
    stop: CancellationToken,
    stop_informers: CancellationToken,
    clock: Arc<dyn Clock>,
    time_out: Duration,
}

impl Controllers {
    /// Puts together the controllers that `config` names, and runs them.
    ///
    /// They begin once their caches are filled from the API server that `clients` lead to; until then, and whenever
    /// it cannot be reached, they wait.
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
        let context = Context::new(config.clone(), clients.clone(), Arc::clone(clock), Arc::clone(random));
        let wanted = CONTROLLERS.iter().filter(|descriptor| {
            let included = config.controllers.includes(descriptor);
            if !included {
                tracing::warn!(controller = descriptor.name, "Warning: controller is disabled");
            }
            included
        });
        // All are put together before the informers run: a handler that joins late is told everything in one go.
        let constructed: Vec<_> =
            wanted.map(|descriptor| (descriptor.name, (descriptor.construct)(&context))).collect();
        let Parts { pods, replica_sets, deployments, broadcasters } = context.into_parts();
        let mut this = Self {
            running: Tasks::default(),
            informers: Tasks::default(),
            broadcasters,
            stop: CancellationToken::new(),
            stop_informers: CancellationToken::new(),
            clock: Arc::clone(clock),
            time_out: config.controller_shutdown_timeout,
        };
        this.run_informer("pods", pods);
        this.run_informer("replicasets", replica_sets);
        this.run_informer("deployments", deployments);
        for (name, runner) in constructed {
            let delay = jitter(&**random, config.controller_start_interval, 1.0);
            this.run_controller(name, runner, delay);
        }
        this
    }

    fn run_informer<K: Object>(&mut self, name: &'static str, informer: Option<SharedInformer<K>>) {
        let Some(informer) = informer else { return };
        let stop = self.stop_informers.clone();
        self.informers.spawn(name, async move { informer.run(stop).await });
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
            Some(ended) = self.running.next() => ended,
            Some(ended) = self.informers.next() => ended,
            // There are none.
            else => return std::future::pending().await,
        };
        match ended {
            Ended::Returned(name) => ControllerError::Ended(name),
            Ended::Panicked(name) => ControllerError::Panicked(name),
        }
    }

    /// Lets the controllers finish what they are at; then the informers stop and the last events are written.
    ///
    /// # Errors
    ///
    /// When one has not stopped in time, or has panicked on the way.
    pub async fn stop(mut self) -> Result<(), ControllerError> {
        self.stop.cancel();
        let outcome = self.stopped().await;
        self.stop_informers.cancel();
        let panicked = self.informers.all().await;
        let within = if self.time_out.is_zero() { LAST_EVENTS } else { self.time_out };
        join_all(self.broadcasters.iter().map(|broadcaster| broadcaster.shutdown(within))).await;
        outcome.and_then(|()| none_of(&panicked))
    }

    async fn stopped(&mut self) -> Result<(), ControllerError> {
        let deadline =
            (!self.time_out.is_zero()).then(|| self.clock.monotonic().saturating_add(self.time_out));
        let pause = if deadline.is_some() { self.time_out / 3 } else { STILL_WAITING };
        let mut panicked = Vec::new();
        loop {
            let left = deadline.map(|deadline| deadline.saturating_sub(self.clock.monotonic()));
            if left.is_some_and(|left| left.is_zero()) {
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
