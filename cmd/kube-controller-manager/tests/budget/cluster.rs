//! API server and simulated nodes, in simulated time.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{ApiServer, ApiServerConfig, ListOptions, Resource, WriteOptions};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::scope::uncounted_future;

/// API server and nodes. Pods become available at once.
pub struct Cluster {
    pub server: Arc<ApiServer>,
    pub clock: Arc<dyn Clock>,
}

impl Cluster {
    /// Starts the nodes.
    pub fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            managed_fields: false,
            ..ApiServerConfig::default()
        });
        let kubelet = KubeletConfig { pod_ready_delay: Duration::ZERO, pod_stop_delay: Duration::ZERO };
        let sandbox = Sandbox::new(SandboxConfig {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random,
            nodes: 3,
            kubelet,
        })
        .unwrap();
        tokio::spawn(uncounted_future(async move { sandbox.run(CancellationToken::new()).await }));
        Self { server, clock }
    }

    pub async fn sleep(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    pub fn deploy(&self, name: &str, replicas: usize) {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "app:1"}]},
                },
            },
        });
        self.server.create(Resource::DEPLOYMENTS, "default", object, &WriteOptions::default()).unwrap();
    }

    /// Changes a field of the spec.
    pub fn set(&self, name: &str, pointer: &str, value: Value) {
        let mut object = self.server.get(Resource::DEPLOYMENTS, "default", name).unwrap().value().clone();
        *object["spec"].pointer_mut(pointer).unwrap() = value;
        self.server.update(Resource::DEPLOYMENTS, "default", object, &WriteOptions::default()).unwrap();
    }

    /// Waits a minute, and asserts that all pods of all Deployments are updated and available. Rollouts end earlier, because
    /// requests and pods take no simulated time; the rest of the minute is for events.
    pub async fn settle(&self) {
        self.sleep(60).await;
        assert!(self.is_settled());
    }

    fn is_settled(&self) -> bool {
        let list =
            |resource| self.server.list(resource, Some("default"), &ListOptions::default()).unwrap().items;
        list(Resource::DEPLOYMENTS).iter().all(|object| {
            let (spec, status) = (&object.value()["spec"], &object.value()["status"]);
            status["observedGeneration"] == object.value()["metadata"]["generation"]
                && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| {
                    status[*field].as_u64().unwrap_or(0) == spec["replicas"].as_u64().unwrap_or(0)
                })
        })
    }

    pub fn pods(&self) -> usize {
        self.server.list(Resource::PODS, Some("default"), &ListOptions::default()).unwrap().items.len()
    }
}
