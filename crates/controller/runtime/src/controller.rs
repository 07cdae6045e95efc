//! Control loop of a controller: takes keys from the queue, reconciles them and requeues them.

use std::{fmt, mem, ops::ControlFlow, sync::Arc, sync::atomic::AtomicU64, time::Duration};

use kcm_clock::{Clock, Sleep};
use kcm_meta::ObjectKey;
use kcm_workqueue::WorkItem;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Level, Span, debug, enabled, error, info, trace, warn};

use crate::{
    ControllerHealth, ControllerState, ErrorClass, KeyQueue, KeyState, Reconciler, Requeue, RunOutcome,
    SyncMetrics, SyncRecord, SyncResult,
    health::{Busy, Cache, Running},
    options::{LeaderGate, Options},
    sync_log::SyncLog,
    worker::run_workers,
};

/// Time without a complete list after which an informer is named in the log.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Informers, work queue and workers of one controller.
///
/// Created by [`builder`](Controller::builder). Informers add keys to the queue; [`run`](Self::run) calls the [`Reconciler`] for
/// each key and requeues the key as the result demands.
///
/// Upstream counterpart: the part of each controller that is not specific to it.
pub struct Controller<R> {
    shared: Arc<Shared<R>>,
    workers: usize,
    drain_timeout: Option<Duration>,
    caches: Arc<[Arc<dyn Cache>]>,
    running: Running,
}

/// Part of a controller that its workers share.
struct Shared<R> {
    name: &'static str,
    reconciler: R,
    queue: KeyQueue,
    clock: Arc<dyn Clock>,
    metrics: Arc<dyn SyncMetrics>,
    leader_gate: Option<LeaderGate>,
    sync_log: Option<SyncLog>,
}

/// Key that [`Controller::step`] has processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<E> {
    /// Key.
    pub key: ObjectKey,
    /// Result of the reconciler. A key with an error is retried with back-off, unless the error is
    /// [terminal](ErrorClass::Terminal).
    pub result: Result<Requeue, E>,
}

impl<R: Reconciler> Controller<R> {
    pub(crate) fn new(
        options: Options,
        queue: KeyQueue,
        caches: Arc<[Arc<dyn Cache>]>,
        reconciler: R,
    ) -> Self {
        options.sync_metrics.built(ControllerState {
            queue: queue.clone(),
            own_writes: options.own_writes,
            caches: Arc::clone(&caches),
        });
        let shared = Shared {
            name: options.name,
            reconciler,
            queue,
            clock: options.clock,
            metrics: options.sync_metrics,
            leader_gate: options.leader_gate,
            sync_log: options.sync_log,
        };
        Self {
            shared: Arc::new(shared),
            workers: options.workers,
            drain_timeout: options.drain_timeout,
            caches,
            running: Running::default(),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.shared.name
    }

    /// Returns the queue. Keys can be added from any source of events.
    pub fn queue(&self) -> KeyQueue {
        self.shared.queue.clone()
    }

    /// Returns the reconciler.
    pub fn reconciler(&self) -> &R {
        &self.shared.reconciler
    }

    /// Returns the state of `key` in the queue, and its last sync if the controller has a
    /// [log](crate::ControllerBuilder::sync_log).
    pub fn key_state(&self, key: &ObjectKey) -> KeyState {
        let last_sync = self.shared.sync_log.as_ref().and_then(|log| log.get(key));
        KeyState { queue: self.shared.queue.state_of(key), last_sync }
    }

    /// Returns the health of the controller.
    pub fn health(&self) -> ControllerHealth {
        ControllerHealth {
            controller: self.shared.name,
            caches: Arc::clone(&self.caches),
            running: self.running.clone(),
            clock: Arc::clone(&self.shared.clock),
        }
    }

    /// Reconciles keys until `stop` is cancelled, and returns when the last reconciliation has ended.
    ///
    /// The first one starts when all informers have synced. The caller runs the informers. Keys that are in the queue when
    /// `stop` is cancelled are still processed, within the [drain timeout](crate::ControllerBuilder::drain_timeout); delayed
    /// keys are not.
    ///
    /// After [`RunOutcome::NotLeading`] it can be called again.
    ///
    /// # Panics
    ///
    /// If a reconciliation panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts reconciliations. Their keys return to the queue.
    pub async fn run(&self, stop: CancellationToken) -> RunOutcome {
        let controller = self.shared.name;
        info!(controller, "Starting controller");
        let mut outcome = RunOutcome::Stopped;
        if self.wait_for_caches(&stop).await {
            let (shared, slots) = (Arc::clone(&self.shared), self.running.start(self.workers));
            let process = move |worker: usize, item| {
                let (shared, slots) = (Arc::clone(&shared), Arc::clone(&slots));
                async move { shared.process_if_leading(item, slots.get(worker)).await }
            };
            let deadline = || self.drain_deadline();
            outcome = run_workers(&self.shared.queue, self.workers, process, &stop, deadline).await;
        }
        if outcome != RunOutcome::NotLeading {
            self.shared.queue.shut_down();
        }
        info!(controller, "Shutting down controller");
        outcome
    }

    /// Processes the next key, without waiting for caches or keys. Returns `None` if no key is due, or if the leader gate
    /// is closed.
    ///
    /// For tests: with a fake clock, they determine the time at which delayed keys are due.
    ///
    /// ```
    /// use std::{convert::Infallible, sync::Arc, time::Duration};
    ///
    /// use kcm_clock::{FakeClock, Timestamp};
    /// use kcm_runtime::{Controller, ObjectKey, Reconciler, Requeue};
    ///
    /// const MINUTE: Duration = Duration::from_secs(60);
    ///
    /// struct EveryMinute;
    ///
    /// impl Reconciler for EveryMinute {
    ///     type Error = Infallible;
    ///
    ///     async fn reconcile(&self, _: &ObjectKey) -> Result<Requeue, Infallible> {
    ///         Ok(Requeue::After(MINUTE))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    /// let controller = Controller::builder("example", Arc::new(clock.clone())).build(EveryMinute);
    /// controller.queue().add(ObjectKey::new("shop", "web"));
    /// let step = controller.step().await.unwrap();
    /// assert_eq!(step.result, Ok(Requeue::After(MINUTE)));
    /// assert!(controller.step().await.is_none());
    /// clock.step(MINUTE);
    /// assert!(controller.step().await.is_some());
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the key returns to the queue.
    pub async fn step(&self) -> Option<Step<R::Error>> {
        if !self.shared.is_leading() {
            return None;
        }
        let item = self.shared.queue.try_get()?;
        let key = ObjectKey::clone(&item);
        let result = self.shared.process(item, None).await;
        Some(Step { key, result })
    }

    /// Processes keys until none is due. See [`step`](Self::step).
    ///
    /// Does not end if each reconciliation changes an object that enqueues its key again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the current key returns to the queue.
    pub async fn drain(&self) -> Vec<Step<R::Error>> {
        let mut steps = Vec::new();
        while let Some(step) = self.step().await {
            steps.push(step);
        }
        steps
    }

    async fn wait_for_caches(&self, stop: &CancellationToken) -> bool {
        for cache in self.caches.iter() {
            let mut synced = cache.wait_for_sync(stop);
            let is_synced = tokio::select! {
                biased;
                is_synced = &mut synced => is_synced,
                () = self.shared.clock.sleep(SYNC_TIMEOUT) => {
                    let (controller, informer) = (self.shared.name, cache.name());
                    warn!(controller, informer, "Informer has not synced; it may not have been started");
                    synced.await
                }
            };
            if !is_synced {
                return false;
            }
        }
        true
    }

    fn drain_deadline(&self) -> Sleep {
        match self.drain_timeout {
            Some(timeout) => self.shared.clock.sleep(timeout),
            None => Box::pin(std::future::pending()),
        }
    }
}

impl<R: Reconciler> Shared<R> {
    fn is_leading(&self) -> bool {
        self.leader_gate.as_ref().is_none_or(|is_leader| is_leader())
    }

    async fn process_if_leading(
        &self,
        item: WorkItem<'static, ObjectKey>,
        slot: Option<&AtomicU64>,
    ) -> ControlFlow<()> {
        if !self.is_leading() {
            // Queued again when the item is dropped.
            self.queue.add(item.clone());
            return ControlFlow::Break(());
        }
        let _ = self.process(item, slot).await;
        ControlFlow::Continue(())
    }

    /// Upstream counterpart: `processNextWorkItem`.
    async fn process(
        &self,
        item: WorkItem<'static, ObjectKey>,
        slot: Option<&AtomicU64>,
    ) -> Result<Requeue, R::Error> {
        let key: &ObjectKey = &item;
        let unfinished = Unfinished { queue: &self.queue, key };
        let started = self.clock.monotonic();
        let _busy = slot.map(|slot| Busy::new(slot, started));
        self.metrics.started();
        // Without it, failures create the span themselves.
        let span =
            if !R::IS_QUIET || enabled!(Level::DEBUG) { self.reconciler.span(key) } else { Span::none() };
        if let Some(message) = R::STARTED {
            span.in_scope(|| trace!("{message}"));
        }
        let reconciled = self.reconciler.reconcile(key).instrument(span.clone()).await;
        let duration = self.clock.monotonic().saturating_sub(started);
        span.in_scope(|| trace!(?duration, "{}", R::FINISHED));
        let result = match &reconciled {
            Ok(requeue) => {
                self.requeue(key, *requeue);
                SyncResult::Success
            }
            Err(error) => self.retry(span, key, error),
        };
        self.metrics.ended(duration, result);
        if let Some(log) = &self.sync_log {
            let error = reconciled.as_ref().err().map(ToString::to_string);
            log.record(key, SyncRecord { ended: self.clock.now(), duration, result, error });
        }
        mem::forget(unfinished);
        reconciled
    }

    fn requeue(&self, key: &ObjectKey, requeue: Requeue) {
        match requeue {
            Requeue::Done => self.queue.forget(key),
            Requeue::After(delay) => {
                self.queue.forget(key);
                self.queue.add_after(key.clone(), delay);
            }
            // Forgotten at once, so that the back-off does not grow (US-4.12).
            Requeue::RateLimited => {
                self.queue.add_rate_limited(key.clone());
                self.queue.forget(key);
            }
        }
    }

    /// Logs the failed sync and requeues its key with back-off, or drops the key.
    ///
    /// DEVIATION: syncs are retried until they succeed, with the maximum delay of the rate limiter in the end. Upstream's
    /// Deployment controller drops the key after 15 retries, which takes less than three minutes (US-4.3). If an
    /// admission webhook fails for longer, the rollout stands still until the next resync.
    ///
    /// Upstream counterpart: `handleErr`.
    fn retry(&self, span: Span, key: &ObjectKey, error: &R::Error) -> SyncResult {
        let class = R::classify(error);
        if class == ErrorClass::Terminal {
            self.queue.forget(key);
            return SyncResult::Dropped;
        }
        let span = if span.is_none() { self.reconciler.span(key) } else { span };
        let retries = self.queue.num_requeues(key);
        span.in_scope(|| match class {
            // DEVIATION: upstream logs these two as errors, though neither needs attention.
            ErrorClass::StaleCache => debug!(err = %error, "Cache is behind own writes, retrying"),
            ErrorClass::ObjectDeleted => debug!(err = %error, "Object was deleted during sync"),
            _ if retries < R::QUIET_RETRIES => debug!(err = %error, "{}", R::FAILED),
            _ => error!(retries, err = %error, "{}", R::FAILED),
        });
        if class == ErrorClass::StaleCache {
            // DEVIATION: upstream takes a token of the limit that all keys share, so that many skipped syncs delay the retries
            // of failed ones.
            self.queue.add_backed_off(key.clone());
            return SyncResult::Stale;
        }
        if class == ErrorClass::Temporary {
            // DEVIATION: upstream counts each failure, also of syncs that events have started during the back-off.
            self.queue.add_rate_limited_once(key.clone());
        } else {
            self.queue.add_rate_limited(key.clone());
        }
        if let Some(delay) = R::wake_after(error) {
            self.queue.add_after(key.clone(), delay);
        }
        SyncResult::Error
    }
}

/// Returns the key of an aborted reconciliation to the queue. Forgotten when the reconciliation is complete.
struct Unfinished<'a> {
    queue: &'a KeyQueue,
    key: &'a ObjectKey,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.queue.add(self.key.clone());
    }
}

impl<R> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
