//! Changes of Deployments, ReplicaSets and pods, from watches.

use std::sync::Arc;

use kcm_api::{Deployment, Pod, ReplicaSet};
use kcm_client::{ApiClient, Decode, Kind, ListParams};
use kcm_clock::{Clock, RealClock, SeededRandom};
use kcm_informer::{Deleted, EventHandler, InformerConfig, Object, SharedInformer};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Watches the objects of a namespace, or of all namespaces, until dropped.
pub(super) struct Changes {
    changed: Arc<Notify>,
    _stop: DropGuard,
}

/// Handler of an informer that reports each event.
struct Signal(Arc<Notify>);

impl<K: Object> EventHandler<K> for Signal {
    fn on_add(&self, _: &Arc<K>, _: bool) {
        self.0.notify_one();
    }

    fn on_update(&self, _: &Arc<K>, _: &Arc<K>) {
        self.0.notify_one();
    }

    fn on_delete(&self, _: &Deleted<K>) {
        self.0.notify_one();
    }
}

impl Changes {
    /// Starts the watches. An informer retries a watch that fails.
    pub(super) fn watch(client: &ApiClient, namespace: Option<&str>) -> Self {
        let stop = CancellationToken::new();
        let this = Self { changed: Arc::default(), _stop: stop.clone().drop_guard() };
        this.start::<Deployment>("deployments", client, namespace, &stop);
        this.start::<ReplicaSet>("replicasets", client, namespace, &stop);
        this.start::<Pod>("pods", client, namespace, &stop);
        this
    }

    fn start<K: Kind<Decoder: Decode<K>>>(
        &self,
        name: &str,
        client: &ApiClient,
        namespace: Option<&str>,
        stop: &CancellationToken,
    ) {
        let api = client.api::<K>().namespaced(namespace.unwrap_or_default());
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let random = Arc::new(SeededRandom::from_entropy());
        let informer = SharedInformer::new(InformerConfig::new(
            name,
            api.list_watch(ListParams::default()),
            clock,
            random,
        ));
        informer.add_handler(Arc::new(Signal(Arc::clone(&self.changed))));
        let stop = stop.clone();
        tokio::spawn(async move { informer.run(stop).await });
    }

    /// Waits for a change since the last call.
    ///
    /// # Cancel safety
    ///
    /// A change is not lost.
    pub(super) async fn next(&self) {
        self.changed.notified().await;
    }
}
