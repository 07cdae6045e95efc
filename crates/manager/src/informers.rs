//! Informers of all types, and the refresh of their caches after an election.

use std::{fmt, sync::Arc};

use futures_util::future::join_all;
use kcm_informer::AnyInformer;
use tokio_util::sync::CancellationToken;

use crate::tasks::{Ended, Tasks};

/// Running informers.
#[derive(Default)]
pub(crate) struct Informers {
    all: Vec<Arc<dyn AnyInformer>>,
    running: Tasks,
    stop: CancellationToken,
}

impl Informers {
    /// Starts an informer.
    pub(crate) fn add(&mut self, informer: Arc<dyn AnyInformer>) {
        self.all.push(Arc::clone(&informer));
        let stop = self.stop.clone();
        self.running.spawn(informer.name().to_owned(), async move { informer.run(stop).await });
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
    pub(crate) async fn stop(&mut self) -> Vec<String> {
        self.stop.cancel();
        self.running.all().await
    }

    /// [Relists](AnyInformer::relist) each informer, and waits until its store is at least as recent as the call.
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
        let relists = join_all(self.all.iter().map(|informer| informer.relist()));
        tokio::select! {
            biased;
            _ = relists => Ok(()),
            Some(ended) = self.running.next() => Err(ended),
        }
    }
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|informer| informer.name())).finish()
    }
}
