//! Exec plugins: shell scripts that count their runs, an API server on loopback, and a clock that is stepped.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod support;

use std::{
    fs::File,
    io::Read as _,
    path::Path,
    process::Command,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all};
use http::Version;
use kcm_api::ApiError;
use kcm_client::{ApiClient, ClientFactory, RateLimit, Request};
use kcm_clock::{Clock, FakeClock, Timestamp};
use kcm_informer::WatchOptions;
use kcm_testkit::{CapturedLog, CertificateAuthority, Identity};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tracing::level_filters::LevelFilter;

use support::{Sources as _, files::Files, options, socket::SocketServer};

const V1: &str = "client.authentication.k8s.io/v1";

/// In all outputs and environments of plugins. Never in a log.
const SECRET: &str = "s3cr3t";

/// All log lines of this process, of all levels and crates.
fn captured() -> &'static CapturedLog {
    static LOG: OnceLock<CapturedLog> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = CapturedLog::default();
        let format = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false);
        format.with_writer(log.clone()).init();
        log
    })
}

struct World {
    server: SocketServer,
    authority: CertificateAuthority,
    files: Files,
    clock: FakeClock,
}

/// Writes its environment, counts its runs, waits for a line in `hold` and for a child that writes to `child` if there are such pipes, and
/// returns `output`.
const SCRIPT: &str = r#"
cd "$(dirname "$0")" || exit 9
env > environment
echo "s3cr3t on standard error" >&2
echo run >> runs
if [ -p hold ]; then read -r line < hold; fi
if [ -p child ]; then sleep 1000 > child & wait; fi
cat output
if [ -e code ]; then exit "$(cat code)"; fi
"#;

impl World {
    async fn new() -> Self {
        captured();
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "");
        files.write("plugin", SCRIPT);
        let world = Self { server, authority, files, clock: FakeClock::new(Timestamp::UNIX_EPOCH) };
        world.configure("");
        world
    }

    /// Writes a kubeconfig with further fields of the plugin, each after a comma.
    fn configure(&self, fields: &str) {
        let plugin = self.files.path("plugin");
        let user = format!(
            "exec: {{apiVersion: {V1}, command: /bin/sh, args: [{plugin:?}, '{SECRET}'], interactiveMode: IfAvailable, \
             env: [{{name: FROM_KUBECONFIG, value: {SECRET}}}]{fields}}}"
        );
        self.files.write_kubeconfig(&format!("https://{}", self.server.address), &user);
    }

    fn issue(&self, mut status: Value, lifetime: Option<u64>) {
        if let Some(seconds) = lifetime {
            let expires = self.clock.now().checked_add(Duration::from_secs(seconds)).unwrap();
            status["expirationTimestamp"] = expires.to_string().into();
        }
        let output = json!({"kind": "ExecCredential", "apiVersion": V1, "status": status});
        self.files.write("output", &output.to_string());
    }

    fn issue_token(&self, token: &str, lifetime: Option<u64>) {
        self.issue(json!({"token": format!("{SECRET}-{token}")}), lifetime);
    }

    fn issue_identity(&self, identity: &Identity, lifetime: Option<u64>) {
        let Identity { certificate, key, .. } = identity;
        self.issue(json!({"clientCertificateData": certificate, "clientKeyData": key}), lifetime);
    }

    async fn factory(&self) -> ClientFactory {
        let options = options(Arc::new(self.clock.clone()));
        ClientFactory::connect(self.files.server(), options).await.unwrap()
    }

    async fn client(&self) -> ApiClient {
        self.factory().await.client("test", RateLimit::UNLIMITED)
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.files.path("runs")).unwrap_or_default().lines().count()
    }

    /// Tokens of the requests so far, without the secret part.
    fn tokens(&self) -> Vec<String> {
        let prefix = format!("Bearer {SECRET}-");
        let tokens = self.server.requests().into_iter().map(|request| request.authorization.unwrap());
        tokens.map(|token| token.strip_prefix(&prefix).unwrap().to_owned()).collect()
    }

    fn step(&self, seconds: u64) {
        self.clock.step(Duration::from_secs(seconds));
    }

    /// Sends requests until one has `token`.
    async fn wait_for_token(&self, client: &ApiClient, token: &str) {
        while self.tokens().last().is_none_or(|last| last != token) {
            ok(client).await;
        }
    }

    /// Lets later runs of the plugin wait.
    fn hold(&self) {
        assert!(Command::new("mkfifo").arg(self.files.path("hold")).status().unwrap().success());
    }

    /// Ends the run that waits. Returns when that run has begun.
    async fn release(&self) {
        let pipe = self.files.path("hold");
        tokio::task::spawn_blocking(move || std::fs::write(pipe, "go\n").unwrap()).await.unwrap();
        std::fs::remove_file(self.files.path("hold")).unwrap();
    }
}

async fn ok(client: &ApiClient) {
    client.send(&Request::get("/ok")).await.unwrap();
}

mod refresh {
    use super::*;

    #[tokio::test]
    async fn first_requests_share_one_run() {
        let world = World::new().await;
        world.issue_token("a", None);
        let client = world.client().await;
        assert_eq!(world.runs(), 0);
        join_all((0..20).map(|_| ok(&client))).await;
        world.step(86_400);
        ok(&client).await;
        assert_eq!(world.tokens(), vec!["a"; 21]);
        assert_eq!(world.runs(), 1);
    }

    #[tokio::test]
    async fn no_request_waits_before_expiry() {
        let world = World::new().await;
        world.issue_token("a", Some(900));
        let factory = world.factory().await;
        let client = factory.client("test", RateLimit::UNLIMITED);
        ok(&client).await;
        world.hold();
        world.step(840);
        world.issue_token("b", Some(900));
        for _ in 0..3 {
            ok(&client).await;
        }
        drop(client.pods().watch(&WatchOptions::default()).await.unwrap());
        assert_eq!(world.tokens(), vec!["a"; 5]);
        world.release().await;
        world.wait_for_token(&client, "b").await;
        assert_eq!(world.runs(), 2);
    }

    #[test]
    fn election_does_not_wait_for_the_thread_of_other_clients() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (busy, own) = (runtime(), runtime());
        let world = own.block_on(World::new());
        world.issue_token("a", Some(900));
        let factory = own.block_on(world.factory());
        let election = factory.for_election().client("election", RateLimit::UNLIMITED);
        // The thread of this client is busy from when the plugin has started.
        let client = factory.client("test", RateLimit::UNLIMITED);
        let started = async {
            while world.runs() == 0 {
                tokio::task::yield_now().await;
            }
        };
        busy.block_on(async {
            tokio::select! {
                biased;
                () = ok(&client) => unreachable!(),
                () = started => {}
            }
        });
        own.block_on(async { tokio::time::timeout(Duration::from_secs(10), ok(&election)).await.unwrap() });
        assert_eq!(world.tokens(), ["a"]);
        assert_eq!(world.runs(), 2);
    }

    #[tokio::test]
    async fn requests_wait_after_expiry() {
        let world = World::new().await;
        world.issue_token("a", Some(900));
        let client = world.client().await;
        ok(&client).await;
        world.step(901);
        world.issue_token("b", Some(900));
        join_all((0..20).map(|_| ok(&client))).await;
        assert_eq!(world.tokens()[1..], vec!["b"; 20]);
        assert_eq!(world.runs(), 2);
    }

    #[tokio::test]
    async fn failed_run_keeps_valid_credentials() {
        let world = World::new().await;
        world.issue_token("a", Some(900));
        let client = world.client().await;
        ok(&client).await;
        world.files.write("code", "3");
        world.step(880);
        ok(&client).await;
        world.step(21);
        let error = client.send(&Request::get("/ok")).await.unwrap_err();
        assert!(matches!(error, ApiError::NotSent(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.ends_with("exec plugin \"/bin/sh\" failed: exit status: 3"), "{error}");
        assert_eq!(world.tokens(), ["a", "a"]);
        // The next request runs it again.
        std::fs::remove_file(world.files.path("code")).unwrap();
        world.issue_token("b", Some(900));
        ok(&client).await;
        assert_eq!(world.tokens(), ["a", "a", "b"]);
    }

    #[tokio::test]
    async fn rejected_credentials_are_replaced() {
        let world = World::new().await;
        world.issue_token("a", None);
        world.server.accept(&format!("Bearer {SECRET}-b"));
        let client = world.client().await;
        let refused = client.send(&Request::get("/ok")).await.unwrap_err();
        assert!(matches!(&refused, ApiError::Status(status) if status.code == 401), "{refused:?}");
        world.issue_token("b", None);
        // The run after the 401 may have read the old output.
        while client.send(&Request::get("/ok")).await.is_err() {
            world.step(10);
        }
        let runs = world.runs();
        assert!((2..=3).contains(&runs), "{runs}");
        join_all((0..5).map(|_| ok(&client))).await;
        assert_eq!(world.runs(), runs);
    }

    #[tokio::test]
    async fn concurrent_rejections_share_one_run() {
        let world = World::new().await;
        world.issue_token("a", None);
        let client = world.client().await;
        ok(&client).await;
        world.issue_token("b", None);
        world.server.accept(&format!("Bearer {SECRET}-b"));
        world.hold();
        let request = Request::get("/ok");
        // Those that are not refused wait for the plugin, and are sent with its token.
        let outcomes = {
            let requests = join_all((0..10).map(|_| client.send(&request)));
            let release = async {
                world.server.wait_for(|log| log.requests.len() > 1).await;
                world.release().await;
            };
            tokio::join!(requests, release).0
        };
        let refused = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        assert!(refused > 0);
        assert_eq!(world.server.requests().len(), 11);
        ok(&client).await;
        assert_eq!(world.runs(), 2);
        assert_eq!(world.tokens().pop().unwrap(), "b");
    }

    #[tokio::test]
    async fn new_certificate_closes_old_connections() {
        let world = World::new().await;
        let (first, second) =
            (world.authority.client("first", "dev"), world.authority.client("second", "dev"));
        world.issue_identity(&first, Some(900));
        let factory = world.factory().await;
        let client = factory.client("test", RateLimit::UNLIMITED);
        let election = factory.for_election().client("election", RateLimit::UNLIMITED);
        ok(&client).await;
        ok(&election).await;
        let options = WatchOptions { timeout: Duration::from_secs(300), ..WatchOptions::default() };
        let mut watch = client.deployments().watch(&options).await.unwrap();
        watch.next().await.unwrap().unwrap();
        let request = Request::get("/hold");
        let mut held = std::pin::pin!(client.send(&request));
        tokio::select! {
            biased;
            _ = &mut held => unreachable!(),
            () = world.server.wait_for(|log| log.begun == 4) => {}
        }
        assert_eq!(world.server.open(), 3);

        world.step(901);
        world.issue_identity(&second, Some(900));
        ok(&client).await;
        ok(&election).await;
        // The watch ends like one that the server has closed; a request in flight is finished.
        assert!(watch.next().await.is_none());
        world.server.release();
        held.await.unwrap();
        world.server.wait_for(|log| log.open == 2).await;
        let requests = world.server.requests();
        let with = |identity: &Identity| {
            requests.iter().filter(|request| request.certificate.as_ref() == Some(&identity.der)).count()
        };
        assert_eq!((with(&first), with(&second)), (4, 2));
        assert!(requests.iter().all(|request| request.version == Version::HTTP_2));
        assert_eq!(world.runs(), 4, "two for the election");
    }

    #[tokio::test]
    async fn new_token_keeps_the_connection() {
        let world = World::new().await;
        // An idle connection is closed after 90 s.
        world.issue_token("a", Some(60));
        let client = world.client().await;
        ok(&client).await;
        world.step(61);
        world.issue_token("b", Some(900));
        ok(&client).await;
        assert_eq!(world.tokens(), ["a", "b"]);
        assert_eq!(world.server.connections(), 1);
    }

    #[tokio::test]
    async fn changed_plugin_runs() {
        let world = World::new().await;
        world.issue_token("a", None);
        let client = world.client().await;
        ok(&client).await;
        world.issue_token("b", None);
        world.configure(", provideClusterInfo: true");
        world.step(30);
        ok(&client).await;
        assert_eq!(world.tokens(), ["a", "b"]);
    }
}

#[tokio::test]
async fn token_in_kubeconfig_takes_precedence() {
    let world = World::new().await;
    world.configure("}, token: own, as-groups: [], extra: {");
    ok(&world.client().await).await;
    assert_eq!(world.server.requests()[0].authorization.as_deref(), Some("Bearer own"));
    assert_eq!(world.runs(), 0);
}

fn environment(path: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")).map(str::to_owned))
}

#[tokio::test]
async fn environment_and_input() {
    let world = World::new().await;
    world.issue_token("a", None);
    ok(&world.client().await).await;
    let written = world.files.path("environment");
    assert_eq!(environment(&written, "FROM_KUBECONFIG").as_deref(), Some(SECRET));
    assert_eq!(environment(&written, "PATH"), std::env::var("PATH").ok());
    let info: Value = serde_json::from_str(&environment(&written, "KUBERNETES_EXEC_INFO").unwrap()).unwrap();
    assert_eq!(info, json!({"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": false}}));

    world.configure(", provideClusterInfo: true");
    ok(&world.client().await).await;
    let info: Value = serde_json::from_str(&environment(&written, "KUBERNETES_EXEC_INFO").unwrap()).unwrap();
    let cluster = &info["spec"]["cluster"];
    assert_eq!(cluster["server"], format!("https://{}", world.server.address));
    assert!(cluster["certificate-authority-data"].as_str().is_some_and(|data| data.len() > 100), "{info}");
}

mod errors {
    use super::*;

    #[tokio::test]
    async fn invalid_output() {
        let world = World::new().await;
        let client = world.client().await;
        let output = |version: &str, status: Value| {
            json!({"kind": "ExecCredential", "apiVersion": version, "status": status}).to_string()
        };
        let identity = world.authority.client("first", "dev");
        let cases = [
            (SECRET.to_owned(), "returned no ExecCredential"),
            (format!("{{\"kind\": \"{SECRET}\"}}"), "returned no ExecCredential"),
            (
                output(SECRET, json!({"token": "t"})),
                "returned an ExecCredential of another apiVersion than configured",
            ),
            (output(V1, Value::Null), "returned an ExecCredential without status"),
            (output(V1, json!({"token": ""})), "returned neither a token nor a client certificate"),
            (
                output(V1, json!({"token": format!("{SECRET}\n")})),
                "returned a token that cannot be sent in a header",
            ),
            (
                output(V1, json!({"token": SECRET, "clientKeyData": SECRET})),
                "returned only a client certificate or its key, not both",
            ),
            (
                output(V1, json!({"token": SECRET, "expirationTimestamp": SECRET})),
                "returned an invalid expirationTimestamp",
            ),
            (
                output(V1, json!({"clientCertificateData": identity.certificate, "clientKeyData": SECRET})),
                "returned an invalid client certificate or key",
            ),
        ];
        for (text, expected) in cases {
            world.files.write("output", &text);
            let error = client.send(&Request::get("/ok")).await.unwrap_err();
            assert!(matches!(error, ApiError::NotSent(_)), "{error:?}");
            let error = error.to_string();
            assert!(error.ends_with(&format!(": exec plugin \"/bin/sh\" {expected}")), "{text}: {error}");
            assert!(!error.contains(SECRET), "{error}");
        }
        assert!(world.server.requests().is_empty());
        // YAML is valid, as upstream.
        world.files.write(
            "output",
            &format!("kind: ExecCredential\napiVersion: {V1}\nstatus:\n  token: {SECRET}-a\n"),
        );
        ok(&client).await;
        assert_eq!(world.tokens(), ["a"]);
    }

    #[tokio::test]
    async fn missing_command_has_an_install_hint() {
        let world = World::new().await;
        let user = format!(
            "exec: {{apiVersion: {V1}, command: ./absent, interactiveMode: Never, installHint: see example.com, args: [{SECRET}]}}"
        );
        world.files.write_kubeconfig(&format!("https://{}", world.server.address), &user);
        let error = world.client().await.health().await.unwrap_err().to_string();
        assert!(error.contains("failed to run exec plugin") && error.contains("absent"), "{error}");
        assert!(error.ends_with("No such file or directory (os error 2): see example.com"), "{error}");
        assert!(!error.contains(SECRET), "{error}");
    }

    #[tokio::test]
    async fn timeout() {
        let world = World::new().await;
        world.hold();
        let client = world.client().await;
        let request = Request::get("/ok");
        let steps = async {
            while world.runs() == 0 {
                tokio::task::yield_now().await;
            }
            world.step(59);
            tokio::task::yield_now().await;
            world.step(1);
            std::future::pending::<()>().await;
        };
        let error = tokio::select! {
            outcome = client.send(&request) => outcome.unwrap_err(),
            () = steps => unreachable!(),
        };
        assert!(error.to_string().ends_with("exec plugin \"/bin/sh\" did not exit within 60s"), "{error}");
    }

    #[tokio::test]
    async fn timeout_kills_the_processes_that_the_plugin_has_started() {
        let world = World::new().await;
        let pipe = world.files.path("child");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let client = world.client().await;
        let (opened, is_open) = tokio::sync::oneshot::channel();
        // The pipe is open as long as the child runs.
        let child = tokio::task::spawn_blocking(move || {
            let mut pipe = File::open(pipe).unwrap();
            opened.send(()).unwrap();
            pipe.read_to_end(&mut Vec::new()).unwrap()
        });
        let request = Request::get("/ok");
        let steps = async {
            is_open.await.unwrap();
            world.step(60);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = client.send(&request) => drop(outcome.unwrap_err()),
            () = steps => unreachable!(),
        }
        tokio::time::timeout(Duration::from_secs(60), child).await.unwrap().unwrap();
    }

    /// All other tests of this file log into the same buffer.
    #[tokio::test]
    async fn logs_contain_neither_environment_nor_output() {
        let world = World::new().await;
        world.issue_token("a", Some(900));
        let client = world.client().await;
        ok(&client).await;
        world.files.write("code", "3");
        world.step(901);
        client.send(&Request::get("/ok")).await.unwrap_err();
        std::fs::remove_file(world.files.path("code")).unwrap();
        world.files.write("output", SECRET);
        client.send(&Request::get("/ok")).await.unwrap_err();
        let identity = world.authority.client("first", "dev");
        world.issue(json!({"clientCertificateData": identity.certificate, "clientKeyData": SECRET}), None);
        client.send(&Request::get("/ok")).await.unwrap_err();
        world.issue_identity(&identity, Some(900));
        ok(&client).await;

        let lines = captured().text();
        assert!(lines.contains("Failed to refresh credentials"), "{lines}");
        assert!(lines.contains("exit status: 3"), "{lines}");
        assert!(!lines.contains(SECRET), "{}", lines.lines().find(|line| line.contains(SECRET)).unwrap());
        let key = identity.key.lines().nth(1).unwrap();
        let certificate = identity.certificate.lines().nth(1).unwrap();
        assert!(!lines.contains(key) && !lines.contains(certificate));
    }
}
