//! The whole operator: with the embedded API server in simulated time, and with etcd and kube-apiserver if
//! `KUBEBUILDER_ASSETS` names a folder with them.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{env, fs, io::Write as _, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Service},
    policy::v1::PodDisruptionBudget,
};
use kcm::{
    client::{ApiResource, ClientOptions, RateLimit, Request, Server, UserAgent},
    clock::RealClock,
    manager::{Dependencies, InformerSync, LeaderElectionSettings, Settings},
    prelude::*,
};
use kcm_stories::external::{Authorization, ControlPlane};
use kcm_testing::{TestEnv, TestEnvBuilder};
use kube_core::{DynamicObject, ResourceExt, TypeMeta};
use serde_json::{Value, json};
use tokio::process::Command;
use website_operator::{
    controller::NAME,
    dns::FakeDns,
    operator,
    website::{Website, WebsiteSpec},
};

const LIMIT: RateLimit = RateLimit { qps: 1000.0, burst: 1000 };

fn website(replicas: i32) -> Website {
    let (host, image) = ("shop.example.org".to_owned(), "nginx:1".to_owned());
    Website::new("web", WebsiteSpec { host, image, replicas })
}

#[tokio::test(start_paused = true)]
async fn website_has_a_deployment() {
    let env = TestEnv::builder().crd::<Website>().start().await;
    let mut manager = env.manager("website-operator");
    operator::add_to(&mut manager, Arc::new(FakeDns::default()));
    let _operator = env.run(manager);
    env.api::<Website>().create(&website(2)).await.unwrap();
    let deployments = env.api::<Deployment>();
    env.eventually("the Deployment exists", async || deployments.find("web").await.unwrap().is_some()).await;
}

/// Environment of an operator that elects a leader, with websites in the namespace `shop`.
struct Shop {
    env: TestEnv,
    dns: Arc<FakeDns>,
    websites: Api<Website>,
    deployments: Api<Deployment>,
}

impl Shop {
    async fn new(builder: TestEnvBuilder) -> Self {
        let env = builder.crd::<Website>().namespace("shop").namespace("website-operator").start().await;
        let (websites, deployments) = (env.api(), env.api());
        Self { env, dns: Arc::default(), websites, deployments }
    }

    fn operator(&self, dependencies: Dependencies) -> Manager {
        let settings = Settings {
            leader_election: Some(LeaderElectionSettings::new("website-operator", NAME)),
            ..Settings::new(NAME)
        };
        let mut manager = Manager::new(settings, dependencies).unwrap();
        operator::add_to(&mut manager, Arc::clone(&self.dns) as _);
        manager
    }

    async fn website(&self) -> Website {
        self.websites.get("web").await.unwrap()
    }

    /// Waits until the website satisfies `reached`.
    async fn reaches(&self, what: &str, reached: impl Fn(&Website) -> bool) {
        self.env.eventually(what, async || reached(&self.website().await)).await;
    }

    async fn replicas(&self) -> Option<i32> {
        self.deployments.find("web").await.unwrap()?.spec?.replicas
    }

    /// A website from its creation to its deletion.
    async fn lifecycle(&self) {
        let website = self.websites.create(&website(2)).await.unwrap();
        self.reaches("the website is observed", |website| is_observed(website, 1)).await;
        let deployment = self.deployments.get("web").await.unwrap();
        assert_eq!(deployment.spec.unwrap().replicas, Some(2));
        assert_eq!(deployment.metadata.owner_references.unwrap()[0].uid, website.uid().unwrap());
        let services = self.env.api::<Service>();
        assert!(services.find("web").await.unwrap().is_some());
        let budgets = self.env.api::<PodDisruptionBudget>();
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
        self.env.eventually("the Deployment is restored", async || self.replicas().await == Some(3)).await;

        let rejected = Patch::merge(&json!({"spec": {"host": "shop.invalid"}}));
        self.websites.patch("web", &rejected).await.unwrap();
        self.reaches("the error is reported", |website| has(website, "HostPublished", "False")).await;
        let repaired = Patch::merge(&json!({"spec": {"host": "shop.example.org"}}));
        self.websites.patch("web", &repaired).await.unwrap();
        self.reaches("the host is published", |website| has(website, "HostPublished", "True")).await;

        self.websites.delete("web", &DeleteOptions::default()).await.unwrap();
        self.env
            .eventually("the website is deleted", async || self.websites.find("web").await.unwrap().is_none())
            .await;
        assert_eq!(self.dns.hosts(), [""; 0]);

        self.env
            .eventually("events are written", async || {
                let events = self.env.api::<Event>().list(&ListParams::default()).await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn lifecycle_on_the_embedded_server() {
    let shop = Shop::new(TestEnv::builder()).await;
    let operator = shop.env.run(shop.operator(shop.env.dependencies()));
    shop.lifecycle().await;
    operator.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn settled_website_is_not_written() {
    let shop = Shop::new(TestEnv::builder()).await;
    let operator = shop.env.run(shop.operator(shop.env.dependencies()));
    shop.websites.create(&website(0)).await.unwrap();
    shop.reaches("the website is observed", |website| is_observed(website, 1)).await;
    shop.env.advance(Duration::from_secs(10)).await;
    let (before, revision) = (shop.website().await, shop.env.server().revision());
    shop.env.advance(Duration::from_secs(3600)).await;
    assert_eq!(shop.website().await, before);
    // Only the Lease is renewed, every 2 s.
    let writes = shop.env.server().revision() - revision;
    assert!(writes <= 1805, "{writes} writes in an hour");
    operator.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn standby_takes_over() {
    let shop = Shop::new(TestEnv::builder()).await;
    let leader = shop.env.run(shop.operator(shop.env.dependencies()));
    shop.env.advance(Duration::from_secs(1)).await;
    let caches = InformerSync::default();
    let dependencies = Dependencies { informer_sync: caches.clone(), ..shop.env.dependencies() };
    let standby = shop.env.run(shop.operator(dependencies));
    shop.env.eventually("the standby has caches", async || caches.check().is_ok()).await;
    leader.stop().await.unwrap();
    shop.websites.create(&website(1)).await.unwrap();
    shop.reaches("the standby reconciles", |website| is_observed(website, 1)).await;
    standby.stop().await.unwrap();
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
    let shop = Shop::new(TestEnv::builder().cluster(admin, Arc::clone(&clock))).await;
    let clients = connect(kubeconfig.clone(), &clock).await;
    let operator = shop.env.run(shop.operator(Dependencies { clients, ..shop.env.dependencies() }));
    shop.lifecycle().await;
    operator.stop().await.unwrap();

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
    let ready = async || admin.send(&Request::get("/readyz")).await.is_ok();
    shop.env.eventually("the program is ready", ready).await;
    let metrics = admin.send(&Request::get("/metrics")).await.unwrap();
    assert!(String::from_utf8_lossy(&metrics).contains("workqueue_depth{name=\"website\"} 0"));
    assert!(anonymous.send(&Request::get("/healthz")).await.is_ok());
    let error = anonymous.send(&Request::get("/metrics")).await.unwrap_err();
    assert!(error.to_string().contains("forbidden"), "{error}");
}

async fn connect(kubeconfig: PathBuf, clock: &Arc<dyn Clock>) -> ClientFactory {
    let server = Server::Kubeconfig { path: kubeconfig, master: None };
    let options = ClientOptions::new(UserAgent::new(NAME, "v0.1.0", ""), Arc::clone(clock));
    ClientFactory::connect(server, options).await.unwrap()
}
