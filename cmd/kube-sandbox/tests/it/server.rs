//! The program as a server: durability after SIGKILL, convergence under faults, authentication.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helper functions of tests may panic"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Request;
use kube_client::{
    Client, Config, Error,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::probe::ReadinessProbe;

/// Running kube-sandbox. Killed on drop; must answer `/readyz` until then.
struct Sandbox {
    /// `None` for a server with TLS.
    probe: Option<ReadinessProbe>,
    process: Child,
    url: String,
    folder: TempDir,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.probe = None;
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-sandbox"));
    command.args(["--listen=127.0.0.1:0", "--kubeconfig"]).arg(folder.join("kubeconfig"));
    command.args(flags).stdout(Stdio::piped());
    command
}

impl Sandbox {
    fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = command(folder.path(), flags).spawn().unwrap();
        // The first line is printed once the server listens.
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next().expect("the process ended without output").unwrap();
        let url = first.split([' ', ';']).find(|word| word.starts_with("http")).unwrap().to_owned();
        // Drains the output, because a full pipe would block the process.
        std::thread::spawn(move || lines.for_each(drop));
        let probe = url.starts_with("http://").then(|| ReadinessProbe::start(&url));
        Self { probe, process, url, folder }
    }

    /// Kills the program with SIGKILL.
    fn kill(&mut self) {
        self.probe = None;
        self.process.kill().unwrap();
    }

    async fn config(&self) -> Config {
        let file = Kubeconfig::read_from(self.folder.path().join("kubeconfig")).unwrap();
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()
    }

    async fn client(&self) -> Client {
        Client::try_from(self.config().await).unwrap()
    }
}

/// Runs the program with invalid flags, and checks that it fails.
fn refused(flags: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path(), flags).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    output
}

async fn get(client: &Client, path: &str) -> Result<Value, Error> {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await
}

async fn post(client: &Client, path: &str, body: &Value) -> Result<Value, Error> {
    let request = Request::post(path).header("content-type", "application/json");
    client.request(request.body(body.to_string().into_bytes()).unwrap()).await
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// UID of each object, by name.
fn uids(list: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (text(&item["metadata"]["name"]), text(&item["metadata"]["uid"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_sandbox_keeps_all_acknowledged_and_listed_objects() {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 3;
    const ENOUGH: usize = 150;
    let data = tempfile::tempdir().unwrap();
    let flags = ["--without-controllers", "--nodes=0", "--data-dir", data.path().to_str().unwrap()];
    // UIDs of the objects that must exist, by name, and the newest resource version returned.
    let known: Arc<Mutex<(BTreeMap<String, String>, u64)>> = Arc::default();
    for round in 0..ROUNDS {
        let mut sandbox = Sandbox::start(&flags);
        let client = sandbox.client().await;
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            let (client, known, acknowledged) =
                (client.clone(), Arc::clone(&known), Arc::clone(&acknowledged));
            tasks.spawn(async move {
                for number in 0.. {
                    let name = format!("map-{round}-{writer}-{number}");
                    let body = json!({"metadata": {"name": name}, "data": {"round": round.to_string()}});
                    let Ok(created) = post(&client, CONFIG_MAPS, &body).await else { return };
                    let uid = created["metadata"]["uid"].as_str().unwrap().to_owned();
                    let mut known = known.lock().unwrap();
                    known.0.insert(name, uid);
                    known.1 = known.1.max(revision(&created));
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let (reader, seen) = (client.clone(), Arc::clone(&known));
        tasks.spawn(async move {
            while let Ok(list) = get(&reader, CONFIG_MAPS).await {
                let mut seen = seen.lock().unwrap();
                seen.1 = seen.1.max(revision(&list));
                seen.0.extend(uids(&list));
            }
        });
        while acknowledged.load(Ordering::SeqCst) < ENOUGH {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // SIGKILL with writes in flight.
        sandbox.kill();
        tasks.join_all().await;
        sandbox.process.wait().unwrap();

        let sandbox = Sandbox::start(&flags);
        let client = sandbox.client().await;
        let list = get(&client, CONFIG_MAPS).await.unwrap();
        let there = uids(&list);
        let known = known.lock().unwrap().clone();
        let lost: Vec<_> = known.0.iter().filter(|(name, uid)| there.get(*name) != Some(uid)).collect();
        assert!(lost.is_empty(), "lost in round {round}: {lost:?}");
        assert!(known.0.len() >= ENOUGH * (round + 1));
        assert!(revision(&list) >= known.1, "{} after {}", revision(&list), known.1);
        let name = format!("after-{round}");
        let next = post(&client, CONFIG_MAPS, &json!({"metadata": {"name": name}})).await.unwrap();
        assert!(revision(&next) > known.1);
        let watch = format!("{CONFIG_MAPS}?watch=true&resourceVersion=1");
        let gone = client.request_text(Request::get(watch).body(Vec::new()).unwrap()).await.unwrap();
        assert!(gone.contains("\"code\":410"), "{gone}");
    }
}

#[test]
fn damaged_data_file_is_reported_with_its_path() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("objects.redb");
    std::fs::write(&file, "not a database".repeat(1000)).unwrap();
    let output = refused(&["--data-dir", data.path().to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(&format!("error: {} is damaged", file.display())), "{stderr}");
}

#[test]
fn invalid_flags_are_rejected() {
    for flags in [
        &["--listen=0.0.0.0:0"][..],
        &["--listen=0.0.0.0:0", "--tls"],
        &["--fault", "POST /api 418"],
        &["--token-auth-file=/nowhere"],
        &["--audit-policy-file=/dev/null"],
    ] {
        refused(flags);
    }
}

/// Fault rules. The test checks in the audit log that each status code occurred.
const FAULTS: [&str; 8] = [
    "POST /api/v1/namespaces/*/pods 429 retry-after=1 times=2 agent=kube-controller-manager*",
    "POST /api/v1/namespaces/*/pods after:500 skip=3 every=3 times=3 agent=kube-controller-manager*",
    "PUT /apis/apps/v1/namespaces/*/replicasets/** 409 every=3 times=5 agent=kube-controller-manager*",
    "PUT /apis/apps/v1/namespaces/*/deployments/*/status 503 every=4 times=5 agent=kube-controller-manager*",
    "POST /apis/apps/v1/namespaces/*/replicasets after:500 times=1 agent=kube-controller-manager*",
    "DELETE /api/v1/namespaces/*/pods/* after:500 every=2 times=3 agent=kube-controller-manager*",
    "WATCH /** cut events=7 times=12 agent=kube-controller-manager*",
    "WATCH /** 410 skip=8 every=3 times=4 agent=kube-controller-manager*",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_converge_under_faults() {
    let logs = tempfile::tempdir().unwrap();
    let log = logs.path().join("audit.log");
    let mut flags = vec!["--pod-ready-delay=20ms", "--pod-stop-delay=20ms"];
    flags.extend(["--audit-log-path", log.to_str().unwrap()]);
    flags.extend(FAULTS.iter().flat_map(|rule| ["--fault", rule]));
    let sandbox = Sandbox::start(&flags);
    let client = sandbox.client().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let web = format!("{deployments}/web");
    let template = |image: &str| {
        json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "nginx", "image": image}]},
        })
    };
    let selector = json!({"matchLabels": {"app": "web"}});
    let created = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 6, "selector": selector, "template": template("nginx:1")},
    });
    post(&client, deployments, &created).await.unwrap();
    settled(&client, &web, 6, "nginx:1").await;
    for (replicas, image) in [(6, "nginx:2"), (9, "nginx:3"), (2, "nginx:3")] {
        let patch = json!({"spec": {"replicas": replicas, "template": template(image)}});
        let request = Request::patch(&web).header("content-type", "application/merge-patch+json");
        let _: Value = client.request(request.body(patch.to_string().into_bytes()).unwrap()).await.unwrap();
        settled(&client, &web, replicas, image).await;
    }

    let log = std::fs::read_to_string(log).unwrap();
    let codes: BTreeSet<u64> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| {
            event["userAgent"].as_str().unwrap_or_default().starts_with("kube-controller-manager")
        })
        .filter_map(|event| event["responseStatus"]["code"].as_u64())
        .collect();
    assert!(codes.is_superset(&[409, 429, 500, 503].into()), "missing status codes: {codes:?}");
}

/// Upstream's e2e test "should not be blocked by dependency circle", with ConfigMaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycle_of_owners_is_deleted() {
    let sandbox = Sandbox::start(&["--nodes=0"]);
    let client = sandbox.client().await;
    let (names, mut uids) = (["a", "b", "c"], Vec::new());
    for name in names {
        let created = post(&client, CONFIG_MAPS, &json!({"metadata": {"name": name}})).await.unwrap();
        uids.push(created["metadata"]["uid"].clone());
    }
    let path = |name: &str| format!("{CONFIG_MAPS}/{name}");
    for (at, name) in names.into_iter().enumerate() {
        let owner = (at + 2) % 3;
        let patch = json!({"metadata": {"ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": names[owner], "uid": uids[owner],
            "controller": true, "blockOwnerDeletion": true,
        }]}});
        let request = Request::patch(path(name)).header("content-type", "application/merge-patch+json");
        let _: Value = client.request(request.body(patch.to_string().into_bytes()).unwrap()).await.unwrap();
    }
    let foreground = format!("{}?propagationPolicy=Foreground", path("a"));
    let _: Value = client.request(Request::delete(foreground).body(Vec::new()).unwrap()).await.unwrap();
    // The readiness probe fails the test if the server hangs.
    for name in names {
        while get(&client, &path(name)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until the Deployment is complete and no other pods exist.
async fn settled(client: &Client, web: &str, replicas: usize, image: &str) {
    let mut last = Value::Null;
    for _ in 0..600 {
        let deployment = get(client, web).await.unwrap();
        let pods = get(client, "/api/v1/namespaces/default/pods").await.unwrap();
        let pods = pods["items"].as_array().unwrap();
        let fitting = pods.iter().filter(|pod| {
            pod["spec"]["containers"][0]["image"] == image && pod["metadata"]["deletionTimestamp"].is_null()
        });
        let status = &deployment["status"];
        let observed = status["observedGeneration"] == deployment["metadata"]["generation"];
        let counts = ["replicas", "updatedReplicas", "availableReplicas"];
        if observed
            && counts.iter().all(|count| status[*count] == replicas)
            && fitting.count() == replicas
            && pods.len() == replicas
        {
            return;
        }
        last = json!({"pods": pods.len(), "status": status});
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not settled on {replicas} of {image}: {last}");
}

#[tokio::test]
async fn sandbox_with_tls_and_tokens_knows_who_asks() {
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("tokens.csv"), "secret,alice,u1,\"dev,ops\"\nother,manager,u2\n").unwrap();
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Request\n  users: [alice]\n  verbs: [create]\n";
    std::fs::write(file("policy.yaml"), policy).unwrap();
    let sandbox = Sandbox::start(&[
        "--tls",
        "--nodes=0",
        &format!("--token-auth-file={}", file("tokens.csv")),
        &format!("--audit-log-path={}", file("audit.log")),
        &format!("--audit-policy-file={}", file("policy.yaml")),
    ]);
    assert!(sandbox.url.starts_with("https://"), "{}", sandbox.url);
    let client = sandbox.client().await;
    post(&client, CONFIG_MAPS, &json!({"metadata": {"name": "one"}})).await.unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let review = post(&client, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.unwrap();
    let groups = json!(["dev", "ops", "system:authenticated"]);
    assert_eq!(review["status"]["userInfo"], json!({"username": "alice", "uid": "u1", "groups": groups}));
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "other"}});
    let review = post(&client, "/apis/authentication.k8s.io/v1/tokenreviews", &review).await.unwrap();
    assert_eq!(review["status"]["user"]["username"], "manager");

    for token in [None, Some("wrong")] {
        let mut config = sandbox.config().await;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        match get(&Client::try_from(config).unwrap(), CONFIG_MAPS).await {
            Err(Error::Api(status)) => {
                assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
            }
            other => panic!("{token:?}: {other:?}"),
        }
    }
    let log = std::fs::read_to_string(file("audit.log")).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let about: Vec<&str> =
        events.iter().filter_map(|event| event["objectRef"]["resource"].as_str()).collect();
    assert_eq!(about, ["configmaps", "selfsubjectreviews", "tokenreviews"]);
    assert_eq!(events[0]["user"]["username"], "alice");
    assert_eq!(events[0]["requestObject"]["metadata"]["name"], "one");
}
