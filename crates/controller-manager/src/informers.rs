//! Informers, whatever they are of: run together, and made current before anybody acts on what they hold.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt, future::BoxFuture};
use kcm_api::ApiError;
use kcm_clock::Clock;
use kcm_informer::{
    List, ListOptions, ListWatch, Object, SharedInformer, WatchEvent, WatchOptions, WatchStream,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::tasks::{Ended, Tasks};

/// How long after a watch was opened anew it counts as having told what there was to tell.
///
/// The API server does not say where that ends, but has it at hand and sends it in one go.
const SETTLING: Duration = Duration::from_millis(100);

/// An informer of any type.
pub(crate) struct AnyInformer {
    name: &'static str,
    run: Box<dyn Fn(CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>,
    has_synced: Box<dyn Fn() -> bool + Send + Sync>,
    /// How many watches have been opened, and have told all that there was before.
    opened: watch::Receiver<u64>,
}

impl AnyInformer {
    pub(crate) fn new<K: Object>(
        name: &'static str,
        informer: &SharedInformer<K>,
        opened: watch::Receiver<u64>,
    ) -> Self {
        let (running, synced) = (informer.clone(), informer.clone());
        Self {
            name,
            run: Box::new(move |stop| {
                let informer = running.clone();
                Box::pin(async move { informer.run(stop).await })
            }),
            has_synced: Box::new(move || synced.has_synced()),
            opened,
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

    /// Waits until the stores hold what had been written when this was called.
    ///
    /// A standby's caches may lag behind: a little, because what the last leader has just written is still on its way;
    /// or a lot, because a connection is dead and nobody has noticed yet. Who acts on them would do once more what
    /// has been done. So all watches are opened anew, from where the stores are, and what they bring is waited for.
    /// Where no informer has been through its first list, there is nothing to be done: that is recent, and its watch
    /// lives.
    ///
    /// Upstream has no need of this: it lists everything, but only after it has become leader.
    ///
    /// # Errors
    ///
    /// The name of one that has panicked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves informers stopped.
    pub(crate) async fn make_current(&mut self, clock: &dyn Clock) -> Result<(), &'static str> {
        let (again, first): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.all).into_iter().partition(|informer| (informer.has_synced)());
        if again.is_empty() {
            self.all = first;
            return Ok(());
        }
        // One that is in the middle of its first list starts that anew.
        if let Some(name) = self.stop().await.first() {
            return Err(name);
        }
        self.stop = CancellationToken::new();
        let mut reopened = Vec::with_capacity(again.len());
        for mut informer in again {
            informer.opened.mark_unchanged();
            reopened.push(informer.opened.clone());
            self.add(informer);
        }
        for informer in first {
            self.add(informer);
        }
        for mut opened in reopened {
            tokio::select! {
                // It fails when there is no informer any more that could open one.
                _ = opened.changed() => {}
                Some(Ended::Panicked(name) | Ended::Returned(name)) = self.running.next() => return Err(name),
            }
        }
        clock.sleep(SETTLING).await;
        Ok(())
    }
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|informer| informer.name)).finish()
    }
}

/// A source that counts the watches that are opened on it.
pub(crate) struct Counted<K> {
    source: Arc<dyn ListWatch<K>>,
    opened: Arc<watch::Sender<u64>>,
}

impl<K: Object> Counted<K> {
    pub(crate) fn new(source: Arc<dyn ListWatch<K>>) -> (Self, watch::Receiver<u64>) {
        let (opened, told) = watch::channel(0);
        (Self { source, opened: Arc::new(opened) }, told)
    }
}

#[async_trait]
impl<K: Object> ListWatch<K> for Counted<K> {
    async fn list(&self, options: &ListOptions) -> Result<List<K>, ApiError> {
        self.source.list(options).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ApiError> {
        let stream = self.source.watch(options).await?;
        let opened = Arc::clone(&self.opened);
        let count = move || opened.send_modify(|opened| *opened += 1);
        if !options.send_initial_events {
            count();
            return Ok(stream);
        }
        // All is told anew, and counts when that is through.
        let counting = stream.inspect(move |event| {
            if matches!(event, Ok(WatchEvent::Bookmark { initial_events_end: true, .. })) {
                count();
            }
        });
        Ok(counting.boxed())
    }
}
