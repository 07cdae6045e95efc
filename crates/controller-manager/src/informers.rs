//! Informers of all types, and the refresh of their caches after an election.

use std::fmt;

use futures_util::future::{BoxFuture, join_all};
use kcm_informer::{Object, SharedInformer};
use tokio_util::sync::CancellationToken;

use crate::tasks::{Ended, Tasks};

/// Informer of any object type.
pub(crate) struct AnyInformer {
    name: &'static str,
    run: Box<dyn Fn(CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>,
    relist: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl AnyInformer {
    pub(crate) fn new<K: Object>(name: &'static str, informer: &SharedInformer<K>) -> Self {
        let (running, relisted) = (informer.clone(), informer.clone());
        Self {
            name,
            run: Box::new(move |stop| {
                let informer = running.clone();
                Box::pin(async move { informer.run(stop).await })
            }),
            relist: Box::new(move || {
                let informer = relisted.clone();
                Box::pin(async move { informer.relist().await })
            }),
        }
    }
}

/// Running informers.
#[derive(Default)]
pub(crate) struct Informers {
    all: Vec<AnyInformer>,
    running: Tasks,
    stop: CancellationToken,
}

impl Informers {
    /// Starts an informer.
    pub(crate) fn add(&mut self, informer: AnyInformer) {
        self.running.spawn(informer.name, (informer.run)(self.stop.clone()));
        self.all.push(informer);
    }

    /// Waits for the next informer that ends. `None` if there are no informers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub(crate) async fn next_ended(&mut self) -> Option<Ended> {
        self.running.next().await
    }

    /// Stops all informers. Returns the names of those that panicked.
    pub(crate) async fn stop(&mut self) -> Vec<&'static str> {
        self.stop.cancel();
        self.running.all().await
    }

    /// [Relists](SharedInformer::relist) each informer, and waits until its store is at least as recent as the call.
    ///
    /// The caches of a standby may be stale: events are in flight, the API server's watch cache lags, or a broken watch
    /// connection has not been detected. A controller with a stale cache would create pods that the previous leader has
    /// already created. Informers in their first list relist as well.
    ///
    /// Upstream does not need this: its informers start after the election.
    ///
    /// # Errors
    ///
    /// The informer that ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait. The informers continue.
    pub(crate) async fn refresh_caches(&mut self) -> Result<(), Ended> {
        let relists = join_all(self.all.iter().map(|informer| (informer.relist)()));
        tokio::select! {
            biased;
            _ = relists => Ok(()),
            Some(ended) = self.running.next() => Err(ended),
        }
    }
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|informer| informer.name)).finish()
    }
}
