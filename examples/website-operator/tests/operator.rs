//! The whole operator: with the embedded API server in simulated time, and with etcd and kube-apiserver if
//! `KUBEBUILDER_ASSETS` names a folder with them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

use std::{env, fs, io::Write as _, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Event, Namespace, Service},
        policy::v1::PodDisruptionBudget,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kcm::{
    client::{ApiResource, ClientOptions, RateLimit, Request, Server, UserAgent},
    clock::{RealClock, SeededRandom, SimulatedClock, Timestamp},
    manager::{Dependencies, InformerSync, LeaderElectionSettings, Settings},
    prelude::*,
};
use kcm_apiserver::{ApiServer, ApiServerConfig};
use kcm_stories::external::{Authorization, ControlPlane};
use kube_core::{CustomResourceExt, DynamicObject, ResourceExt, TypeMeta};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use website_operator::{
    controller::NAME,
    dns::FakeDns,
    operator,
    website::{Website, WebsiteSpec},
};

const LIMIT: RateLimit = RateLimit { qps: 1000.0, burst: 1000 };

fn options(clock: &Arc<dyn Clock>) -> ClientOptions {
    ClientOptions::new(UserAgent::new("website-operator", "v0.1.0", ""), Arc::clone(clock))
}

struct TestEnv {
    clients: ClientFactory,
    api: ApiClient,
    clock: Arc<dyn Clock>,
    dns: Arc<FakeDns>,
    websites: Api<Website>,
    deployments: Api<Deployment>,
}

impl TestEnv {
    /// Creates the CustomResourceDefinition and the namespace `shop`. The namespace `website-operator` must exist.
    async fn new(clients: ClientFactory, clock: Arc<dyn Clock>) -> Self {
        let api = clients.client("test", LIMIT);
        let definitions = api.api::<CustomResourceDefinition>();
        let name = definitions.create(&Website::crd()).await.unwrap().name_any();
        create_namespace(&api, "shop").await;
        let websites = api.api::<Website>().namespaced("shop");
        let deployments = api.api::<Deployment>().namespaced("shop");
        let env = Self { clients, api, clock, dns: Arc::default(), websites, deployments };
        env.eventually("the definition is established", async || {
            let definition = env.api.api::<CustomResourceDefinition>().get(&name).await.unwrap();
            let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
        env
    }

    fn operator(&self) -> Manager {
        self.operator_with(InformerSync::default())
    }

    fn operator_with(&self, informer_sync: InformerSync) -> Manager {
        let settings = Settings {
            leader_election: Some(LeaderElectionSettings::new("website-operator", NAME)),
            ..Settings::new(NAME)
        };
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let dependencies =
            Dependencies { informer_sync, ..Dependencies::new(&self.clients, &self.clock, &random) };
        let mut manager = Manager::new(settings, dependencies).unwrap();
        operator::add_to(&mut manager, Arc::clone(&self.dns) as _);
        manager
    }

    /// Waits until `reached`.
    async fn eventually(&self, what: &str, reached: impl AsyncFn() -> bool) {
        for _ in 0..600 {
            if reached().await {
                return;
            }
            self.clock.sleep(Duration::from_millis(50)).await;
        }
        panic!("not within 30 s: {what}");
    }

    async fn website(&self) -> Website {
        self.websites.get("web").await.unwrap()
    }

    /// Waits until the website satisfies `reached`.
    async fn reaches(&self, what: &str, reached: impl Fn(&Website) -> bool) {
        self.eventually(what, async || reached(&self.website().await)).await;
    }

    async fn replicas(&self) -> Option<i32> {
        self.deployments.find("web").await.unwrap()?.spec?.replicas
    }

    /// A website from its creation to its deletion.
    async fn lifecycle(&self) {
        let spec =
            WebsiteSpec { host: "shop.example.org".to_owned(), image: "nginx:1".to_owned(), replicas: 2 };
        let website = self.websites.create(&Website::new("web", spec)).await.unwrap();
        self.reaches("the website is observed", |website| is_observed(website, 1)).await;
        let deployment = self.deployments.get("web").await.unwrap();
        assert_eq!(deployment.spec.unwrap().replicas, Some(2));
        assert_eq!(deployment.metadata.owner_references.unwrap()[0].uid, website.uid().unwrap());
        let services = self.api.api::<Service>().namespaced("shop");
        assert!(services.find("web").await.unwrap().is_some());
        let budgets = self.api.api::<PodDisruptionBudget>().namespaced("shop");
        assert!(budgets.find("web").await.unwrap().is_some());
        assert_eq!(self.dns.hosts(), ["shop.example.org"]);
        assert!(!has(&self.website().await, "Available", "True"));

        // There are no nodes, so the test reports pods.
        let status = json!({"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}});
        self.deployments.patch_status("web", &Patch::merge(&status)).await.unwrap();
        self.reaches("the website is available", |website| has(website, "Available", "True")).await;
        assert_eq!(self.website().await.status.unwrap().ready_replicas, 2);

        let change = json!({"spec": {"replicas": 3, "host": "www.example.org"}});
        self.websites.patch("web", &Patch::merge(&change)).await.unwrap();
        self.reaches("the change is observed", |website| is_observed(website, 2)).await;
        assert_eq!(self.replicas().await, Some(3));
        assert_eq!(self.dns.hosts(), ["www.example.org"]);
        assert!(has(&self.website().await, "Available", "False"));

        let drift = Patch::merge(&json!({"spec": {"replicas": 1}}));
        self.deployments.patch("web", &drift).await.unwrap();
        self.eventually("the Deployment is restored", async || self.replicas().await == Some(3)).await;

        let rejected = Patch::merge(&json!({"spec": {"host": "shop.invalid"}}));
        self.websites.patch("web", &rejected).await.unwrap();
        self.reaches("the error is reported", |website| has(website, "HostPublished", "False")).await;
        let repaired = Patch::merge(&json!({"spec": {"host": "shop.example.org"}}));
        self.websites.patch("web", &repaired).await.unwrap();
        self.reaches("the host is published", |website| has(website, "HostPublished", "True")).await;

        self.websites.delete("web", &DeleteOptions::default()).await.unwrap();
        self.eventually("the website is deleted", async || {
            self.websites.find("web").await.unwrap().is_none()
        })
        .await;
        assert_eq!(self.dns.hosts(), [""; 0]);

        self.eventually("events are written", async || {
            let events =
                self.api.api::<Event>().namespaced("shop").list(&ListParams::default()).await.unwrap();
            let about = |reason: &str| {
                events.items.iter().any(|event| {
                    event.involved_object.name.as_deref() == Some("web")
                        && event.reason.as_deref() == Some(reason)
                })
            };
            about("Applied") && about("Published") && about("Withdrawn") && about("ProviderFailed")
        })
        .await;
    }
}

async fn create_namespace(api: &ApiClient, name: &str) {
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    api.api::<Namespace>().create(&namespace).await.unwrap();
}

/// Creates the objects in `deploy/rbac.yaml`.
async fn create_roles(api: &ApiClient) {
    for document in include_str!("../deploy/rbac.yaml").split("\n---\n") {
        let object: DynamicObject = serde_saphyr::from_str(document).unwrap();
        let TypeMeta { api_version, kind } = object.types.clone().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let resource = ApiResource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            plural: format!("{}s", kind.to_lowercase()).into(),
            kind: kind.into(),
            namespaced: object.metadata.namespace.is_some(),
        };
        api.api_for::<DynamicObject>(resource).create(&object).await.unwrap();
    }
}

/// `true` if the status is for `generation`.
fn is_observed(website: &Website, generation: i64) -> bool {
    website.status.as_ref().and_then(|status| status.observed_generation) == Some(generation)
}

fn has(website: &Website, type_: &str, status: &str) -> bool {
    let conditions = website.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == type_ && condition.status == status)
}

/// API server in this process, with simulated time.
async fn embedded() -> (Arc<ApiServer>, TestEnv) {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start));
    let server = ApiServer::new(ApiServerConfig {
        clock: Arc::clone(&clock),
        random: Arc::new(SeededRandom::new(1)),
        ..ApiServerConfig::default()
    });
    let clients = ClientFactory::in_process(server.service(), options(&clock));
    create_namespace(&clients.client("test", LIMIT), "website-operator").await;
    let env = TestEnv::new(clients, clock).await;
    (server, env)
}

#[tokio::test(start_paused = true)]
async fn lifecycle_on_the_embedded_server() {
    let (_server, env) = embedded().await;
    let stop = CancellationToken::new();
    let operator = tokio::spawn(env.operator().run(stop.clone()));
    env.lifecycle().await;
    stop.cancel();
    operator.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn settled_website_is_not_written() {
    let (server, env) = embedded().await;
    let stop = CancellationToken::new();
    let operator = tokio::spawn(env.operator().run(stop.clone()));
    let spec = WebsiteSpec { host: "shop.example.org".to_owned(), image: "nginx:1".to_owned(), replicas: 0 };
    env.websites.create(&Website::new("web", spec)).await.unwrap();
    env.reaches("the website is observed", |website| is_observed(website, 1)).await;
    env.clock.sleep(Duration::from_secs(10)).await;
    let (before, revision) = (env.website().await, server.revision());
    env.clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!(env.website().await, before);
    // Only the Lease is renewed, every 2 s.
    assert!(server.revision() - revision <= 1805, "{} writes in an hour", server.revision() - revision);
    stop.cancel();
    operator.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn standby_takes_over() {
    let (_server, env) = embedded().await;
    let (stop, stop_standby) = (CancellationToken::new(), CancellationToken::new());
    let leader = tokio::spawn(env.operator().run(stop.clone()));
    env.clock.sleep(Duration::from_secs(1)).await;
    let caches = InformerSync::default();
    let standby = tokio::spawn(env.operator_with(caches.clone()).run(stop_standby.clone()));
    env.eventually("the standby has caches", async || caches.check().is_ok()).await;
    stop.cancel();
    leader.await.unwrap().unwrap();
    let spec = WebsiteSpec { host: "shop.example.org".to_owned(), image: "nginx:1".to_owned(), replicas: 1 };
    env.websites.create(&Website::new("web", spec)).await.unwrap();
    env.reaches("the standby reconciles", |website| is_observed(website, 1)).await;
    stop_standby.cancel();
    standby.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lifecycle_on_kube_apiserver() {
    let Some(assets) = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
        // The test harness captures the output of `eprintln!`.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: website-operator with kube-apiserver (no KUBEBUILDER_ASSETS)"
        );
        return;
    };
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let folder = tempfile::tempdir().unwrap();
    let mut plane = ControlPlane::start(&assets, folder.path(), Authorization::Rbac).unwrap();
    let admin = connect(plane.kubeconfig("admin"), &clock).await;
    plane.ready(&admin.client("test", LIMIT), &*clock).await.unwrap();

    // The permissions of the operator are those of its manifests.
    let mut account: Value = serde_json::from_slice(&fs::read(plane.kubeconfig("admin")).unwrap()).unwrap();
    account["users"][0]["user"]["as"] = "system:serviceaccount:website-operator:website-operator".into();
    let kubeconfig = folder.path().join("operator.kubeconfig");
    fs::write(&kubeconfig, account.to_string()).unwrap();
    create_roles(&admin.client("test", LIMIT)).await;
    let mut env = TestEnv::new(admin, Arc::clone(&clock)).await;
    env.clients = connect(kubeconfig.clone(), &clock).await;
    let stop = CancellationToken::new();
    let operator = tokio::spawn(env.operator().run(stop.clone()));
    env.lifecycle().await;
    stop.cancel();
    operator.await.unwrap().unwrap();

    // The program, with a secure port.
    let address = kcm_testkit::unused_address();
    let _program = Command::new(env!("CARGO_BIN_EXE_website-operator"))
        .env("KUBECONFIG", &kubeconfig)
        .env("PORT", address.port().to_string())
        .env("POD_NAMESPACE", "website-operator")
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    account["clusters"][0]["cluster"]["server"] = format!("https://{address}").into();
    let mut user = |name: &str, credentials: Value| {
        account["users"][0]["user"] = credentials;
        let kubeconfig = folder.path().join(name);
        fs::write(&kubeconfig, account.to_string()).unwrap();
        kubeconfig
    };
    let admin =
        connect(user("port-admin", json!({"token": "admintoken"})), &clock).await.client("test", LIMIT);
    let anonymous = connect(user("port-anonymous", json!({})), &clock).await.client("test", LIMIT);
    env.eventually("the program is ready", async || admin.send(&Request::get("/readyz")).await.is_ok()).await;
    let metrics = admin.send(&Request::get("/metrics")).await.unwrap();
    assert!(String::from_utf8_lossy(&metrics).contains("workqueue_depth{name=\"website\"} 0"));
    assert!(anonymous.send(&Request::get("/healthz")).await.is_ok());
    let error = anonymous.send(&Request::get("/metrics")).await.unwrap_err();
    assert!(error.to_string().contains("forbidden"), "{error}");
}

async fn connect(kubeconfig: PathBuf, clock: &Arc<dyn Clock>) -> ClientFactory {
    let server = Server::Kubeconfig { path: kubeconfig, master: None };
    ClientFactory::connect(server, options(clock)).await.unwrap()
}
