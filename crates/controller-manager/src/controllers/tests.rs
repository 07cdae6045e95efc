use std::time::Duration;

use http::Method;
use kcm_client::{ClientFactory, UserAgent};
use kcm_clock::{SeededRandom, Sleep, Timestamp};
use kcm_metrics::{BuildInfo, MetricsOptions};
use kcm_testkit::{FakeApiServer, FakeResponse, RecordedRequest};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    ControllerError, ControllerFeatures, ControllerSelection, LeaderElectionSettings, Metrics, Placement,
    RunError,
};

use super::*;

/// API server with one ReplicaSet of one replica. It becomes healthy after a time and never responds to a POST.
struct ApiServer {
    api: FakeApiServer,
    clock: Arc<dyn Clock>,
}

impl ApiServer {
    fn new(healthy_from: Duration) -> Self {
        Self::with(healthy_from, Duration::ZERO)
    }

    /// Server that delays responses with pods by `pods_after`.
    fn with(healthy_from: Duration, pods_after: Duration) -> Self {
        let api = FakeApiServer::new(move |request| respond(request, healthy_from, pods_after));
        Self { clock: api.clock(), api }
    }

    fn clients(&self) -> ClientFactory {
        self.clients_with(ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::clone(&self.clock)))
    }

    fn clients_with(&self, options: ClientOptions) -> ClientFactory {
        ClientFactory::in_process(self.api.service(), options)
    }

    async fn run(&self, config: &ManagerConfig, shutdown: CancellationToken) -> Result<(), RunError> {
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let dependencies = Dependencies::new(&self.clients(), &self.clock, &random);
        manager(config, &dependencies, "host")?.run(shutdown).await
    }

    /// Client, method and path of each request, sorted and without repetitions.
    fn seen(&self) -> Vec<String> {
        let line = |request: &RecordedRequest| {
            let client = request.header("user-agent").unwrap().rsplit('/').next().unwrap();
            format!("{client}: {} {}", request.method, request.path())
        };
        let mut seen: Vec<_> = self.api.requests().iter().map(line).collect();
        seen.sort();
        seen.dedup();
        seen
    }

    /// `true` for each streaming list, `false` for each other list or watch.
    fn streamed(&self) -> Vec<bool> {
        let requests = self.api.requests().into_iter().filter(|request| request.path() != "/healthz");
        requests.map(|request| request.uri.contains("sendInitialEvents=true")).collect()
    }
}

fn respond(request: &RecordedRequest, healthy_from: Duration, pods_after: Duration) -> FakeResponse {
    if request.method == Method::POST {
        return FakeResponse::pending();
    }
    let path = request.path();
    if path == "/healthz" {
        let is_healthy = request.at >= healthy_from;
        return if is_healthy { FakeResponse::ok("ok") } else { FakeResponse::new(500, "not yet") };
    }
    if !request.uri.contains("watch=true") {
        return FakeResponse::ok(r#"{"metadata": {"resourceVersion": "5"}, "items": []}"#);
    }
    let object = json!({"type": "ADDED", "object": {
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1", "resourceVersion": "4"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
        },
    }});
    let end = json!({"type": "BOOKMARK", "object": {
        "metadata": {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}},
    }});
    let objects = if path.ends_with("replicasets") { format!("{object}\n") } else { String::new() };
    let delay = if path.ends_with("/pods") { pods_after } else { Duration::ZERO };
    FakeResponse::endless([format!("{objects}{end}\n")]).after(delay)
}

#[tokio::test(start_paused = true)]
async fn unhealthy_api_server_is_an_error_after_ten_seconds() {
    let server = ApiServer::new(Duration::MAX);
    let error = server.run(&ManagerConfig::default(), CancellationToken::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to wait for the API server in this process to become healthy within 10s: \
         GET /healthz: the server answered 500 Internal Server Error without an explanation"
    );
    assert_eq!(server.clock.monotonic(), Duration::from_secs(10));
    assert_eq!(server.seen(), ["kube-controller-manager: GET /healthz"]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_while_the_api_server_is_unhealthy() {
    let server = ApiServer::new(Duration::MAX);
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    server.run(&ManagerConfig::default(), shutdown).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn standby_is_ready_once_all_its_caches_have_synced() {
    let server = ApiServer::with(Duration::ZERO, Duration::from_secs(3));
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let dependencies = Dependencies::new(&server.clients(), &server.clock, &random);
    let informer_sync = dependencies.manager.informer_sync.clone();
    assert_eq!(informer_sync.check(), Err("caches not started".to_owned()));
    let standby = manager(&only("deployment"), &dependencies, "host").unwrap().stand_by();
    let missing = |names: &str| Err(format!("caches not synced: {names}"));
    assert_eq!(informer_sync.check(), missing("deployments, replicasets, pods"));
    server.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(informer_sync.check(), missing("pods"));
    server.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(informer_sync.check(), Ok(()));
    let _controllers = standby.lead().await.unwrap();
    assert_eq!(informer_sync.check(), Ok(()), "a leader stays ready");
}

#[tokio::test(start_paused = true)]
async fn standby_without_controllers_is_ready() {
    let server = ApiServer::new(Duration::ZERO);
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let dependencies = Dependencies::new(&server.clients(), &server.clock, &random);
    let informer_sync = dependencies.manager.informer_sync.clone();
    let _standby = manager(&only("tokencleaner"), &dependencies, "host").unwrap().stand_by();
    assert_eq!(informer_sync.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_follow_the_gate() {
    for watch_list_client in [true, false] {
        let server = ApiServer::new(Duration::ZERO);
        let features = ControllerFeatures { watch_list_client, ..ControllerFeatures::default() };
        let config = ManagerConfig { features, ..only("deployment") };
        run_for(&server, &config, Duration::from_secs(5)).await.unwrap();
        assert_eq!(server.streamed()[..3], [watch_list_client; 3]);
    }
}

async fn run_for(server: &ApiServer, config: &ManagerConfig, time: Duration) -> Result<(), RunError> {
    let shutdown = CancellationToken::new();
    let (token, clock) = (shutdown.clone(), Arc::clone(&server.clock));
    let timer = async move {
        clock.sleep(time).await;
        token.cancel();
    };
    let (outcome, ()) = tokio::join!(server.run(config, shutdown), timer);
    outcome
}

fn only(name: &str) -> ManagerConfig {
    ManagerConfig {
        controllers: ControllerSelection::new(&[name.to_owned()]).unwrap(),
        ..ManagerConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn runs_the_selected_controllers_once_the_api_server_is_healthy() {
    let server = ApiServer::new(Duration::from_secs(3));
    run_for(&server, &only("deployment"), Duration::from_secs(5)).await.unwrap();
    assert_eq!(
        server.seen(),
        [
            "kube-controller-manager: GET /healthz",
            "shared-informers: GET /api/v1/pods",
            "shared-informers: GET /apis/apps/v1/deployments",
            "shared-informers: GET /apis/apps/v1/replicasets",
        ]
    );
    assert_eq!(server.clock.monotonic(), Duration::from_secs(5), "no write is in progress");
}

#[tokio::test(start_paused = true)]
async fn sync_that_does_not_end_exceeds_the_shutdown_timeout() {
    let server = ApiServer::new(Duration::ZERO);
    let error = run_for(&server, &only("replicaset"), Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.to_string(), "controller shutdown timeout reached: replicaset-controller did not stop");
    assert_eq!(server.clock.monotonic(), Duration::from_secs(15));
    assert!(server.seen().contains(&"replicaset-controller: POST /api/v1/namespaces/shop/pods".to_owned()));
    assert!(!server.seen().iter().any(|seen| seen.contains("deployments")), "unused informer");
}

#[tokio::test(start_paused = true)]
async fn start_interval_delays_controllers() {
    let server = ApiServer::new(Duration::ZERO);
    let config = ManagerConfig { controller_start_interval: Duration::from_secs(10), ..only("replicaset") };
    run_for(&server, &config, Duration::from_secs(9)).await.unwrap();
    assert!(!server.seen().iter().any(|seen| seen.contains("POST")));
}

#[tokio::test(start_paused = true)]
async fn metrics_cover_queues_syncs_caches_and_requests() {
    let server = ApiServer::new(Duration::ZERO);
    let metrics =
        Metrics::new(&MetricsOptions::default(), Arc::clone(&server.clock), &BuildInfo::default()).unwrap();
    let mut options = ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::clone(&server.clock));
    options.metrics = metrics.clients();
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let dependencies = Dependencies::new(&server.clients_with(options), &server.clock, &random)
        .with_metrics(metrics.clone());
    let shutdown = CancellationToken::new();
    let manager = manager(&only("replicaset"), &dependencies, "host").unwrap();
    let scrape = async {
        server.clock.sleep(Duration::from_secs(5)).await;
        shutdown.cancel();
        metrics.text()
    };
    let (_, text) = tokio::join!(manager.run(shutdown.clone()), scrape);
    assert_eq!(kcm_testkit::lint(&text), []);
    for series in [
        // The POST of the pod never gets a response.
        "kcm_syncs_in_flight{controller=\"replicaset-controller\"} 1",
        "kcm_sync_duration_seconds_count{controller=\"replicaset-controller\"} 0",
        "workqueue_adds_total{name=\"replicaset\"} 1",
        "kcm_cache_objects{resource=\"replicasets\"} 1",
        "kcm_cache_objects{resource=\"pods\"} 0",
        "kcm_client_throttle_duration_seconds_count{client=\"replicaset-controller\",priority_level=\"rollout\"} 1",
        "rest_client_requests_total{code=\"200\",host=\"none\",method=\"GET\"} 3",
        "running_managed_controllers{manager=\"kube-controller-manager\",name=\"replicaset-controller\"} 1",
    ] {
        assert!(text.lines().any(|line| line == series), "{series} is not in\n{text}");
    }
    let longest = "workqueue_longest_running_processor_seconds{name=\"replicaset\"} ";
    let seconds: f64 = text.lines().find_map(|line| line.strip_prefix(longest)).unwrap().parse().unwrap();
    assert!(seconds > 0.0, "{seconds}");
}

/// Panics on every task except the test's, which runs the election.
#[derive(Debug)]
struct Panicking;

impl Random for Panicking {
    fn next_u64(&self) -> u64 {
        assert!(tokio::task::try_id().is_none(), "on purpose");
        0
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_standbys_informer_is_an_error() {
    let server = ApiServer::new(Duration::ZERO);
    let dependencies =
        Dependencies::new(&server.clients(), &server.clock, &(Arc::new(Panicking) as Arc<dyn Random>));
    let config = ManagerConfig {
        leader_election: Some(LeaderElectionSettings::new("kube-system", "manager")),
        ..only("replicaset-controller")
    };
    // No response contains a Lease, so this process never becomes the leader.
    let error =
        manager(&config, &dependencies, "host").unwrap().run(CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, RunError::Controllers(ControllerError::Panicked(_))), "{error:?}");
    assert!(server.clock.monotonic() < Duration::from_secs(1));
}

/// Clock that panics on the thread of the election.
#[derive(Debug)]
struct PanickingClock(Arc<dyn Clock>);

impl Clock for PanickingClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        assert_ne!(std::thread::current().name(), Some("leader-election"), "on purpose");
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.0.sleep(duration)
    }
}

#[tokio::test]
async fn panic_on_the_thread_of_the_election_is_propagated() {
    let server = ApiServer::new(Duration::ZERO);
    let clock: Arc<dyn Clock> = Arc::new(PanickingClock(Arc::clone(&server.clock)));
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let mut dependencies = Dependencies::new(&server.clients(), &clock, &random);
    dependencies.manager.placement = Placement::OwnThreads;
    let config = ManagerConfig {
        leader_election: Some(LeaderElectionSettings::new("kube-system", "manager")),
        ..only("replicaset-controller")
    };
    let manager = manager(&config, &dependencies, "host").unwrap();
    let outcome = tokio::spawn(manager.run(CancellationToken::new())).await;
    assert!(outcome.unwrap_err().is_panic());
}

mod restore {
    use super::*;

    /// Time of the restore.
    const RESTORE: Duration = Duration::from_secs(10);

    /// Lease of a storage that is restored: its version is lower afterwards.
    #[derive(Default)]
    struct StoredLease {
        version: u64,
        spec: serde_json::Value,
        is_restored: bool,
    }

    impl StoredLease {
        fn respond(&mut self, request: &RecordedRequest) -> FakeResponse {
            if request.at >= RESTORE && !self.is_restored {
                (self.version, self.is_restored) = (50, true);
            }
            if request.method != Method::GET {
                let (written, current) = (request.json(), self.version.to_string());
                if request.method == Method::PUT && written["metadata"]["resourceVersion"] != current {
                    return FakeResponse::failure(409, "Conflict", "another version");
                }
                self.version = self.version.max(99) + 1;
                self.spec = written["spec"].clone();
            } else if self.spec.is_null() {
                return FakeResponse::failure(404, "NotFound", "no Lease");
            }
            let version = self.version.to_string();
            let name = json!({
                "namespace": "kube-system", "name": "manager", "uid": "u", "resourceVersion": version,
            });
            FakeResponse::ok(json!({"metadata": name, "spec": self.spec}))
        }
    }

    /// Runs a manager. `respond` answers all requests apart from those for the Lease.
    async fn run(
        config: ManagerConfig,
        respond: impl Fn(&RecordedRequest) -> FakeResponse + Send + Sync + 'static,
    ) -> (ApiServer, Arc<Mutex<StoredLease>>, Result<(), RunError>) {
        let lease = Arc::new(Mutex::new(StoredLease::default()));
        let stored = Arc::clone(&lease);
        let api = FakeApiServer::new(move |request| {
            if request.path().contains("/leases") { stored.lock().respond(request) } else { respond(request) }
        });
        let server = ApiServer { clock: api.clock(), api };
        let outcome = server.run(&config, CancellationToken::new()).await;
        (server, lease, outcome)
    }

    fn elected(name: &str) -> ManagerConfig {
        let settings = LeaderElectionSettings {
            release_on_cancel: true,
            ..LeaderElectionSettings::new("kube-system", "manager")
        };
        ManagerConfig { leader_election: Some(settings), ..only(name) }
    }

    fn is_restored(outcome: &Result<(), RunError>) -> bool {
        matches!(outcome, Err(RunError::Controllers(ControllerError::Restored)))
    }

    #[tokio::test(start_paused = true)]
    async fn leader_that_reads_an_older_lease_ends() {
        let respond = |request: &RecordedRequest| respond(request, Duration::ZERO, Duration::ZERO);
        let (server, lease, outcome) = run(elected("deployment"), respond).await;
        assert!(is_restored(&outcome), "{outcome:?}");
        assert!((RESTORE..RESTORE + Duration::from_secs(3)).contains(&server.clock.monotonic()));
        assert_eq!(lease.lock().spec["holderIdentity"], "", "the next leader need not wait");
    }

    /// A worker and 30 ReplicaSets without pods. Each creation takes 0.7 s.
    #[tokio::test(start_paused = true)]
    async fn queued_keys_are_not_synced() {
        let respond = |request: &RecordedRequest| {
            if request.method == Method::POST && request.path().ends_with("/pods") {
                let mut pod = request.json();
                pod["metadata"]["uid"] = format!("{}", request.at.as_millis()).into();
                pod["metadata"]["resourceVersion"] = "6".into();
                return FakeResponse::new(201, pod).after(Duration::from_millis(700));
            }
            if request.method == Method::POST {
                return FakeResponse::new(201, request.json());
            }
            if !request.path().ends_with("/replicasets") {
                return respond(request, Duration::ZERO, Duration::ZERO);
            }
            let set = |number: u32| {
                json!({"type": "ADDED", "object": {
                    "metadata": {
                        "namespace": "shop", "name": format!("web-{number}"), "uid": format!("u{number}"),
                        "resourceVersion": "4",
                    },
                    "spec": {
                        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
                    },
                }})
            };
            let end = json!({"type": "BOOKMARK", "object": {
                "metadata": {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}},
            }});
            let lines = (0..30).map(set).chain([end]).map(|event| format!("{event}\n"));
            FakeResponse::endless([lines.collect()])
        };
        let config = ManagerConfig { concurrent_replica_set_syncs: 1, ..elected("replicaset") };
        let (server, lease, outcome) = run(config, respond).await;
        assert!(is_restored(&outcome), "{outcome:?}");
        let requests = server.api.requests();
        let older = requests.iter().find(|request| {
            request.at >= RESTORE && request.method == Method::GET && request.path().contains("/leases")
        });
        let detected = older.unwrap().at;
        let creations = requests.iter().filter(|request| request.path().ends_with("shop/pods"));
        let creations: Vec<_> = creations.filter(|request| request.method == Method::POST).collect();
        assert!(creations.len() > 10, "{}", creations.len());
        assert!(creations.iter().all(|request| request.at <= detected), "a queued key was synced");
        assert_eq!(lease.lock().spec["holderIdentity"], "", "no creation is in flight");
    }

    /// With and without leader election.
    #[tokio::test(start_paused = true)]
    async fn manager_whose_list_is_older_ends() {
        for config in [only("deployment"), elected("deployment")] {
            let (server, _, outcome) = run(config, |request| {
                if !request.path().ends_with("/pods") {
                    return respond(request, Duration::ZERO, Duration::ZERO);
                }
                if !request.uri.contains("sendInitialEvents=true") {
                    return FakeResponse::failure(410, "Expired", "too old").after(Duration::from_secs(1));
                }
                let version = if request.at < RESTORE { "5" } else { "3" };
                let annotations = json!({"k8s.io/initial-events-end": "true"});
                let metadata = json!({"resourceVersion": version, "annotations": annotations});
                let end = json!({"type": "BOOKMARK", "object": {"metadata": metadata}});
                FakeResponse::stream([format!("{end}\n")])
            })
            .await;
            assert!(is_restored(&outcome), "{outcome:?}");
            assert!(server.clock.monotonic() < Duration::from_secs(60));
        }
    }
}
