//! API server on a socket with simulated nodes and a record of all requests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use kcm_api::ApiError;
use kcm_apiserver::{ApiServer, ApiServerConfig, AuditEvent, Faults, Resource, WriteOptions};
use kcm_client::{ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use kcm_sandbox_server::{HttpServer, Tokens};
use kcm_serving::SelfSigned;
use kcm_stories::{external::activity_of, wait_until_idle};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_util::sync::CancellationToken;

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for a manager to become idle. Renewals of the lease interrupt idle periods.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Served request.
#[derive(Debug, Clone)]
pub struct Entry {
    pub at: Duration,
    pub user: String,
    pub verb: &'static str,
    pub resource: String,
    pub namespace: String,
    pub is_success: bool,
    /// Holder of the lease after the request.
    pub holder: String,
}

impl Entry {
    pub fn is_write(&self) -> bool {
        self.is_success && matches!(self.verb, "create" | "update" | "patch" | "delete")
    }

    /// Returns `true` for a write that requires the lease.
    fn is_of_leader(&self) -> bool {
        self.is_write() && self.namespace == "default"
    }
}

pub struct Cluster {
    pub server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    requests: Receiver<Entry>,
    seen: Vec<Entry>,
    directory: TempDir,
    runtime: Runtime,
}

impl Cluster {
    pub fn start() -> Self {
        Self::with_faults(Faults::default())
    }

    pub fn with_faults(faults: Faults) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
        let (sender, requests) = channel();
        let trail = Mutex::new(WriteLog { sender, holder: String::new(), clock: Arc::clone(&clock) });
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            audit: Some(Arc::new(move |event: &AuditEvent| trail.lock().add(event))),
            faults,
            ..ApiServerConfig::default()
        });
        let runtime = Runtime::new().unwrap();
        let config = SandboxConfig {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random,
            nodes: 2,
            kubelet: KubeletConfig::default(),
        };
        let sandbox = Sandbox::new(config).unwrap();
        runtime.spawn(async move { sandbox.run(CancellationToken::new()).await });

        let directory = tempfile::tempdir().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let tls = SelfSigned::new("test", &["localhost"], &[address.ip()], clock.now()).unwrap();
        let (config, authority) = (Arc::new(tls.server_config().unwrap()), directory.path().join("ca.crt"));
        fs::write(&authority, &tls.authority_pem).unwrap();
        let tokens = Tokens::parse("token-a,a,1\ntoken-b,b,2\n").unwrap();
        let http =
            HttpServer { tokens: Some(tokens), tls: Some(config), ..HttpServer::new(Arc::clone(&server)) };
        runtime.spawn(http.serve(listener, CancellationToken::new()));
        for user in ["a", "b"] {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
                 clusters: [{{name: k, cluster: {{server: 'https://{address}', certificate-authority: {authority:?}}}}}]\n\
                 users: [{{name: u, user: {{token: token-{user}}}}}]\n"
            );
            fs::write(directory.path().join(user), text).unwrap();
        }
        Self { server, clock, requests, seen: Vec::new(), directory, runtime }
    }

    /// Starts `program` with the credentials of `user`.
    pub fn manager(&self, program: &str, user: &str) -> Manager {
        self.manager_with(program, user, &["--secure-port=0".to_owned()])
    }

    pub fn manager_with(&self, program: &str, user: &str, flags: &[String]) -> Manager {
        let log = self.directory.path().join(format!("{user}.log"));
        let output = fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = Command::new(program)
            .arg(format!("--kubeconfig={}", self.directory.path().join(user).display()))
            .args([
                "--controllers=deployment,replicaset",
                "--leader-elect-resource-name=kube-controller-manager-rs",
                "--leader-elect-lease-duration=3s",
                "--leader-elect-renew-deadline=2s",
                "--leader-elect-retry-period=500ms",
                "-v=4",
            ])
            .args(flags)
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap();
        Manager { child, log }
    }

    /// Path in the directory of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Anonymous GET of `path` from the server at `port` with `certificate`.
    pub fn get(&self, port: u16, certificate: &Path, path: &str) -> Result<String, ApiError> {
        let kubeconfig = self.path("client");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: {certificate:?}}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n"
        );
        fs::write(&kubeconfig, text).unwrap();
        self.runtime.block_on(async {
            let options = ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::clone(&self.clock));
            let server = Server::Kubeconfig { path: kubeconfig, master: None };
            let client =
                ClientFactory::connect(server, options).await.unwrap().client("test", RateLimit::UNLIMITED);
            let response = client.send(&Request::get(path)).await?;
            Ok(String::from_utf8(response.to_vec()).unwrap())
        })
    }

    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub fn deploy(&self, name: &str, replicas: u32) {
        self.create(Resource::DEPLOYMENTS, "Deployment", name, replicas);
    }

    pub fn create(&self, resource: Resource, kind: &str, name: &str, replicas: u32) {
        let object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "app:1"}]},
                },
            },
        });
        self.server.create(resource, "default", object, &WriteOptions::default()).unwrap();
    }

    /// Waits for a request that matches. Returns its time.
    pub fn wait_for(&mut self, what: &str, matches: impl Fn(&Entry) -> bool) -> Duration {
        let deadline = self.now() + TIMEOUT;
        loop {
            let left = deadline.saturating_sub(self.now());
            let Ok(entry) = self.requests.recv_timeout(left) else {
                let last: Vec<_> = self.seen.iter().rev().take(20).collect();
                panic!("timeout waiting for {what}; last requests: {last:#?}");
            };
            self.seen.push(entry.clone());
            if matches(&entry) {
                return entry.at;
            }
        }
    }

    /// Repeats `done` until it returns `true`.
    pub fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = self.now() + TIMEOUT;
        while !done() {
            assert!(self.now() < deadline, "timed out waiting until {what}");
            std::thread::yield_now();
        }
    }

    pub fn wait_for_leader(&mut self, user: &str) -> Duration {
        self.wait_for(&format!("{user} to lead"), |entry| {
            entry.resource == "leases" && entry.is_write() && entry.user == user && entry.holder == user
        })
    }

    /// Waits until `user` has read the lease. Upstream's standby sends no other requests.
    pub fn wait_for_standby(&mut self, user: &str) {
        self.wait_for(&format!("{user} to become a standby"), |entry| {
            entry.user == user && entry.resource == "leases" && entry.verb == "get"
        });
    }

    pub fn wait_for_pod_of(&mut self, user: &str) -> Duration {
        self.wait_for(&format!("{user} to create a pod"), |entry| {
            entry.user == user && entry.resource == "pods" && entry.verb == "create" && entry.is_success
        })
    }

    /// Waits until `manager` is idle. A request that has been sent cannot be withdrawn.
    pub fn wait_until_idle(&self, manager: &Manager) {
        let activity = || activity_of(&[manager.child.id()]);
        self.runtime.block_on(wait_until_idle(&*self.clock, IDLE_TIMEOUT, activity));
    }

    /// Asserts that the holder of the lease sent each write.
    pub fn assert_single_writer(&mut self) {
        self.assert_leads_when_writing("a");
        self.assert_leads_when_writing("b");
    }

    pub fn assert_leads_when_writing(&mut self, user: &str) {
        self.seen.extend(self.requests.try_iter());
        let writes = self.seen.iter().filter(|entry| entry.user == user && entry.is_of_leader());
        for entry in writes {
            assert_eq!(entry.holder, entry.user, "{entry:?}");
        }
    }
}

struct WriteLog {
    sender: Sender<Entry>,
    holder: String,
    clock: Arc<dyn Clock>,
}

impl WriteLog {
    fn add(&mut self, event: &AuditEvent) {
        let object = event.object.clone().unwrap_or_default();
        let mut entry = Entry {
            at: self.clock.monotonic(),
            user: event.user.clone(),
            verb: event.verb,
            resource: object.resource,
            namespace: object.namespace,
            is_success: event.code < 300,
            holder: String::new(),
        };
        if entry.resource == "leases" && entry.is_write() {
            let holder =
                event.request_object.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            self.holder =
                holder.filter(|holder| !holder.is_empty()).map_or(String::new(), |_| event.user.clone());
        }
        entry.holder.clone_from(&self.holder);
        // The receiver is dropped at the end of the test.
        let _ = self.sender.send(entry);
    }
}

pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Running program. Dropping it kills it.
pub struct Manager {
    child: Child,
    log: PathBuf,
}

impl Manager {
    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
