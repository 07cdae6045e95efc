//! The sandbox that managers are measured on.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use kcm_api::ReplicaSet;
use kcm_client::{ApiClient, ClientFactory, RateLimit, Request};
use kcm_clock::Clock;
use kcm_informer::{ListWatch, WatchEvent, WatchOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Child, time::timeout};

use super::{
    PATIENCE, PODS_EACH, TaskError,
    subject::{Running, Subject},
};

const NAMESPACE: &str = "load";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/load/deployments";
const PODS: &str = "/api/v1/namespaces/load/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
const LOOK: Duration = Duration::from_millis(100);
/// A Deployment that is settled, one that comes and goes, and a pod that belongs to nobody.
const SETTLED: &str = "fill-0";
const GROWN: &str = "grown";
const STRAY: &str = "stray";

/// An API server with simulated nodes, and a way to it.
pub(super) struct Cluster {
    _server: Child,
    folder: TempDir,
    api: ApiClient,
    clock: Arc<dyn Clock>,
    probes: usize,
    touches: usize,
}

/// A Deployment that no manager has seen yet.
pub(super) struct Probe {
    name: String,
    replica_sets: Arc<dyn ListWatch<ReplicaSet>>,
    since: String,
    start: Duration,
    clock: Arc<dyn Clock>,
}

impl Cluster {
    pub(super) async fn new(
        server: Child,
        folder: TempDir,
        clients: ClientFactory,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TaskError> {
        let api = clients.client("load", RateLimit::UNLIMITED);
        for name in [NAMESPACE, "kube-system"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            match api.send(&Request::post("/api/v1/namespaces", namespace.to_string())).await {
                Err(error) if !error.is_already_exists() => return Err(error.into()),
                _ => {}
            }
        }
        let stray = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": STRAY, "labels": {"app": STRAY}},
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        });
        api.send(&Request::post(PODS, stray.to_string())).await?;
        Ok(Self { _server: server, folder, api, clock, probes: 0, touches: 0 })
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(super) async fn pause(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    pub(super) fn start(&self, subject: &Subject, more: &[&str]) -> Result<Running, TaskError> {
        subject.start(&self.folder.path().join("sandbox.kubeconfig"), more)
    }

    /// Has so many pods made by `manager`, in Deployments that are settled in the end.
    pub(super) async fn fill(&mut self, pods: usize, manager: &Subject) -> Result<(), TaskError> {
        if pods == 0 {
            return Ok(());
        }
        let manager = self.start(manager, &["--leader-elect=false"])?;
        for at in 0..pods / PODS_EACH {
            self.create(&format!("fill-{at}"), PODS_EACH).await?;
        }
        self.settled("filling").await?;
        manager.idle(self).await?;
        manager.end().await
    }

    /// A Deployment of no pods, and the time from now on.
    pub(super) async fn probe(&mut self) -> Result<Probe, TaskError> {
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        let created = self.create(&name, 0).await?;
        let since = created["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
        let clock = Arc::clone(&self.clock);
        Ok(Probe { name, replica_sets: self.api.replica_sets(), since, start: self.now(), clock })
    }

    /// Patches a pod that belongs to nobody so many times.
    pub(super) async fn touch_stray(&mut self, times: usize) -> Result<(), TaskError> {
        self.touch(STRAY, times).await
    }

    /// Patches a pod of a settled ReplicaSet so many times.
    pub(super) async fn touch_owned(&mut self, times: usize) -> Result<(), TaskError> {
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

    /// Wants so many pods and waits until they are available.
    pub(super) async fn grow(&self, pods: usize) -> Result<(), TaskError> {
        self.create(GROWN, pods).await?;
        self.settled("growing").await
    }

    /// Undoes that: the next manager is to find what this one found.
    pub(super) async fn shrink(&self) -> Result<(), TaskError> {
        self.api.send(&Request::delete(format!("{DEPLOYMENTS}/{GROWN}"), Vec::new())).await?;
        let deadline = self.now() + PATIENCE;
        let pods = format!("{PODS}?labelSelector=app%3D{GROWN}");
        while self.get(&pods).await?["items"].as_array().is_some_and(|pods| !pods.is_empty()) {
            if self.now() > deadline {
                return Err(TaskError::Late("removing pods".to_owned()));
            }
            self.pause(LOOK).await;
        }
        Ok(())
    }

    pub(super) async fn forget_lease(&self) -> Result<(), TaskError> {
        self.api.send(&Request::delete(LEASE, Vec::new())).await?;
        Ok(())
    }

    async fn create(&self, name: &str, replicas: usize) -> Result<Value, TaskError> {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{
                        "name": "main",
                        "image": "app:1",
                        "ports": [{"containerPort": 80}],
                        "env": [{"name": "MODE", "value": "load"}],
                        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                    }]},
                },
            },
        });
        let answer = self.api.send(&Request::post(DEPLOYMENTS, deployment.to_string())).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Waits until all Deployments have all their pods.
    async fn settled(&self, what: &str) -> Result<(), TaskError> {
        let deadline = self.now() + PATIENCE;
        loop {
            let list = self.get(DEPLOYMENTS).await?;
            let wanting = list["items"].as_array().into_iter().flatten().filter(|deployment| {
                deployment["spec"]["replicas"] != 0
                    && deployment["spec"]["replicas"] != deployment["status"]["availableReplicas"]
            });
            if wanting.count() == 0 {
                return Ok(());
            }
            if self.now() > deadline {
                return Err(TaskError::Late(what.to_owned()));
            }
            self.pause(LOOK).await;
        }
    }

    async fn get(&self, path: &str) -> Result<Value, TaskError> {
        Ok(serde_json::from_slice(&self.api.send(&Request::get(path)).await?)?)
    }
}

impl Probe {
    /// The same, with the time counted from `start` on.
    pub(super) fn from(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// Waits until a manager has made its ReplicaSet, and gives the time that took.
    pub(super) async fn seen(self) -> Result<Duration, TaskError> {
        let options = WatchOptions {
            resource_version: Some(self.since.clone()),
            send_initial_events: false,
            timeout: PATIENCE,
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
            Err(TaskError::Late(format!("the ReplicaSet of {}", self.name)))
        };
        let late = || TaskError::Late(format!("the ReplicaSet of {}", self.name));
        timeout(PATIENCE, seen).await.map_err(|_| late())?
    }
}
