//! Memory that the manager keeps for pods that are gone. Alone in its binary, because it counts what the process allocates:
//! the manager, and a client that scales a Deployment. The API server is another process.
#![expect(clippy::unwrap_used, reason = "helper functions of tests may panic")]

use std::{
    alloc::System,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::{Clock, RealClock, SeededRandom};
use kcm_controller_manager::{Command as Arguments, Placement, Runtime};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: usize = 200;
const CYCLES: usize = 6;
/// Cycles after which connections, caches and tables have their size.
const WARM_UP: usize = 2;
/// Limit of the memory kept per pod that was created and deleted. A cached pod takes about 300 bytes.
const MOST_PER_POD: usize = 100;
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn live_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// API server with simulated nodes. Killed on drop.
struct Sandbox {
    process: Child,
    folder: TempDir,
}

impl Sandbox {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_kube-sandbox"))
            .args(["--without-controllers", "--listen=127.0.0.1:0", "--tls", "--kubeconfig"])
            .arg(folder.path().join("kubeconfig"))
            .args(["--pod-ready-delay=0ms", "--pod-stop-delay=0ms"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The first line is printed once the server listens. The others fit into the pipe.
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        Self { process, folder }
    }

    fn kubeconfig(&self) -> String {
        self.folder.path().join("kubeconfig").display().to_string()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn start_manager(kubeconfig: &str, clock: Arc<dyn Clock>, shutdown: CancellationToken) {
    let arguments =
        ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=10000", "--kube-api-burst=10000"];
    let kubeconfig = format!("--kubeconfig={kubeconfig}");
    let arguments = arguments.into_iter().chain([&*kubeconfig]).map(Into::into);
    let Arguments::Run(options) = Arguments::parse(arguments).unwrap() else { unreachable!() };
    let runtime = Runtime {
        clock,
        random: Arc::new(SeededRandom::new(1)),
        host: "test".to_owned(),
        proxy: Default::default(),
        shutdown,
        log: None,
        placement: Placement::OwnThreads,
    };
    kcm_controller_manager::run(&options, runtime).await.unwrap();
}

/// Patches the Deployment, and waits until the rollout is complete.
async fn roll_out(api: &ApiClient, clock: &dyn Clock, image: usize, replicas: usize) {
    let containers = [json!({"name": "main", "image": format!("app:{image}")})];
    let patch = json!({"spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}}});
    let path = format!("{DEPLOYMENTS}/web");
    api.send(&Request::strategic_merge_patch(path.as_str(), patch.to_string())).await.unwrap();
    let complete = async {
        loop {
            let deployment: Value =
                serde_json::from_slice(&api.send(&Request::get(path.as_str())).await.unwrap()).unwrap();
            let status = &deployment["status"];
            let counts = ["replicas", "updatedReplicas", "availableReplicas"];
            if status["observedGeneration"] == deployment["metadata"]["generation"]
                && counts.iter().all(|count| status[count].as_u64().unwrap_or(0) == replicas as u64)
            {
                return;
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TIMEOUT, complete).await.unwrap();
}

#[tokio::test]
async fn memory_for_pods_is_freed_with_them() {
    let sandbox = Sandbox::start();
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let shutdown = CancellationToken::new();
    let kubeconfig = sandbox.kubeconfig();
    let server = Server::Kubeconfig { path: kubeconfig.clone().into(), master: None };
    let options = ClientOptions::new(UserAgent::new("test", "v0", ""), Arc::clone(&clock));
    let api = ClientFactory::connect(server, options).await.unwrap().client("test", RateLimit::UNLIMITED);
    let manager = {
        let (clock, shutdown) = (Arc::clone(&clock), shutdown.clone());
        tokio::spawn(async move { start_manager(&kubeconfig, clock, shutdown).await })
    };
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:0"}]},
        }},
    });
    api.send(&Request::post(DEPLOYMENTS, deployment.to_string())).await.unwrap();

    let mut kept = 0;
    for cycle in 0..CYCLES {
        if cycle == WARM_UP {
            kept = live_bytes();
        }
        for (image, replicas) in [(0, PODS), (1, PODS), (1, 0)] {
            roll_out(&api, &*clock, image, replicas).await;
        }
        println!("cycle {cycle}: {} bytes", live_bytes());
    }
    let most = kept + MOST_PER_POD * 2 * PODS * (CYCLES - WARM_UP);
    // The last events and status updates may still be on their way.
    let freed = async {
        while live_bytes() > most {
            clock.sleep(POLL_INTERVAL).await;
        }
    };
    let freed = tokio::time::timeout(Duration::from_secs(20), freed).await;
    assert!(freed.is_ok(), "{kept} bytes after {WARM_UP} cycles, {} after {CYCLES}", live_bytes());
    shutdown.cancel();
    manager.await.unwrap();
}
