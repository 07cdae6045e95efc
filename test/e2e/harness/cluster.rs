//! Test cluster: API server, kubelet and managers.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use kcm_api::ApiError;
use kcm_apiserver::Faults;
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::{Clock, RealClock};
use kcm_stories::{
    Entry, WriteLog,
    external::{Authorization, ControlPlane, EmbeddedServer},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Manager, assets,
    embedded::{self, TEST},
    kubelet::Kubelet,
    until,
};

/// API server with a kubelet and a record of writes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) api: ApiClient,
    server: ApiServer,
    kubelet: Kubelet,
    trail: WriteLog,
    written: Vec<Entry>,
    folder: TempDir,
    _stop: DropGuard,
}

#[derive(Debug)]
enum ApiServer {
    Embedded(EmbeddedServer),
    Real(Box<ControlPlane>),
}

const NAMESPACE: &str = "default";

/// Flags of all managers: both controllers, a high rate limit, and no secure port.
const FLAGS: [&str; 4] = [
    "--controllers=deployment-controller,replicaset-controller",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
    "--secure-port=0",
];

impl Cluster {
    /// Cluster with this project's API server.
    pub(crate) async fn embedded() -> Self {
        Self::embedded_with(Faults::default()).await
    }

    /// Cluster with this project's API server, which injects `faults`.
    pub(crate) async fn embedded_with(faults: Faults) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let (sender, trail) = WriteLog::new(Arc::clone(&clock));
        let server = embedded::start(folder.path().join("data"), sender, faults).await;
        let access = Server::Master(server.url());
        Self::new(ApiServer::Embedded(server), access, trail, folder, CancellationToken::new()).await
    }

    /// Cluster with kube-apiserver. `None` without `KUBEBUILDER_ASSETS`.
    pub(crate) async fn real() -> Option<Self> {
        Self::real_with(Authorization::AlwaysAllow).await
    }

    /// Cluster with kube-apiserver and an authorization mode. `None` without `KUBEBUILDER_ASSETS`.
    pub(crate) async fn real_with(authorization: Authorization) -> Option<Self> {
        let assets = assets()?;
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let (sender, trail) = WriteLog::new(Arc::clone(&clock));
        let plane = ControlPlane::start(&assets, folder.path(), authorization).unwrap();
        let stop = CancellationToken::new();
        plane.follow(sender, stop.clone());
        let access = Server::Kubeconfig { path: plane.kubeconfig("admin"), master: None };
        Some(Self::new(ApiServer::Real(Box::new(plane)), access, trail, folder, stop).await)
    }

    async fn new(
        server: ApiServer,
        access: Server,
        trail: WriteLog,
        folder: TempDir,
        stop: CancellationToken,
    ) -> Self {
        let options = ClientOptions::new(UserAgent::new(TEST, "v0", ""), Arc::new(RealClock::new()));
        let clients = ClientFactory::connect(access, options).await.unwrap();
        let api = clients.client("test", RateLimit::UNLIMITED);
        let kubelet = Kubelet::start(clients.client("kubelet", RateLimit::UNLIMITED));
        let mut cluster =
            Self { api, server, kubelet, trail, written: Vec::new(), folder, _stop: stop.drop_guard() };
        cluster.ready().await;
        cluster
    }

    /// Waits until the API server is ready.
    async fn ready(&mut self) {
        let api = self.api.clone();
        match &mut self.server {
            ApiServer::Real(plane) => plane.ready(&api, &RealClock::new()).await.unwrap(),
            ApiServer::Embedded(_) => {
                until("the server is ready", async || self.get("/readyz").await.is_ok()).await;
            }
        }
    }

    /// Kills the API server.
    pub(crate) async fn kill_server(&mut self) {
        match &mut self.server {
            ApiServer::Embedded(server) => server.kill().await,
            ApiServer::Real(plane) => plane.kill_server().await.unwrap(),
        }
    }

    /// Restarts the API server with the same port and objects.
    pub(crate) async fn start_server(&mut self) {
        match &mut self.server {
            ApiServer::Embedded(server) => server.start_again().await.unwrap(),
            ApiServer::Real(plane) => plane.start_server().unwrap(),
        }
        self.ready().await;
    }

    /// Programs of the control plane with kube-apiserver.
    pub(crate) fn control_plane(&self) -> &ControlPlane {
        match &self.server {
            ApiServer::Real(plane) => plane,
            ApiServer::Embedded(_) => panic!("embedded API server"),
        }
    }

    /// Folder for files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the manager with [`FLAGS`] and `flags`.
    pub(crate) async fn manager(&self, name: &str, flags: &[&str]) -> Manager {
        let access = self.access();
        self.start(name, kcm_testkit::program("kube-controller-manager").into(), &access, flags).await
    }

    /// Flag of a manager for the address of the API server.
    fn access(&self) -> String {
        match &self.server {
            ApiServer::Embedded(server) => format!("--master={}", server.url()),
            ApiServer::Real(plane) => format!("--kubeconfig={}", plane.kubeconfig("manager").display()),
        }
    }

    /// Starts the manager with another kubeconfig.
    pub(crate) async fn manager_as(&self, name: &str, kubeconfig: &Path, flags: &[&str]) -> Manager {
        let access = format!("--kubeconfig={}", kubeconfig.display());
        self.start(name, kcm_testkit::program("kube-controller-manager").into(), &access, flags).await
    }

    /// Starts upstream's manager.
    pub(crate) async fn upstream_manager(&self, name: &str, program: &OsString, flags: &[&str]) -> Manager {
        let delegated = match &self.server {
            ApiServer::Embedded(_) => Vec::new(),
            ApiServer::Real(plane) => ["authentication", "authorization"]
                .map(|of| format!("--{of}-kubeconfig={}", plane.kubeconfig("manager").display()))
                .to_vec(),
        };
        let flags: Vec<&str> = flags.iter().copied().chain(delegated.iter().map(String::as_str)).collect();
        self.start(name, program.clone(), &self.access(), &flags).await
    }

    async fn start(&self, name: &str, program: OsString, access: &str, flags: &[&str]) -> Manager {
        let flags: Vec<_> =
            [access].iter().chain(&FLAGS).chain(flags).map(|flag| (*flag).to_owned()).collect();
        Manager::start(name, &program, &flags, self.folder.path()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        // Some responses are not JSON.
        self.api
            .send(&Request::get(path))
            .await
            .map(|response| serde_json::from_slice(&response).unwrap_or_default())
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        let response = self.api.send(&Request::post(path, object.to_string())).await?;
        Ok(serde_json::from_slice(&response).unwrap())
    }

    /// Changes an object by a strategic merge patch.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) {
        self.api.send(&Request::strategic_merge_patch(path, patch.to_string())).await.unwrap();
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, path: &str, options: &Value) {
        self.api.send(&Request::delete(path, options.to_string())).await.unwrap();
    }

    /// Creates a Deployment with a surge and an unavailability of one.
    pub(crate) async fn deploy(&self, name: &str, replicas: usize) {
        let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
        self.deploy_with(name, replicas, &strategy).await;
    }

    /// Creates a Deployment.
    pub(crate) async fn deploy_with(&self, name: &str, replicas: usize, strategy: &Value) {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "strategy": strategy,
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "containers": [{"name": "c", "image": "image:1"}],
                        "terminationGracePeriodSeconds": 1,
                    },
                },
            },
        });
        self.post(&deployments(), &deployment).await.unwrap();
    }

    /// Sets the image of a Deployment.
    pub(crate) async fn roll(&self, name: &str, image: &str) {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        self.patch(&format!("{}/{name}", deployments()), &patch).await;
    }

    /// Status of a Deployment, and `true` if its rollout is complete.
    async fn progress(&self, name: &str) -> (Value, bool) {
        let Ok(deployment) = self.get(&format!("{}/{name}", deployments())).await else {
            return (Value::Null, false);
        };
        let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
        let done = status["observedGeneration"] == deployment["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|count| status[count] == *wanted);
        (status.clone(), done)
    }

    /// Waits until at least `at_least` pods of a Deployment are updated.
    pub(crate) async fn until_updated(&self, name: &str, at_least: u64) {
        until(&format!("{at_least} pods of {name} are new"), async || {
            let (status, _) = self.progress(name).await;
            status["updatedReplicas"].as_u64().unwrap_or_default() >= at_least
        })
        .await;
    }

    /// Returns `true` if the rollout of a Deployment is complete.
    pub(crate) async fn is_rolled_out(&self, name: &str) -> bool {
        self.progress(name).await.1
    }

    /// Waits until the rollout of a Deployment is complete.
    pub(crate) async fn until_rolled_out(&self, name: &str) {
        until(&format!("{name} is rolled out"), async || self.is_rolled_out(name).await).await;
    }

    /// UIDs of the pods of a Deployment with an image.
    pub(crate) async fn pods(&self, name: &str, image: &str) -> BTreeSet<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{name}");
        let list = self.get(&path).await.unwrap();
        let pods = list["items"].as_array().unwrap().iter();
        pods.filter(|pod| pod["spec"]["containers"][0]["image"] == image)
            .map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Number of pods that managers created for a Deployment, by ReplicaSet.
    pub(crate) fn created(&mut self, name: &str) -> BTreeMap<String, usize> {
        let mut created = BTreeMap::new();
        for entry in self.pod_creations().filter(|entry| entry.code < 300) {
            let meta = &entry.body.as_ref().unwrap()["metadata"];
            if meta["labels"]["app"] == name {
                let owner = meta["ownerReferences"][0]["name"].as_str().unwrap();
                *created.entry(owner.to_owned()).or_default() += 1;
            }
        }
        created
    }

    /// Creations of pods by managers, refused ones among them.
    pub(crate) fn pod_creations(&mut self) -> impl Iterator<Item = &Entry> {
        let is_creation =
            |entry: &&Entry| (&*entry.verb, &*entry.resource, &*entry.subresource) == ("create", "pods", "");
        self.written().iter().filter(is_creation)
    }

    /// Writes of managers that were received so far.
    pub(crate) fn written(&mut self) -> &[Entry] {
        while let Some(entry) = self.trail.try_next() {
            if entry.is_write() {
                self.written.push(entry);
            }
        }
        &self.written
    }

    /// Maximum of the total replicas of a Deployment's ReplicaSets.
    pub(crate) fn max_replicas(&self, name: &str) -> u64 {
        self.kubelet.max_replicas(name)
    }

    /// Total number of pods of a Deployment, including deleted ones.
    pub(crate) fn total_pods(&self, name: &str) -> usize {
        self.kubelet.total_pods(name)
    }

    /// Writes a kubeconfig with a token.
    pub(crate) fn kubeconfig(&self, name: &str, server: &str, token: &str) -> PathBuf {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        let path = self.folder().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }
}

fn deployments() -> String {
    format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
}
