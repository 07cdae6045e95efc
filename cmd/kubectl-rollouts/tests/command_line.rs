//! Flags, arguments and output of the program, with a server of fixed responses.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Request line and headers.
type Requests = Arc<Mutex<Vec<Vec<String>>>>;

/// Server that responds with objects by path, and with empty lists to other lists.
struct Server {
    url: String,
    requests: Requests,
    _folder: TempDir,
    kubeconfig: String,
}

/// Content of a server.
#[derive(Clone, Default)]
struct Content {
    objects: BTreeMap<String, Value>,
    /// Paths that are refused.
    forbidden: Vec<&'static str>,
    /// Header `Date`.
    date: Option<&'static str>,
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const ENTRY: &str = "Wed, 14 Jan 2026 23:59:59 GMT";

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
        // A watch gets no response. The connection stays open.
        if uri.contains("watch=true") {
            continue;
        }
        let is_list = path.rsplit('/').next().unwrap().ends_with('s') && !path.starts_with("/debug");
        let (code, body) = if content.forbidden.contains(&path) {
            (
                403,
                json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": format!("\u{1b}[31m{path} is forbidden") }),
            )
        } else if let Some(object) = content.objects.get(path) {
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
    fn new() -> Self {
        Self::default()
            .list("/api/v1/namespaces", &[json!({ "metadata": { "name": "shop" } })])
            .object("/api/v1/namespaces/shop", json!({ "metadata": { "name": "shop" } }))
    }

    fn object(mut self, path: &str, object: Value) -> Self {
        self.objects.insert(path.to_owned(), object);
        self
    }

    fn list(self, path: &str, items: &[Value]) -> Self {
        self.object(path, json!({ "metadata": {}, "items": items }))
    }

    /// Deployments of the namespace `shop`, in the list and by name, with their ReplicaSets.
    fn deployments(self, deployments: &[Value]) -> Self {
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

    fn start(self) -> Server {
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
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-rollouts"));
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).output().unwrap()
    }

    /// Runs `why` with the arguments in the line. Returns the exit code, the output and the errors.
    fn why(&self, line: &str) -> (i32, String, String) {
        let arguments: Vec<&str> = ["why"].into_iter().chain(line.split_whitespace()).collect();
        let output = self.run(&arguments);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// Values of a header, of the request of the Deployment `web`.
    fn header(&self, name: &str) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let request = requests.iter().rev().find(|head| head[0].contains("/deployments/web ")).unwrap();
        let headers = request.iter().skip(1).filter_map(|line| line.split_once(": "));
        headers.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).collect()
    }

    fn paths(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|head| head[0].split(' ').nth(1).unwrap().to_owned()).collect()
    }
}

fn deployment(name: &str, image: &str) -> Value {
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
fn idle(name: &str) -> Value {
    let mut idle = deployment(name, "app:1");
    idle["spec"]["replicas"] = json!(0);
    idle
}

fn failed(name: &str) -> Value {
    let mut failed = deployment(name, "app:1");
    failed["status"]["conditions"] = json!([{
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "lastUpdateTime": "2026-01-15T00:10:00Z", "lastTransitionTime": "2026-01-15T00:10:00Z",
    }]);
    failed
}

/// ReplicaSet and pod of a Deployment. `waiting` is the state of the container.
fn objects_of(deployment: &Value, waiting: Option<&Value>) -> (Value, Value) {
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
fn with_objects(deployments: &[Value], waiting: Option<&Value>) -> Content {
    let pods: Vec<Value> = deployments.iter().map(|one| objects_of(one, waiting).1).collect();
    let node = json!({ "metadata": { "name": "n1" }, "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    Content::new()
        .deployments(deployments)
        .list("/api/v1/namespaces/shop/pods", &pods)
        .list("/api/v1/pods", &pods)
        .object("/api/v1/nodes/n1", node)
}

#[test]
fn time_is_that_of_the_server() {
    // The pod was created in the second of the response. The local clock is later.
    let content = with_objects(&[deployment("web", "app:1")], None);
    let just_created = Content { date: Some("Thu, 15 Jan 2026 00:00:00 GMT"), ..content.clone() };
    let (code, text, _) = just_created.start().why("web");
    assert!(text.contains("pod_starting") && code == 2, "{text}");
    let later = Content { date: Some("Thu, 15 Jan 2026 00:02:00 GMT"), ..content.clone() };
    let (_, text, _) = later.start().why("web");
    assert!(text.contains("scheduler_not_running"), "{text}");
    // Without the header, and with one that is no date, the local clock applies.
    for date in [None, Some("yesterday")] {
        let (_, text, _) = Content { date, ..content.clone() }.start().why("web");
        assert!(text.contains("scheduler_not_running"), "{text}");
    }
    // A clock before all times of the objects.
    let (_, text, _) = Content { date: Some(ENTRY), ..content }.start().why("web");
    assert!(text.contains("pod_starting"), "{text}");
}

#[test]
fn users_of_kubectl() {
    let server = Content::new().deployments(&[idle("web")]).start();
    assert_eq!(server.why("web --as=jane --as-group=a --as-group=b --as-uid=7").0, 0);
    assert_eq!(server.header("impersonate-user"), ["jane"]);
    assert_eq!(server.header("impersonate-group"), ["a", "b"]);
    assert_eq!(server.header("impersonate-uid"), ["7"]);
    assert_eq!(server.why("web --token=secret").0, 0);
    assert_eq!(server.header("authorization"), ["Bearer secret"]);
    assert_eq!(server.why("web --user=robot").0, 0);
    assert_eq!(server.header("authorization"), ["Bearer of-robot"]);
    assert_eq!(server.why("web --context=down --cluster=test").0, 0);
    assert_eq!(server.why(&format!("web --context=down --server={} --user=robot", server.url)).0, 0);
    // As for kubectl, credentials of files are not sent to another address without TLS.
    assert_eq!(server.header("authorization"), Vec::<String>::new());
    let (code, _, error) = server.why("web --user=missing");
    assert!(code == 1 && error.contains("user \"missing\" does not exist"), "{error}");
    let (code, _, error) = server.why("web --as-group=a");
    assert!(code == 1 && error.contains("without impersonating a user"), "{error}");
}

#[test]
fn server_without_a_kubeconfig() {
    let server = Content::new().deployments(&[idle("web")]).start();
    let (code, text, error) = server.why(&format!("web -n shop --kubeconfig=/missing -s {}", server.url));
    assert_eq!(code, 0, "{text}{error}");
}

#[test]
fn request_timeout() {
    // A server that accepts connections, and does not respond.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Content::new().start();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (code, _, error) = server.why(&format!("web -s {url} --request-timeout=100ms"));
    assert!(code == 1 && error.contains("timed out"), "{error}");
}

#[test]
fn user_agents() {
    let server = Content::new().deployments(&[idle("web")]).start();
    assert_eq!(server.why("web").0, 0);
    let agent = server.header("user-agent");
    assert!(
        agent[0].starts_with(concat!("kubectl-rollouts-why/v", env!("CARGO_PKG_VERSION"), " (")),
        "{agent:?}"
    );
    server.run(&["preview", "web", "--restart", "--dry-run=none"]);
    assert!(server.header("user-agent")[0].starts_with("kubectl-rollouts-preview/v"));
}

#[test]
fn names_on_the_command_line() {
    let server = Content::new().deployments(&[idle("web"), idle("web-2"), idle("api")]).start();
    for line in ["web", "deploy web", "deployments.apps web", "deployment/web", "deploy/web -n shop"] {
        assert_eq!(server.why(line).0, 0, "{line}");
    }
    let before = server.paths().len();
    for (arguments, part) in [
        (["why", ""], "the name is empty: write the name of a Deployment"),
        (
            ["why", "rs/web"],
            "\"rs\" is not a kind that can be explained: write NAME, deployment/NAME, statefulset/NAME",
        ),
        (["why", "deploy/web/x"], "a name consists of lower-case letters"),
        (["why", "../../secrets/x"], "is not a kind that can be explained"),
        (["why", "web?watch=true"], "a name consists of lower-case letters"),
        (["why", "Web"], "write \"web\""),
        (["why", "-n=a/b"], "invalid name \"a/b\""),
    ] {
        let output = server.run(&arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && error.contains(part), "{arguments:?} {error}");
    }
    let (code, _, error) = server.why("web api");
    assert!(code == 1 && error.contains("more than one name"), "{error}");
    assert_eq!(server.paths().len(), before, "a request was sent for an invalid name");
}

#[test]
fn missing_objects() {
    let content = Content::new().deployments(&[idle("web"), idle("web-2"), idle("api")]);
    let server = content.clone().start();
    let (code, _, error) = server.why("webb");
    let expected = "error: deployments.apps \"webb\" not found in namespace \"shop\": write a similar name (web), or \
                    another namespace with -n\n";
    assert_eq!((code, &*error), (1, expected));
    for line in ["web -n shopp", "-n shopp"] {
        let (code, text, error) = server.why(line);
        let expected = "error: namespace \"shopp\" does not exist: write a similar name with -n (shop)\n";
        assert_eq!((code, &*text, &*error), (1, "", expected), "{line}");
    }
    let forbidden = vec!["/api/v1/namespaces/other", "/apis/apps/v1/namespaces/other/deployments"];
    let (_, _, error) = Content { forbidden, ..content }.start().why("web -n other");
    assert_eq!(error, "error: deployments.apps \"web\" not found in namespace \"other\"\n");
    let empty = Content::new().start();
    assert_eq!(empty.why("-n shop"), (0, "No Deployments found.\n".to_owned(), String::new()));
}

#[test]
fn wide_table_and_common_causes() {
    let waiting = json!({ "reason": "ImagePullBackOff", "message": "Back-off" });
    let deployments =
        [deployment("a", "r.example/a:1"), deployment("b", "r.example/b:1"), deployment("c", "other/c:1")];
    let content =
        Content { date: Some("Thu, 15 Jan 2026 00:02:00 GMT"), ..with_objects(&deployments, Some(&waiting)) };
    let server = content.start();
    let (code, table, _) = server.why("-A -o wide");
    assert_eq!(code, 3, "{table}");
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAMESPACE") && lines[0].ends_with("DEADLINE"), "{table}");
    assert!(lines[1].contains("stuck   image_pull"), "{table}");
    assert!(table.ends_with("\nCommon causes\n  2 Deployments: image_pull, registry r.example\n"), "{table}");
    let (_, list, _) = server.why("-o json");
    let list: Value = serde_json::from_str(&list).unwrap();
    let expected = json!([{
        "cause": "image_pull", "object": "registry r.example", "deployments": ["shop/a", "shop/b"],
    }]);
    assert_eq!(list["commonCauses"], expected);
}

#[test]
fn control_characters_of_messages() {
    let message = "pull \u{1b}[2J\u{9b}31m\u{202e}\u{7f}\rfailed";
    let waiting = json!({ "reason": "ImagePullBackOff", "message": message });
    let content = Content {
        date: Some("Thu, 15 Jan 2026 00:02:00 GMT"),
        forbidden: vec!["/apis/apps/v1/namespaces/shop/deployments/api"],
        ..with_objects(&[deployment("web", "app:1")], Some(&waiting))
    };
    let server = content.start();
    let is_safe = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}');
    for line in ["web", "-A -o wide", "web -o json", "web -o yaml"] {
        let (code, text, error) = server.why(line);
        assert!(code == 3 && is_safe(&text) && is_safe(&error), "{line}: {text:?}");
    }
    let (_, document, _) = server.why("web -o json");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert!(document["findings"][0]["message"].as_str().unwrap().contains(message), "{document:#}");

    // The message of an error response.
    let (code, text, error) = server.why("api");
    assert!(code == 1 && is_safe(&text) && is_safe(&error), "{error:?}");
    assert!(error.contains("\u{fffd}[31m/apis/apps/v1"), "{error:?}");
}

#[test]
fn until_a_state() {
    let content = Content::new().deployments(&[idle("web"), failed("bad"), deployment("api", "app:1")]);
    let server = content.start();
    let (code, text, _) = server.why("web --until=complete --timeout=1m");
    assert!(code == 0 && text.contains("Complete"), "{text}");
    for until in ["failed", "stuck", "complete,failed"] {
        let (code, text, _) = server.why(&format!("bad --until={until} --timeout=1m"));
        assert!(code == 4 && text.contains("Progress deadline exceeded"), "{text}");
    }
    // The state of one rollout, and the timeout.
    assert_eq!(server.why("--until=stuck --timeout=1m").0, 4);
    let (code, text, error) = server.why("bad --until=complete --timeout=300ms");
    assert_eq!(code, 124, "{text}{error}");
    assert!(
        error.starts_with("error: timed out after 300ms; shop/bad: Progress deadline exceeded"),
        "{error}"
    );
    let (code, _, error) = server.why("web --timeout=1m");
    assert!(code == 1 && error.contains("--until"), "{error}");
}

#[test]
fn completion() {
    let server = Content::new().deployments(&[idle("web"), idle("web-2"), idle("api")]).start();
    let complete = |words: &[&str]| {
        let arguments: Vec<&str> = ["__complete"].into_iter().chain(words.iter().copied()).collect();
        let output = server.run(&arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete(&["why", "we"]), "web\nweb-2\n:4\n");
    assert_eq!(complete(&["why", "deploy/a"]), "deploy/api\n:4\n");
    assert_eq!(complete(&["why", "-n", ""]), "shop\n:4\n");
    assert_eq!(complete(&["why", "--context", ""]), "test\ndown\n:4\n");
    assert_eq!(complete(&["preview", "--cluster="]), "test\ndown\n:4\n");
    assert_eq!(complete(&["why", "--user", "r"]), "robot\n:4\n");
    assert_eq!(complete(&["preview", "-f", ""]), ":0\n");
    assert!(complete(&["w"]).starts_with("why\tExplains"));
    // No answer from the cluster.
    assert_eq!(complete(&["why", "--context=down", "we"]), ":4\n");

    // The name by which kubectl finds it.
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubectl_complete-rollouts");
    std::os::unix::fs::symlink(Path::new(env!("CARGO_BIN_EXE_kubectl-rollouts")), &link).unwrap();
    let output =
        Command::new(link).args(["why", "ap"]).env("KUBECONFIG", &server.kubeconfig).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "api\n:4\n");
}

#[test]
fn help_has_examples() {
    let server = Content::new().start();
    let (code, text, _) = server.why("--help");
    assert_eq!(code, 0);
    for part in ["Examples:\n", "  kubectl rollouts why web -n shop\n", "124", "--as-group"] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
}
