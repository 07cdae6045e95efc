//! A cluster: an API server, a kubelet, and what is asked of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use kcm_api::ApiError;
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::{Clock, RealClock};
use kcm_stories::{
    Entry, WriteLog,
    external::{Authorization, ControlPlane},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Manager, assets,
    embedded::{Embedded, TEST},
    kubelet::Kubelet,
    until,
};

/// An API server with everything around it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) api: ApiClient,
    server: Place,
    kubelet: Kubelet,
    trail: WriteLog,
    written: Vec<Entry>,
    folder: TempDir,
    _stop: DropGuard,
}

#[derive(Debug)]
enum Place {
    Embedded(Embedded),
    Real(Box<ControlPlane>),
}

const NAMESPACE: &str = "default";

/// As fast as upstream was when it was recorded, one of the two controllers' own sake, and nothing served.
const FLAGS: [&str; 4] = [
    "--controllers=deployment-controller,replicaset-controller",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
    "--secure-port=0",
];

impl Cluster {
    /// One on this project's API server.
    pub(crate) async fn embedded() -> Self {
        Self::embedded_with(&[]).await
    }

    /// One on this project's API server, which harms requests by these rules.
    pub(crate) async fn embedded_with(faults: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let (sender, trail) = WriteLog::new(Arc::clone(&clock));
        let server = Embedded::start(folder.path().join("data"), sender, faults).await;
        let access = Server::Master(server.url());
        Self::new(Place::Embedded(server), access, trail, folder, CancellationToken::new()).await
    }

    /// One on a real API server, where there is one.
    pub(crate) async fn real() -> Option<Self> {
        Self::real_with(Authorization::AlwaysAllow).await
    }

    /// One on a real API server, where there is one.
    pub(crate) async fn real_with(authorization: Authorization) -> Option<Self> {
        let assets = assets()?;
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let (sender, trail) = WriteLog::new(Arc::clone(&clock));
        let plane = ControlPlane::start(&assets, folder.path(), authorization).unwrap();
        let stop = CancellationToken::new();
        plane.follow(sender, stop.clone());
        let access = Server::Kubeconfig { path: plane.kubeconfig("admin"), master: None };
        Some(Self::new(Place::Real(Box::new(plane)), access, trail, folder, stop).await)
    }

    async fn new(
        server: Place,
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

    /// Waits until the server serves.
    async fn ready(&mut self) {
        let api = self.api.clone();
        match &mut self.server {
            Place::Real(plane) => plane.ready(&api, &RealClock::new()).await.unwrap(),
            Place::Embedded(_) => {
                until("the server is ready", async || self.get("/readyz").await.is_ok()).await;
            }
        }
    }

    /// Ends the server without asking.
    pub(crate) async fn kill_server(&mut self) {
        match &mut self.server {
            Place::Embedded(server) => server.kill().await,
            Place::Real(plane) => plane.kill_server().await.unwrap(),
        }
    }

    /// Starts the server again, on the same port and with the same objects.
    pub(crate) async fn start_server(&mut self) {
        match &mut self.server {
            Place::Embedded(server) => server.start_again().await,
            Place::Real(plane) => plane.start_server().unwrap(),
        }
        self.ready().await;
    }

    /// The real server's programs.
    pub(crate) fn control_plane(&self) -> &ControlPlane {
        match &self.server {
            Place::Real(plane) => plane,
            Place::Embedded(_) => panic!("there is no etcd"),
        }
    }

    /// Where tests may put files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts our manager, with upstream's flags on top of [`FLAGS`].
    pub(crate) async fn manager(&self, name: &str, flags: &[&str]) -> Manager {
        let access = match &self.server {
            Place::Embedded(server) => format!("--master={}", server.url()),
            Place::Real(plane) => format!("--kubeconfig={}", plane.kubeconfig("manager").display()),
        };
        self.start(name, env!("CARGO_BIN_EXE_kube-controller-manager").into(), &access, flags).await
    }

    /// Starts our manager with another kubeconfig.
    pub(crate) async fn manager_as(&self, name: &str, kubeconfig: &Path, flags: &[&str]) -> Manager {
        let access = format!("--kubeconfig={}", kubeconfig.display());
        self.start(name, env!("CARGO_BIN_EXE_kube-controller-manager").into(), &access, flags).await
    }

    /// Starts upstream's manager.
    pub(crate) async fn their_manager(&self, name: &str, program: &OsString, flags: &[&str]) -> Manager {
        let kubeconfig = self.control_plane().kubeconfig("manager");
        let of = |flag: &str| format!("--{flag}={}", kubeconfig.display());
        let delegated = [of("authentication-kubeconfig"), of("authorization-kubeconfig")];
        let mut flags = flags.to_vec();
        flags.extend(delegated.each_ref().map(String::as_str));
        self.start(name, program.clone(), &of("kubeconfig"), &flags).await
    }

    async fn start(&self, name: &str, program: OsString, access: &str, flags: &[&str]) -> Manager {
        let flags: Vec<_> =
            [access].iter().chain(&FLAGS).chain(flags).map(|flag| (*flag).to_owned()).collect();
        Manager::start(name, &program, &flags, self.folder.path()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        // Not every answer is JSON.
        self.api
            .send(&Request::get(path))
            .await
            .map(|answer| serde_json::from_slice(&answer).unwrap_or_default())
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        let answer = self.api.send(&Request::post(path, object.to_string())).await?;
        Ok(serde_json::from_slice(&answer).unwrap())
    }

    /// Makes a Deployment, one more or one fewer than whose `replicas` there may be meanwhile.
    pub(crate) async fn deploy(&self, name: &str, replicas: usize) {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
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

    /// Gives a Deployment another image.
    pub(crate) async fn roll(&self, name: &str, image: &str) {
        let body = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        let path = format!("{}/{name}", deployments());
        self.api.send(&Request::strategic_merge_patch(path, body.to_string())).await.unwrap();
    }

    /// The status of a Deployment, and whether it is all that it should be.
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

    /// Waits until so many pods of a Deployment are of its newest template.
    pub(crate) async fn until_updated(&self, name: &str, at_least: u64) {
        until(&format!("{at_least} pods of {name} are new"), async || {
            let (status, _) = self.progress(name).await;
            status["updatedReplicas"].as_u64().unwrap_or_default() >= at_least
        })
        .await;
    }

    /// Whether a Deployment is all that it should be.
    pub(crate) async fn is_rolled_out(&self, name: &str) -> bool {
        self.progress(name).await.1
    }

    /// Waits until a Deployment is all that it should be.
    pub(crate) async fn until_rolled_out(&self, name: &str) {
        until(&format!("{name} is rolled out"), async || self.is_rolled_out(name).await).await;
    }

    /// The UIDs of the pods of a Deployment that have an image.
    pub(crate) async fn pods(&self, name: &str, image: &str) -> BTreeSet<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{name}");
        let list = self.get(&path).await.unwrap();
        let pods = list["items"].as_array().unwrap().iter();
        pods.filter(|pod| pod["spec"]["containers"][0]["image"] == image)
            .map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect()
    }

    /// How often managers have created a pod for a Deployment, by the ReplicaSet that it is for.
    pub(crate) fn created(&mut self, name: &str) -> BTreeMap<String, usize> {
        let mut created = BTreeMap::new();
        for entry in self.written() {
            if let (true, "create", "pods", "") =
                (entry.code < 300, &*entry.verb, &*entry.resource, &*entry.subresource)
            {
                let meta = &entry.body.as_ref().unwrap()["metadata"];
                if meta["labels"]["app"] == name {
                    let owner = meta["ownerReferences"][0]["name"].as_str().unwrap();
                    *created.entry(owner.to_owned()).or_default() += 1;
                }
            }
        }
        created
    }

    /// What managers have written so far, as far as it is known.
    pub(crate) fn written(&mut self) -> &[Entry] {
        while let Some(entry) = self.trail.try_next() {
            if entry.is_write() {
                self.written.push(entry);
            }
        }
        &self.written
    }

    /// The most pods that the ReplicaSets of a Deployment wanted at once.
    pub(crate) fn most_wanted(&self, name: &str) -> u64 {
        self.kubelet.most_wanted(name)
    }

    /// How many pods of a Deployment there ever were.
    pub(crate) fn pods_ever(&self, name: &str) -> usize {
        self.kubelet.ever(name)
    }

    /// A kubeconfig for somebody with a token.
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
