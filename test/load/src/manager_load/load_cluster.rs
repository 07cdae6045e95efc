//! Cluster that managers are measured on.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use kcm_api::ReplicaSet;
use kcm_client::{ApiClient, ListParams, Request};
use kcm_clock::Clock;
use kcm_informer::{ListWatch, WatchEvent, WatchOptions};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    manager::{ManagerProgram, RunningManager, TIMEOUT},
    server::LoadServer,
    workload::deployment,
};
use crate::error::TaskError;

/// Number of pods per Deployment.
pub(super) const PODS_EACH: usize = 100;
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/load/deployments";
pub(super) const PODS: &str = "/api/v1/namespaces/load/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A settled Deployment, a temporary Deployment, and a pod without an owner.
const SETTLED: &str = "fill-0";
const GROWN: &str = "grown";
const UNOWNED: &str = "unowned";

/// API server and its client.
pub(super) struct LoadCluster {
    pub(super) server: LoadServer,
    pub(super) api: ApiClient,
    clock: Arc<dyn Clock>,
    probes: usize,
    touches: usize,
}

/// A new Deployment; the creation of its ReplicaSet shows that a manager is active.
pub(super) struct Probe {
    name: String,
    replica_sets: Arc<dyn ListWatch<ReplicaSet>>,
    since: String,
    start: Duration,
    clock: Arc<dyn Clock>,
}

impl LoadCluster {
    pub(super) async fn new(server: LoadServer, clock: Arc<dyn Clock>) -> Result<Self, TaskError> {
        let api = server.api.clone();
        let unowned = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": UNOWNED, "labels": {"app": UNOWNED}},
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        });
        api.send(&Request::post(PODS, unowned.to_string())).await?;
        Ok(Self { server, api, clock, probes: 0, touches: 0 })
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(super) async fn pause(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    pub(super) fn start(&self, manager: &ManagerProgram, more: &[&str]) -> Result<RunningManager, TaskError> {
        manager.start(&self.server.kubeconfig, more)
    }

    /// Creates Deployments with `pods` pods in total, and runs `manager` until they are settled.
    pub(super) async fn fill(&mut self, pods: usize, manager: &ManagerProgram) -> Result<(), TaskError> {
        if pods == 0 {
            return Ok(());
        }
        let manager = self.start(manager, &["--leader-elect=false"])?;
        for at in 0..pods / PODS_EACH {
            self.create(&format!("fill-{at}"), PODS_EACH).await?;
        }
        self.settled("creation of pods").await?;
        manager.idle(self.clock()).await?;
        manager.end().await
    }

    /// Creates a Deployment without pods, and starts the measurement.
    pub(super) async fn probe(&mut self) -> Result<Probe, TaskError> {
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        let created = self.create(&name, 0).await?;
        let since = created["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
        let clock = Arc::clone(&self.clock);
        Ok(Probe {
            name,
            replica_sets: self.api.api().list_watch(ListParams::default()),
            since,
            start: self.now(),
            clock,
        })
    }

    /// Patches the pod without an owner `times` times.
    pub(super) async fn patch_unowned_pod(&mut self, times: usize) -> Result<(), TaskError> {
        self.touch(UNOWNED, times).await
    }

    /// Patches a pod of a settled ReplicaSet `times` times.
    pub(super) async fn patch_owned_pod(&mut self, times: usize) -> Result<(), TaskError> {
        let list = self.get(&format!("{PODS}?labelSelector=app%3D{SETTLED}&limit=1")).await?;
        let name = list["items"][0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.touch(&name, times).await
    }

    async fn touch(&mut self, pod: &str, times: usize) -> Result<(), TaskError> {
        for _ in 0..times {
            self.touches += 1;
            let patch = json!({"metadata": {"annotations": {"touched": self.touches.to_string()}}});
            let request = Request::strategic_merge_patch(format!("{PODS}/{pod}"), patch.to_string());
            self.api.send(&request).await?;
        }
        Ok(())
    }

    /// Creates a Deployment with this number of pods and waits until they are available.
    pub(super) async fn grow(&self, pods: usize) -> Result<(), TaskError> {
        self.create(GROWN, pods).await?;
        self.settled("growing").await
    }

    /// Deletes the Deployment of [`grow`](Self::grow), so that the next manager finds the same state.
    pub(super) async fn shrink(&self) -> Result<(), TaskError> {
        self.api.send(&Request::delete(format!("{DEPLOYMENTS}/{GROWN}"), Vec::new())).await?;
        let deadline = self.now() + TIMEOUT;
        let pods = format!("{PODS}?labelSelector=app%3D{GROWN}");
        while self.get(&pods).await?["items"].as_array().is_some_and(|pods| !pods.is_empty()) {
            if self.now() > deadline {
                return Err(TaskError::Late("deletion of pods".to_owned()));
            }
            self.pause(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Restarts kube-apiserver.
    pub(super) async fn restart_server(&mut self) -> Result<(), TaskError> {
        self.server.restart(&*self.clock).await
    }

    pub(super) async fn delete_lease(&self) -> Result<(), TaskError> {
        self.api.send(&Request::delete(LEASE, Vec::new())).await?;
        Ok(())
    }

    async fn create(&self, name: &str, replicas: usize) -> Result<Value, TaskError> {
        let answer =
            self.api.send(&Request::post(DEPLOYMENTS, deployment(name, replicas).to_string())).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Waits until all pods of all Deployments are available.
    async fn settled(&self, what: &str) -> Result<(), TaskError> {
        let deadline = self.now() + TIMEOUT;
        loop {
            let list = self.get(DEPLOYMENTS).await?;
            let incomplete = list["items"].as_array().into_iter().flatten().filter(|deployment| {
                deployment["spec"]["replicas"] != 0
                    && deployment["spec"]["replicas"] != deployment["status"]["availableReplicas"]
            });
            if incomplete.count() == 0 {
                return Ok(());
            }
            if self.now() > deadline {
                return Err(TaskError::Late(what.to_owned()));
            }
            self.pause(POLL_INTERVAL).await;
        }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, TaskError> {
        Ok(serde_json::from_slice(&self.api.send(&Request::get(path)).await?)?)
    }
}

impl Probe {
    /// Sets the start time.
    pub(super) fn from(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// Waits until a manager has created the ReplicaSet. Returns the time since the start.
    pub(super) async fn seen(self) -> Result<Duration, TaskError> {
        let options = WatchOptions {
            resource_version: Some(self.since.clone()),
            send_initial_events: false,
            timeout: TIMEOUT,
        };
        let seen = async {
            let mut events = self.replica_sets.watch(&options).await?;
            while let Some(event) = events.next().await.transpose()? {
                if let WatchEvent::Added(replica_set) = event
                    && replica_set.metadata.name.starts_with(&self.name)
                {
                    return Ok(self.clock.monotonic().saturating_sub(self.start));
                }
            }
            Err(TaskError::Late(format!("creation of the ReplicaSet of {}", self.name)))
        };
        let late = || TaskError::Late(format!("creation of the ReplicaSet of {}", self.name));
        timeout(TIMEOUT, seen).await.map_err(|_| late())?
    }
}
