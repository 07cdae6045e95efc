//! Program of the operator.
//!
//! ```text
//! website-operator crd           # prints the CustomResourceDefinition
//! website-operator [KUBECONFIG]  # runs the operator; without a kubeconfig as a pod of the cluster
//! ```
//!
//! Environment: `POD_NAMESPACE` (namespace of the Lease), `POD_NAME` (name of this process), `PORT` (secure port).

use std::{env, error::Error, path::PathBuf, sync::Arc, time::Duration};

use kcm_client::{ClientFactory, ClientOptions, Server, UserAgent};
use kcm_clock::{Clock, RealClock, SeededRandom};
use kcm_controller_manager::{Metrics, logging};
use kcm_leader_election::{HEALTH_CHECK_NAME, HEALTH_TOLERANCE};
use kcm_metrics::{BuildInfo, MetricsOptions};
use kcm_serving::{
    Access, AuthenticationOptions, AuthorizationOptions, HealthChecks, Response, Routes, SecureServer,
    ServingOptions, handler,
};
use kube_core::CustomResourceExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use website_operator::{
    controller::NAME,
    dns::FakeDns,
    operator::{Dependencies, Operator},
    website::Website,
};

/// Default port of `/metrics`, `/healthz` and `/readyz`.
const PORT: u16 = 8443;
/// Time after which a worker counts as stuck.
const STUCK: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let argument = env::args_os().nth(1);
    if argument.as_deref() == Some("crd".as_ref()) {
        print!("{}", serde_saphyr::to_string(&Website::crd())?);
        return Ok(());
    }
    let kubeconfig = argument.map(PathBuf::from);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    logging::init(&logging::LoggingOptions::default(), Arc::clone(&clock));
    let metrics =
        Arc::new(Metrics::new(&MetricsOptions::default(), Arc::clone(&clock), &BuildInfo::default())?);

    let mut options = ClientOptions::new(UserAgent::new(NAME, "v0.1.0", ""), Arc::clone(&clock));
    options.metrics = metrics.clients();
    let server = match &kubeconfig {
        Some(path) => Server::Kubeconfig { path: path.clone(), master: None },
        None => Server::InCluster,
    };
    let operator = Operator::new(Dependencies {
        clients: ClientFactory::connect(server, options.clone()).await?,
        dns: Arc::new(FakeDns::default()),
        clock: Arc::clone(&clock),
        random: Arc::new(SeededRandom::from_entropy()),
        metrics: Arc::clone(&metrics),
        namespace: env::var("POD_NAMESPACE").unwrap_or_else(|_| "default".to_owned()),
        host: env::var("POD_NAME").unwrap_or_else(|_| "localhost".to_owned()),
    })?;

    let (alive, ready) = (HealthChecks::new(), HealthChecks::new());
    let (health, election) = (operator.health(), operator.election());
    let caches = health.clone();
    ready.add("informers", Arc::new(move || caches.synced().map_err(|error| error.to_string())));
    alive.add("workers", Arc::new(move || health.responsive(STUCK).map_err(|error| error.to_string())));
    let election = move || election.check(HEALTH_TOLERANCE).map_err(|error| error.to_string());
    alive.add(HEALTH_CHECK_NAME, Arc::new(election));
    let routes = Routes::new()
        .health("/healthz", &alive)
        .health("/readyz", &ready)
        .exact("/metrics", handler(move |_| Response::text(metrics.text())));
    let access = Access::connect(
        &AuthenticationOptions { kubeconfig: kubeconfig.clone(), ..AuthenticationOptions::default() },
        &AuthorizationOptions { kubeconfig, ..AuthorizationOptions::default() },
        &options,
    )
    .await?;
    let secure_port = env::var("PORT").map_or(Ok(PORT), |port| port.parse())?;
    let serving = ServingOptions { secure_port, ..ServingOptions::default() };
    let port = SecureServer::bind(&serving, NAME, access, routes, clock).await?;

    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let stop_port = stop.clone();
    let served = tokio::spawn(async move { port.run(stop_port).await });
    tokio::select! {
        () = operator.run(stop.clone()) => {}
        () = async {
            terminate.recv().await;
            stop.cancel();
            std::future::pending::<()>().await;
        } => {}
    }
    stop.cancel();
    served.await?;
    Ok(())
}
