//! Control loop of a controller: takes keys from the queue, syncs them and requeues them.
//!
//! Upstream repeats this in each controller: `Run`, `worker`, `processNextWorkItem`, `handleErr`.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use kcm_api::ObjectKey;
use kcm_clock::Clock;
use kcm_informer::{EventHandler, Object, SharedInformer};
use kcm_workqueue::{MetricsProvider, QueueConfig, RateLimitingQueue};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Level, Span, debug, enabled, error, info, trace};

use crate::{ErrorClass, NoSyncMetrics, Reconciler, Requeue, SyncMetrics, SyncResult, worker::run_workers};

/// Configuration of a [`Controller`].
pub struct ControllerConfig {
    /// Name of the controller in logs.
    pub name: &'static str,
    /// Name of the work queue in metrics.
    pub queue_name: &'static str,
    /// Clock of the queue and of sync durations.
    pub clock: Arc<dyn Clock>,
    /// Work queue metrics. `None` disables them.
    pub queue_metrics: Option<Arc<dyn MetricsProvider>>,
    /// Sync metrics.
    pub sync_metrics: Arc<dyn SyncMetrics>,
}

impl ControllerConfig {
    /// Returns a configuration without metrics.
    pub fn new(name: &'static str, clock: Arc<dyn Clock>) -> Self {
        let sync_metrics = Arc::new(NoSyncMetrics);
        Self { name, queue_name: name, clock, queue_metrics: None, sync_metrics }
    }
}

/// Informers, work queue and workers of one controller.
///
/// [`watch`](Self::watch) registers handlers, which add keys to the [`queue`](Self::queue).
/// [`run`](Self::run) calls the [`Reconciler`] for each key and requeues the key as the result demands.
///
/// Upstream counterpart: the part of each controller that is not specific to it.
pub struct Controller<R> {
    shared: Arc<Shared<R>>,
    caches: Vec<Box<dyn Cache>>,
}

/// Part of a controller that its workers share.
struct Shared<R> {
    name: &'static str,
    reconciler: Arc<R>,
    queue: RateLimitingQueue<ObjectKey>,
    clock: Arc<dyn Clock>,
    metrics: Arc<dyn SyncMetrics>,
}

impl<R: Reconciler> Controller<R> {
    /// Returns a controller with an empty queue and no informers.
    pub fn new(config: ControllerConfig, reconciler: Arc<R>) -> Self {
        let ControllerConfig { name, queue_name, clock, queue_metrics, sync_metrics } = config;
        let mut queue = QueueConfig::new(queue_name, Arc::clone(&clock));
        if let Some(metrics) = queue_metrics {
            queue.metrics = metrics;
        }
        let queue = RateLimitingQueue::new(queue);
        let shared = Shared { name, reconciler, queue, clock, metrics: sync_metrics };
        Self { shared: Arc::new(shared), caches: Vec::new() }
    }

    /// Returns the queue, for handlers.
    pub fn queue(&self) -> RateLimitingQueue<ObjectKey> {
        self.shared.queue.clone()
    }

    /// Returns the reconciler.
    pub fn reconciler(&self) -> &R {
        &self.shared.reconciler
    }

    /// Registers `handler` with `informer`. Workers start only after the informer has synced.
    pub fn watch<K: Object>(&mut self, informer: &SharedInformer<K>, handler: Arc<dyn EventHandler<K>>) {
        informer.add_handler(handler);
        self.caches.push(Box::new(informer.clone()));
    }

    /// Runs up to `workers` syncs at a time until `stop` is cancelled, and returns when the last sync has ended.
    ///
    /// The first sync starts when all informers have synced. The caller runs the informers. Keys that are in the queue
    /// when `stop` is cancelled are still synced.
    ///
    /// # Panics
    ///
    /// If a sync panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts running syncs.
    pub async fn run(&self, workers: usize, stop: CancellationToken) {
        let controller = self.shared.name;
        info!(controller, "Starting controller");
        if self.wait_for_caches(&stop).await {
            let shared = Arc::clone(&self.shared);
            let process = move |key| {
                let shared = Arc::clone(&shared);
                async move { shared.process(key).await }
            };
            run_workers(&self.shared.queue, workers, process, stop).await;
        }
        self.shared.queue.shut_down();
        info!(controller, "Shutting down controller");
    }

    async fn wait_for_caches(&self, stop: &CancellationToken) -> bool {
        for cache in &self.caches {
            if !cache.wait_for_sync(stop).await {
                return false;
            }
        }
        true
    }
}

impl<R: Reconciler> Shared<R> {
    /// Upstream counterpart: `processNextWorkItem`.
    async fn process(&self, key: ObjectKey) {
        let started = self.clock.monotonic();
        self.metrics.started();
        // Below `-v=2` only failures are logged, which create the span themselves.
        let span = if enabled!(Level::DEBUG) { self.reconciler.span(&key) } else { Span::none() };
        if let Some(message) = R::STARTED {
            span.in_scope(|| trace!("{message}"));
        }
        let result = self.reconciler.sync(&key).instrument(span.clone()).await;
        let duration = self.clock.monotonic().saturating_sub(started);
        span.in_scope(|| trace!(?duration, "{}", R::FINISHED));
        let result = match result {
            Ok(requeue) => {
                self.requeue(key, requeue);
                SyncResult::Success
            }
            Err(error) => self.retry(span, key, &error),
        };
        self.metrics.ended(duration, result);
    }

    fn requeue(&self, key: ObjectKey, requeue: Requeue) {
        match requeue {
            Requeue::Never => self.queue.forget(&key),
            Requeue::After(delay) => {
                self.queue.forget(&key);
                self.queue.add_after(key, delay);
            }
            // Forgotten at once, so that the back-off does not grow (US-4.12).
            Requeue::RateLimited => {
                self.queue.add_rate_limited(key.clone());
                self.queue.forget(&key);
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
    fn retry(&self, span: Span, key: ObjectKey, error: &R::Error) -> SyncResult {
        let class = R::classify(error);
        if class == ErrorClass::Terminal {
            self.queue.forget(&key);
            return SyncResult::Dropped;
        }
        let span = if span.is_none() { self.reconciler.span(&key) } else { span };
        let retries = self.queue.num_requeues(&key);
        span.in_scope(|| match class {
            // DEVIATION: upstream logs these two as errors, though neither needs attention.
            ErrorClass::StaleCache => debug!(err = %error, "Cache is behind own writes, retrying"),
            ErrorClass::ObjectDeleted => debug!(err = %error, "Object was deleted during sync"),
            _ if retries < R::QUIET_RETRIES => debug!(err = %error, "{}", R::FAILED),
            _ => error!(retries, err = %error, "{}", R::FAILED),
        });
        self.queue.add_rate_limited(key);
        if class == ErrorClass::StaleCache { SyncResult::Stale } else { SyncResult::Error }
    }
}

/// An informer of any type, as far as a [`Controller`] uses it.
#[async_trait]
trait Cache: Send + Sync {
    /// Waits until the cache contains a complete list. Returns `false` if `stop` is cancelled before.
    async fn wait_for_sync(&self, stop: &CancellationToken) -> bool;
}

#[async_trait]
impl<K: Object> Cache for SharedInformer<K> {
    async fn wait_for_sync(&self, stop: &CancellationToken) -> bool {
        Self::wait_for_sync(self, stop).await
    }
}

impl<R> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
