//! What controllers share.

use std::sync::{Arc, OnceLock};

use kcm_api::{Deployment, Pod, ReplicaSet};
use kcm_client::{ApiClient, ClientFactory};
use kcm_clock::{Clock, Random};
use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
use kcm_events::{EventBroadcaster, EventRecorder};
use kcm_informer::{Indexers, InformerConfig, ListWatch, Object, SharedInformer};
use parking_lot::Mutex;

use crate::ManagerConfig;

/// The name of the client that lists and watches (US-1.3).
const SHARED_INFORMERS: &str = "shared-informers";

/// What controllers are put together from. Informers come into being when the first of them asks, and then
/// serve all.
///
/// Upstream counterpart: `ControllerContext`.
pub(crate) struct Context {
    config: ManagerConfig,
    clients: ClientFactory,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    reader: ApiClient,
    pods: OnceLock<SharedInformer<Pod>>,
    replica_sets: OnceLock<SharedInformer<ReplicaSet>>,
    deployments: OnceLock<SharedInformer<Deployment>>,
    broadcasters: Mutex<Vec<EventBroadcaster>>,
}

impl Context {
    pub(crate) fn new(
        config: ManagerConfig,
        clients: ClientFactory,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        let reader = clients.client(SHARED_INFORMERS, config.rate_limit);
        Self {
            config,
            clients,
            clock,
            random,
            reader,
            pods: OnceLock::new(),
            replica_sets: OnceLock::new(),
            deployments: OnceLock::new(),
            broadcasters: Mutex::default(),
        }
    }

    pub(crate) fn config(&self) -> &ManagerConfig {
        &self.config
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// A client with a rate limit of its own.
    pub(crate) fn client(&self, name: &str) -> Arc<ApiClient> {
        Arc::new(self.clients.client(name, self.config.rate_limit))
    }

    /// A recorder that writes through `client`, sharing its rate limit.
    pub(crate) fn recorder(&self, client: &Arc<ApiClient>, component: &str) -> Arc<dyn EventRecorder> {
        let sink = Arc::clone(client) as _;
        let broadcaster = EventBroadcaster::start(sink, self.clock(), Arc::clone(&self.random));
        let recorder = broadcaster.recorder(component);
        self.broadcasters.lock().push(broadcaster);
        recorder
    }

    pub(crate) fn pods(&self) -> SharedInformer<Pod> {
        self.pods.get_or_init(|| self.informer("pods", pod_indexers(), self.reader.pods())).clone()
    }

    pub(crate) fn replica_sets(&self) -> SharedInformer<ReplicaSet> {
        let new = || self.informer("replicasets", replica_set_indexers(), self.reader.replica_sets());
        self.replica_sets.get_or_init(new).clone()
    }

    pub(crate) fn deployments(&self) -> SharedInformer<Deployment> {
        let new = || self.informer("deployments", deployment_indexers(), self.reader.deployments());
        self.deployments.get_or_init(new).clone()
    }

    fn informer<K: Object>(
        &self,
        name: &str,
        indexers: Indexers<K>,
        list_watch: Arc<dyn ListWatch<K>>,
    ) -> SharedInformer<K> {
        let new = InformerConfig::new(name, list_watch, self.clock(), Arc::clone(&self.random));
        SharedInformer::new(InformerConfig { indexers, resync: Some(self.config.min_resync_period), ..new })
    }

    /// What has come into being, to be run and in the end shut down.
    pub(crate) fn into_parts(self) -> Parts {
        Parts {
            pods: self.pods.into_inner(),
            replica_sets: self.replica_sets.into_inner(),
            deployments: self.deployments.into_inner(),
            broadcasters: self.broadcasters.into_inner(),
        }
    }
}

/// What controllers have asked a [`Context`] for.
pub(crate) struct Parts {
    pub(crate) pods: Option<SharedInformer<Pod>>,
    pub(crate) replica_sets: Option<SharedInformer<ReplicaSet>>,
    pub(crate) deployments: Option<SharedInformer<Deployment>>,
    pub(crate) broadcasters: Vec<EventBroadcaster>,
}
