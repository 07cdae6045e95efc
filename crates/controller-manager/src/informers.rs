//! Informers of any type: run together, and brought up to date after an election.

use std::fmt;

use futures_util::future::{BoxFuture, join_all};
use kcm_informer::{Object, SharedInformer};
use tokio_util::sync::CancellationToken;

use crate::tasks::{Ended, Tasks};

/// An informer of any type.
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

/// Informers that run.
#[derive(Default)]
pub(crate) struct Informers {
    all: Vec<AnyInformer>,
    running: Tasks,
    stop: CancellationToken,
}

impl Informers {
    /// Runs one more.
    pub(crate) fn add(&mut self, informer: AnyInformer) {
        self.running.spawn(informer.name, (informer.run)(self.stop.clone()));
        self.all.push(informer);
    }

    /// The next to end, which none should; `None` when there are none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next_ended(&mut self) -> Option<Ended> {
        self.running.next().await
    }

    /// Stops all; answers with those that panicked.
    pub(crate) async fn stop(&mut self) -> Vec<&'static str> {
        self.stop.cancel();
        self.running.all().await
    }

    /// Waits until each store is at a version at or after the time of the call.
    ///
    /// The caches of a standby may be behind: the last events are on their way, the watch cache of the API server lags,
    /// or the connection of a watch is dead and that has not been detected. A controller that starts on such a cache
    /// creates pods that the last leader has created already. Each informer therefore
    /// [relists](SharedInformer::relist), those included whose first list is under way.
    ///
    /// Upstream has no need of this: its informers start after the election.
    ///
    /// # Errors
    ///
    /// The informer that ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait. The informers go on.
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
