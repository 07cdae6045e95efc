//! `kubectl rollouts preview` with the embedded API server.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

use std::{
    env,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use kcm_apiserver::{
    ApiServer, ApiServerConfig, AuditEvent, Faults, ListOptions, Patch, Resource, Subresource, WriteOptions,
};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::ManagerConfig;
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use kcm_sandbox_server::HttpServer;
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_util::sync::CancellationToken;

/// User agent of the program.
const AGENT: &str = "kubectl-rollouts";

/// Refuses all writes of the program, as for a user who may only read.
const READ_ONLY: [&str; 4] = [
    "POST /** 403 agent=kubectl-rollouts*",
    "PUT /** 403 agent=kubectl-rollouts*",
    "PATCH /** 403 agent=kubectl-rollouts*",
    "DELETE /** 403 agent=kubectl-rollouts*",
];

type Requests = Arc<Mutex<Vec<AuditEvent>>>;

struct Cluster {
    server: Arc<ApiServer>,
    url: String,
    /// Requests of the program.
    requests: Requests,
    _runtime: Runtime,
}

impl Cluster {
    /// Cluster with a settled Deployment `web`. Its controllers and nodes have stopped, so that only the program writes.
    fn start(faults: &[&str]) -> Self {
        let runtime = Runtime::new().unwrap();
        let _entered = runtime.enter();
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let requests = Requests::default();
        let sink = Arc::clone(&requests);
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            audit: Some(Arc::new(move |event: &AuditEvent| {
                if event.user_agent.starts_with(AGENT) {
                    sink.lock().unwrap().push(event.clone());
                }
            })),
            faults: Faults::new(faults.iter().map(|fault| fault.parse().unwrap())),
            ..ApiServerConfig::default()
        });
        let sandbox = Sandbox::new(SandboxConfig {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            nodes: 2,
            kubelet: KubeletConfig { pod_ready_delay: Duration::ZERO, pod_stop_delay: Duration::ZERO },
        })
        .unwrap();
        let stop = CancellationToken::new();
        let nodes = runtime.spawn({
            let stop = stop.clone();
            async move { sandbox.run(stop).await }
        });
        let controllers = kcm_controller_manager::start_in_process(
            &ManagerConfig::default(),
            server.service(),
            &clock,
            &random,
        );
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(HttpServer::new(Arc::clone(&server)).serve(listener, CancellationToken::new()));
        let manifest = manifest("web:1");
        server.create(Resource::DEPLOYMENTS, "default", manifest, &WriteOptions::default()).unwrap();
        wait_until_complete(&server);
        stop.cancel();
        runtime.block_on(async {
            controllers.stop().await.unwrap();
            nodes.await.unwrap();
        });
        Self { server, url, requests, _runtime: runtime }
    }

    /// Runs the program with `arguments` and this standard input.
    fn run(&self, arguments: &str, input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-rollouts"))
            .args(arguments.split(' '))
            .args(["--server", &self.url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn preview(&self, arguments: &str) -> Value {
        let output = self.run(&format!("preview {arguments} -o json"), "");
        let error = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"))
    }

    /// Writes of the program that are not a dry run, or that took effect.
    fn writes(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let writes = requests.iter().filter(|event| !matches!(event.verb, "get" | "list" | "watch"));
        let real = writes.filter(|event| {
            !event.uri.contains("dryRun=All") || event.revision_before != event.revision_after
        });
        real.map(|event| format!("{} {}", event.verb, event.uri)).collect()
    }

    /// Number of dry runs that the API server has performed.
    fn dry_runs(&self) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|event| event.uri.contains("dryRun=All") && event.code < 300).count()
    }
}

fn wait_until_complete(server: &ApiServer) {
    let deadline = RealClock::new();
    loop {
        let web = server.get(Resource::DEPLOYMENTS, "default", "web").unwrap();
        if web.value()["status"]["availableReplicas"] == 4 {
            return;
        }
        assert!(deadline.monotonic() < Duration::from_secs(60), "{}", web.value());
        std::thread::yield_now();
    }
}

fn manifest(image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": {
            "replicas": 4,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "app", "image": image }] },
            },
        },
    })
}

#[test]
fn reads_only() {
    let cluster = Cluster::start(&READ_ONLY);
    let revision = cluster.server.revision();
    for change in ["--image=web:2", "--replicas=9", "--restart"] {
        let preview = cluster.preview(&format!("web {change} --stop-after 1s"));
        assert_eq!(preview["outcome"]["end"], "complete", "{change}: {preview}");
        assert_eq!(preview["dryRun"]["performed"], false, "{change}");
        assert!(preview["dryRun"]["reason"].as_str().unwrap().contains("Forbidden"), "{}", preview["dryRun"]);
    }
    assert_eq!((cluster.writes(), cluster.dry_runs()), (Vec::<String>::new(), 0));
    assert_eq!(cluster.server.revision(), revision);
}

#[test]
fn sends_dry_runs_and_writes_nothing() {
    let cluster = Cluster::start(&[]);
    let revision = cluster.server.revision();
    let preview = cluster.preview("web --image=app=web:2 --ready-after 20s --stop-after 5s");
    assert_eq!((&preview["kind"], &preview["effect"]), (&json!("RolloutPreview"), &json!("newReplicaSet")));
    assert_eq!(preview["dryRun"], json!({ "performed": true, "reason": null, "warnings": [] }));
    assert_eq!(preview["timings"]["readyAfterSeconds"], 20.0);
    assert_eq!(preview["outcome"]["podsCreated"], 4);
    assert_eq!(cluster.dry_runs(), 1);
    cluster.preview("web --restart --dry-run=none");
    assert_eq!(cluster.dry_runs(), 1);
    assert_eq!((cluster.writes(), cluster.server.revision()), (Vec::<String>::new(), revision));
}

#[test]
fn manifest_from_standard_input() {
    let cluster = Cluster::start(&[]);
    let output = cluster.run("preview -f -", &manifest("web:3").to_string());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Deployment default/web starts a rollout\n  creates ReplicaSet web-"), "{text}");
    assert!(text.contains("  spec.containers[app].image: \"web:1\" -> \"web:3\"\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(output.status.code(), Some(0));
    let invalid = manifest("web:3").to_string().replace("\"replicas\":4", "\"replicas\":-1");
    let output = cluster.run("preview -f -", &invalid);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("error: the API server rejects the change: "), "{error}");
}

#[test]
fn manifest_of_a_named_deployment() {
    let cluster = Cluster::start(&[]);
    for name in ["web", "deployment/web", "deploy/web"] {
        let output = cluster.run(&format!("preview {name} -f -"), &manifest("web:3").to_string());
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
    }
    let error = error_of(&cluster.run("preview deploy/api -f -", &manifest("web:3").to_string()));
    assert_eq!(error, "error: failed to read -: no Deployment \"api\" in the file\n");
    let error = error_of(&cluster.run("preview sts/web --restart", ""));
    assert_eq!(error, "error: \"sts/web\" is not a Deployment: write NAME or deployment/NAME\n");
}

/// Lists of pods are read in pages. Pods of later pages count: those of the Deployment, and others for quotas and nodes.
#[test]
fn lists_are_read_in_pages() {
    let cluster = Cluster::start(&READ_ONLY);
    let template = cluster.server.list(Resource::PODS, Some("default"), &ListOptions::default()).unwrap();
    for number in 0..600 {
        let mut pod = template.items[0].value().clone();
        pod["metadata"] = json!({ "name": format!("batch-{number:03}"), "namespace": "default" });
        pod["metadata"]["uid"] = json!(format!("batch-{number}"));
        cluster.server.restore(Resource::PODS, pod).unwrap();
    }
    // Room for one more pod than the 4 and 600 that exist.
    let quota = json!({ "metadata": { "name": "large" }, "spec": { "hard": { "pods": "605" } } });
    cluster.server.create(Resource::RESOURCE_QUOTAS, "default", quota, &WriteOptions::default()).unwrap();
    cluster.requests.lock().unwrap().clear();
    let preview = cluster.preview("web --replicas 6 --ready-after 5s");
    let outcome = &preview["outcome"];
    assert_eq!((&outcome["availableBefore"], &outcome["podsCreated"]), (&json!(4), &json!(1)), "{preview}");
    let requests = cluster.requests.lock().unwrap();
    let of_pods: Vec<&str> =
        requests.iter().filter(|event| event.verb == "list").map(|event| &*event.uri).collect();
    assert!(of_pods.iter().all(|uri| uri.contains("limit=500")), "{of_pods:#?}");
    let further = of_pods.iter().filter(|uri| uri.contains("/pods?") && uri.contains("continue="));
    // Of the namespace, and of all.
    assert_eq!(further.count(), 2, "{of_pods:#?}");
}

/// A webhook was repaired, and a policy refuses the pods since then. The condition has the message of the webhook.
#[test]
fn newest_refusal_is_that_of_an_event() {
    let cluster = Cluster::start(&READ_ONLY);
    let set = cluster.server.list(Resource::REPLICA_SETS, Some("default"), &ListOptions::default()).unwrap();
    let set = &set.items[0];
    let failure = json!({ "status": { "replicas": 0, "fullyLabeledReplicas": 0, "readyReplicas": 0, "availableReplicas": 0, "conditions": [{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "failed calling webhook",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    let (name, failure, options) = (set.name(), Patch::merge(failure), WriteOptions::default());
    let sets = Resource::REPLICA_SETS;
    cluster.server.patch(sets, "default", name, Some(Subresource::Status), failure, &options).unwrap();
    let event = json!({
        "metadata": { "name": "web.1", "namespace": "default", "uid": "event" }, "type": "Warning",
        "reason": "FailedCreate", "message": "Error creating: \u{1b}[31mpolicy\u{9b}2J\u{7f}\u{202e}",
        "lastTimestamp": "2026-01-01T00:05:00Z",
        "involvedObject": {
            "kind": "ReplicaSet", "namespace": "default", "name": name, "uid": set.uid(),
        },
    });
    cluster.server.restore(Resource::EVENTS, event).unwrap();
    // No output has control characters: messages are the text of others.
    for format in ["", " -o json", " -o yaml", " -o svg"] {
        let output = cluster.run(&format!("preview web --restart{format}"), "");
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
        assert!(format.contains("svg") || text.contains("policy"), "{text}");
        let documents: Option<Value> = match format {
            " -o json" => Some(serde_json::from_str(&text).unwrap()),
            " -o yaml" => Some(serde_saphyr::from_str(&text).unwrap()),
            _ => None,
        };
        if let Some(document) = documents {
            let message = document["outcome"]["message"].as_str().unwrap();
            // `-o yaml` has no escape of the last one.
            assert!(message.starts_with("\u{1b}[31mpolicy\u{9b}2J\u{7f}"), "{format} {message:?}");
        }
    }
}

/// Times of years are not simulated.
#[test]
fn long_times() {
    let cluster = Cluster::start(&READ_ONLY);
    for (arguments, code) in [("--ready-after 100000h", 4), ("--ready-after 5s --stop-after 100000h", 0)] {
        let output = cluster.run(&format!("preview web --restart {arguments}"), "");
        assert_eq!(output.status.code(), Some(code), "{arguments}: {output:?}");
    }
}

#[test]
fn exit_code_of_a_rollout_that_exceeds_its_deadline() {
    let cluster = Cluster::start(&[]);
    let output = cluster.run("preview web --restart --unready 4 -o json", "");
    assert_eq!(output.status.code(), Some(4));
    let preview: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(preview["outcome"]["end"], "stuck", "{preview}");
    assert_eq!(preview["outcome"]["durationSeconds"], Value::Null);
    assert_eq!(preview["warnings"][0]["code"], "deadline_at_risk", "{preview}");
}

#[test]
fn svg_is_well_formed() {
    let cluster = Cluster::start(&[]);
    let output = cluster.run("preview web --replicas 6 -o svg", "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
    assert!(text.contains("<title id=\"t\">Rollout of default/web</title>"), "{text}");
}

#[test]
fn missing_deployment_is_an_error() {
    let cluster = Cluster::start(&[]);
    let output = cluster.run("preview api --restart", "");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "error: deployments.apps \"api\" not found in namespace default\n");
}

/// Error of the program.
fn error_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn manifests_that_kubectl_refuses() {
    let unknown = manifest("web:3").to_string().replace("\"replicas\":4", "\"replica\":4");
    let elsewhere =
        manifest("web:3").to_string().replace("\"name\":\"web\"", "\"name\":\"web\",\"namespace\":\"shop\"");
    // The API server checks the fields, or the embedded one.
    for faults in [&[][..], &READ_ONLY[..]] {
        let cluster = Cluster::start(faults);
        let error = error_of(&cluster.run("preview -f -", &unknown));
        assert!(error.contains("strict decoding error: unknown field \"spec.replica\""), "{error}");
        let error = error_of(&cluster.run("preview -f - -n default", &elsewhere));
        assert_eq!(
            error,
            "error: the namespace from the provided object \"shop\" does not match the namespace \"default\". You must \
             pass '--namespace=shop' to perform this operation.\n"
        );
        let error = error_of(&cluster.run("preview -f -", &elsewhere));
        assert_eq!(error, "error: namespaces \"shop\" not found\n");
    }
}

/// A Deployment of this size took all memory.
#[test]
fn too_many_replicas() {
    let cluster = Cluster::start(&[]);
    let error = error_of(&cluster.run("preview web --replicas 2147483647", ""));
    assert!(error.starts_with("error: the change concerns 2147483647 pods, old and new together"), "{error}");
}

#[test]
fn yaml_is_that_of_json() {
    let cluster = Cluster::start(&READ_ONLY);
    let output = cluster.run("preview web --image *=web:2 --replicas 5 -o yaml", "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("apiVersion: rollouts/v1alpha1\n") && text.contains("effect: newReplicaSet\n"),
        "{text}"
    );
    assert!(output.stderr.is_empty(), "no progress bar without a terminal");
}

#[test]
fn exit_codes() {
    struct Case {
        arguments: &'static str,
        code: i32,
    }
    let cluster = Cluster::start(&[]);
    let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "5" } } });
    for Case { arguments, code } in [
        Case { arguments: "--replicas 5", code: 0 },
        Case { arguments: "--restart --fail-on=unavailable --ready-after 5s", code: 6 },
        Case { arguments: "--restart --fail-on=none-available --ready-after 5s", code: 0 },
        // Completes after the progress deadline of 10 minutes.
        Case { arguments: "--restart --ready-after 15m", code: 4 },
        Case { arguments: "--restart --ready-after 15m --fail-on=quota", code: 0 },
        Case { arguments: "--restart --unready 1 --fail-on=quota --ready-after 5s", code: 4 },
    ] {
        let output = cluster.run(&format!("preview web {arguments} --stop-after 1s"), "");
        assert_eq!(output.status.code(), Some(code), "{arguments}: {output:?}");
    }
    cluster.server.create(Resource::RESOURCE_QUOTAS, "default", quota, &WriteOptions::default()).unwrap();
    for Case { arguments, code } in [
        Case { arguments: "--restart --ready-after 5s", code: 6 },
        Case { arguments: "--restart --fail-on=deadline --ready-after 5s", code: 0 },
        Case { arguments: "--replicas 6", code: 3 },
    ] {
        let output = cluster.run(&format!("preview web {arguments} --stop-after 1s"), "");
        assert_eq!(output.status.code(), Some(code), "{arguments}: {output:?}");
    }
}

/// The help and the page have the same exit codes and conditions.
#[test]
fn help_and_page_agree() {
    let page = include_str!("../../../../docs/rollouts-preview.md");
    let program = Command::new(env!("CARGO_BIN_EXE_kubectl-rollouts")).args(["preview", "--help"]).output();
    let help = String::from_utf8(program.unwrap().stdout).unwrap();
    let rows = |heading: &str| {
        let (_, table) = page.split_once(&format!("| {heading} | Meaning |\n|---|---|\n")).unwrap();
        let rows = table.lines().take_while(|line| line.starts_with('|')).map(|line| {
            let mut cells = line.split('|').map(|cell| cell.trim().replace('`', ""));
            (cells.nth(1).unwrap(), cells.next().unwrap())
        });
        rows.collect::<Vec<_>>()
    };
    assert_eq!((rows("Code").len(), rows("Condition").len()), (5, 5));
    // The help is in lines.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (code, meaning) in rows("Code") {
        let meaning = meaning.split(", or the change").next().unwrap();
        assert!(help.contains(&format!("{code} {meaning}")), "{code} {meaning}\n{help}");
    }
    for (condition, meaning) in rows("Condition") {
        assert!(help.contains(&format!("{condition} {meaning}")), "{condition} {meaning}\n{help}");
    }
}

/// `kubectl` runs the program as a plugin.
#[test]
fn plugin_of_kubectl() {
    let cluster = Cluster::start(&[]);
    let folder = Path::new(env!("CARGO_BIN_EXE_kubectl-rollouts")).parent().unwrap().to_owned();
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([folder].into_iter().chain(env::split_paths(&others))).unwrap();
    let kubectl = |arguments: &str| {
        let mut command = Command::new("kubectl");
        command.args(arguments.split(' ')).args(["--server", &cluster.url]).env("PATH", &path).output()
    };
    let Ok(output) = kubectl("rollouts preview web --replicas=6 -o json") else {
        // Written to stderr directly, because the test harness captures the output of `eprintln!`.
        let _ = writeln!(std::io::stderr(), "SKIPPED: the plugin in kubectl (no kubectl)");
        return;
    };
    let preview: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((&preview["effect"], &preview["outcome"]["podsCreated"]), (&json!("scale"), &json!(2)));
    assert_eq!(kubectl("rollouts why web").unwrap().status.code(), Some(0));
    let help = String::from_utf8(kubectl("rollouts preview --help").unwrap().stdout).unwrap();
    assert!(help.contains("--ready-after"), "{help}");
}
