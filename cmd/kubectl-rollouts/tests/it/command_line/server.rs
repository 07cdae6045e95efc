//! Server of fixed responses, and objects for it.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Output},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Request line and headers.
pub(crate) type Requests = Arc<Mutex<Vec<Vec<String>>>>;

/// Server that responds with objects by path, and with empty lists to other lists.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) requests: Requests,
    _folder: TempDir,
    pub(crate) kubeconfig: String,
}

/// Content of a server.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) objects: BTreeMap<String, Value>,
    /// Paths that are refused.
    pub(crate) forbidden: Vec<&'static str>,
    /// Header `Date`.
    pub(crate) date: Option<&'static str>,
    /// Change that the watch of a list reports.
    pub(crate) change: Option<Change>,
}

/// Change of an object. The server has the new state once the list is watched.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) list: &'static str,
    pub(crate) object: Value,
    pub(crate) is_made: Arc<AtomicBool>,
}

impl Change {
    pub(crate) fn new(list: &'static str, object: Value) -> Option<Self> {
        Some(Self { list, object, is_made: Arc::default() })
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.list, self.object["metadata"]["name"].as_str().unwrap())
    }
}

pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
pub(crate) const ENTRY: &str = "Wed, 14 Jan 2026 23:59:59 GMT";

/// Replies to the requests of a connection.
fn serve(stream: TcpStream, content: &Content, requests: &Requests) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut output = stream;
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let uri = head[0].split(' ').nth(1).unwrap().to_owned();
        requests.lock().unwrap().push(head);
        let path = uri.split('?').next().unwrap();
        let change = content.change.as_ref();
        if uri.contains("watch=true") {
            // Other watches get no response. The connection stays open.
            if let Some(change) = change.filter(|change| change.list == path) {
                change.is_made.store(true, Ordering::SeqCst);
                let event = json!({ "type": "MODIFIED", "object": change.object }).to_string() + "\n";
                let head =
                    "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
                let chunk = format!("{head}{:x}\r\n{event}\r\n", event.len());
                output.write_all(chunk.as_bytes()).unwrap();
            }
            continue;
        }
        let changed = change.filter(|one| one.path() == path && one.is_made.load(Ordering::SeqCst));
        let is_list = path.rsplit('/').next().unwrap().ends_with('s') && !path.starts_with("/debug");
        let (code, body) = if content.forbidden.contains(&path) {
            (
                403,
                json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": format!("\u{1b}[31m{path} is forbidden") }),
            )
        } else if let Some(object) = changed.map(|change| &change.object).or(content.objects.get(path)) {
            (200, object.clone())
        } else if is_list {
            (200, json!({ "metadata": {}, "items": [] }))
        } else {
            let reason =
                json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "not found" });
            (404, reason)
        };
        let body = body.to_string();
        let date = content.date.map(|date| format!("date: {date}\r\n")).unwrap_or_default();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\n{date}content-length: {length}\r\n\r\n"
        );
        if output.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

impl Content {
    pub(crate) fn new() -> Self {
        Self::default()
            .list("/api/v1/namespaces", &[json!({ "metadata": { "name": "shop" } })])
            .object("/api/v1/namespaces/shop", json!({ "metadata": { "name": "shop" } }))
    }

    pub(crate) fn object(mut self, path: &str, object: Value) -> Self {
        self.objects.insert(path.to_owned(), object);
        self
    }

    pub(crate) fn list(self, path: &str, items: &[Value]) -> Self {
        self.object(path, json!({ "metadata": {}, "items": items }))
    }

    /// Deployments of the namespace `shop`, in the list and by name, with their ReplicaSets.
    pub(crate) fn deployments(self, deployments: &[Value]) -> Self {
        let named = |this: Self, deployment: &Value| {
            let name = deployment["metadata"]["name"].as_str().unwrap();
            this.object(&format!("{DEPLOYMENTS}/{name}"), deployment.clone())
        };
        let sets: Vec<Value> = deployments.iter().map(|deployment| objects_of(deployment, None).0).collect();
        let all = self
            .list(DEPLOYMENTS, deployments)
            .list("/apis/apps/v1/deployments", deployments)
            .list("/apis/apps/v1/namespaces/shop/replicasets", &sets)
            .list("/apis/apps/v1/replicasets", &sets);
        deployments.iter().fold(all, named)
    }

    pub(crate) fn start(self) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Requests::default();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (content, seen) = (self.clone(), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &content, &seen));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [
                { "name": "test", "cluster": { "server": url } },
                { "name": "down", "cluster": { "server": "http://127.0.0.1:1" } },
            ],
            "users": [{ "name": "none", "user": {} }, { "name": "robot", "user": { "token": "of-robot" } }],
            "contexts": [
                { "name": "test", "context": { "cluster": "test", "user": "none", "namespace": "shop" } },
                { "name": "down", "context": { "cluster": "down", "user": "none", "namespace": "shop" } },
            ],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        let kubeconfig = kubeconfig.to_str().unwrap().to_owned();
        Server { url, requests, _folder: folder, kubeconfig }
    }
}

impl Server {
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-rollouts"));
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).output().unwrap()
    }

    /// Runs `why` with the arguments in the line. Returns the exit code, the output and the errors.
    pub(crate) fn why(&self, line: &str) -> (i32, String, String) {
        let arguments: Vec<&str> = ["why"].into_iter().chain(line.split_whitespace()).collect();
        let output = self.run(&arguments);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// Values of a header, of the request of the Deployment `web`.
    pub(crate) fn header(&self, name: &str) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let request = requests.iter().rev().find(|head| head[0].contains("/deployments/web ")).unwrap();
        let headers = request.iter().skip(1).filter_map(|line| line.split_once(": "));
        headers.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).collect()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|head| head[0].split(' ').nth(1).unwrap().to_owned()).collect()
    }
}

pub(crate) fn deployment(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "generation": 1,
            "creationTimestamp": "2026-01-15T00:00:00Z",
        },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": name } }, "progressDeadlineSeconds": 600,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "app", "image": image }] },
            },
        },
        "status": { "observedGeneration": 1 },
    })
}

/// A Deployment without replicas, whose rollout is complete.
pub(crate) fn idle(name: &str) -> Value {
    let mut idle = deployment(name, "app:1");
    idle["spec"]["replicas"] = json!(0);
    idle
}

pub(crate) fn failed(name: &str) -> Value {
    let mut failed = deployment(name, "app:1");
    failed["status"]["conditions"] = json!([{
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "lastUpdateTime": "2026-01-15T00:10:00Z", "lastTransitionTime": "2026-01-15T00:10:00Z",
    }]);
    failed
}

/// ReplicaSet and pod of a Deployment. `waiting` is the state of the container.
pub(crate) fn objects_of(deployment: &Value, waiting: Option<&Value>) -> (Value, Value) {
    let name = deployment["metadata"]["name"].as_str().unwrap();
    let (hash, replicas) = ("7c9d8f5b44", deployment["spec"]["replicas"].as_i64().unwrap());
    let max = if replicas == 0 { 0 } else { replicas + 1 };
    let owner = |kind: &str, name: &str| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true }]);
    let labels = json!({ "app": name, "pod-template-hash": hash });
    let set_name = format!("{name}-{hash}");
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"] = labels.clone();
    let set = json!({
        "metadata": {
            "name": set_name, "namespace": "shop", "uid": set_name, "generation": 1, "labels": labels,
            "creationTimestamp": "2026-01-15T00:00:00Z", "ownerReferences": owner("Deployment", name),
            "annotations": { "deployment.kubernetes.io/desired-replicas": replicas.to_string(), "deployment.kubernetes.io/max-replicas": max.to_string(),
                             "deployment.kubernetes.io/revision": "1" },
        },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": template },
        "status": { "replicas": replicas, "fullyLabeledReplicas": replicas, "observedGeneration": 1 },
    });
    let mut pod = json!({
        "metadata": {
            "name": format!("{set_name}-x2k8v"), "namespace": "shop", "uid": format!("{set_name}-pod"), "labels": labels,
            "creationTimestamp": "2026-01-15T00:00:00Z", "ownerReferences": owner("ReplicaSet", &set_name),
        },
        "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
        "status": { "phase": "Pending" },
    });
    if let Some(waiting) = waiting {
        pod["spec"]["nodeName"] = json!("n1");
        pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "True" }]);
        pod["status"]["containerStatuses"] = json!([{
            "name": "app", "ready": false, "restartCount": 0, "state": { "waiting": waiting },
        }]);
    }
    (set, pod)
}

/// Deployments with their objects.
pub(crate) fn with_objects(deployments: &[Value], waiting: Option<&Value>) -> Content {
    let pods: Vec<Value> = deployments.iter().map(|one| objects_of(one, waiting).1).collect();
    let node = json!({ "metadata": { "name": "n1" }, "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    Content::new()
        .deployments(deployments)
        .list("/api/v1/namespaces/shop/pods", &pods)
        .list("/api/v1/pods", &pods)
        .object("/api/v1/nodes/n1", node)
}
