//! The demo's story in simulated time: server, stand-ins and both controllers in one process, with no socket.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::ApiServer;
use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock};
use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
use kcm_deployment_controller::{Config as DeploymentConfig, DeploymentController};
use kcm_events::EventBroadcaster;
use kcm_informer::{InformerConfig, SharedInformer};
use kcm_replicaset_controller::{Config as ReplicaSetConfig, ReplicaSetController};
use kcm_sandbox::{
    KubeletConfig, Sandbox, SandboxConfig,
    demo::{self, Frame, Show},
};
use tokio_util::sync::CancellationToken;

struct Quiet;

impl Show for Quiet {
    fn chapter(&mut self, title: &str) {
        if std::env::var_os("SHOW").is_some() {
            println!("== {title}");
        }
    }

    fn frame(&mut self, frame: &Frame) {
        if std::env::var_os("SHOW").is_some() {
            println!("{}", frame.line());
        }
    }

    fn frame_interval(&self) -> Duration {
        Duration::from_millis(10)
    }
}

fn start_controllers(
    server: &Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    stop: CancellationToken,
) {
    let agent = UserAgent::new("test", "v0", "0");
    let factory = ClientFactory::in_process(server.service(), ClientOptions::new(agent, Arc::clone(&clock)));
    let limit = RateLimit { qps: 1000.0, burst: 1000 };
    let shared = factory.client("shared-informers", limit);
    macro_rules! informer {
        ($name:literal, $watch:expr, $indexers:expr) => {
            SharedInformer::new(InformerConfig {
                indexers: $indexers,
                ..InformerConfig::new($name, $watch, Arc::clone(&clock), Arc::clone(&random))
            })
        };
    }
    let pods = informer!("pods", shared.pods(), pod_indexers());
    let sets = informer!("replicasets", shared.replica_sets(), replica_set_indexers());
    let deployments = informer!("deployments", shared.deployments(), deployment_indexers());

    let for_sets = Arc::new(factory.client("replicaset-controller", limit));
    let events = EventBroadcaster::start(for_sets.clone(), Arc::clone(&clock), Arc::clone(&random));
    let set_controller = ReplicaSetController::new(ReplicaSetConfig::new(
        Arc::clone(&clock),
        pods.clone(),
        sets.clone(),
        for_sets.clone(),
        for_sets,
        events.recorder("replicaset-controller"),
    ));
    let for_deployments = Arc::new(factory.client("deployment-controller", limit));
    let events = EventBroadcaster::start(for_deployments.clone(), Arc::clone(&clock), random);
    let deployment_controller = DeploymentController::new(DeploymentConfig::new(
        clock,
        deployments.clone(),
        sets.clone(),
        pods.clone(),
        for_deployments.clone(),
        for_deployments,
        events.recorder("deployment-controller"),
    ));
    tokio::spawn({
        let s = stop.clone();
        async move { pods.run(s).await }
    });
    tokio::spawn({
        let s = stop.clone();
        async move { sets.run(s).await }
    });
    tokio::spawn({
        let s = stop.clone();
        async move { deployments.run(s).await }
    });
    tokio::spawn({
        let s = stop.clone();
        async move { set_controller.run(5, s).await }
    });
    tokio::spawn(async move { deployment_controller.run(5, stop).await });
}

#[tokio::test(start_paused = true)]
async fn story_in_simulated_time_comes_to_its_end_within_the_bounds() {
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let server = ApiServer::new(kcm_apiserver::Config {
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        ..kcm_apiserver::Config::default()
    });
    let stop = CancellationToken::new();
    let sandbox = Sandbox::new(SandboxConfig {
        server: Arc::clone(&server),
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        nodes: 2,
        kubelet: KubeletConfig::default(),
    })
    .unwrap();
    tokio::spawn({
        let s = stop.clone();
        async move { sandbox.run(s).await }
    });
    start_controllers(&server, Arc::clone(&clock), random, stop.clone());

    let summary = demo::play(Arc::clone(&server), clock, &mut Quiet).await.unwrap();
    println!("{summary}");
    assert_eq!((summary.tally.over, summary.tally.under), (0, 0), "{summary}");
    stop.cancel();
}
