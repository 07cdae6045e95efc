//! Runs a leader election with a Lease, and prints its changes. Start it twice.
//!
//! ```text
//! cargo run -p kcm-controller-manager --example lead -- ~/.kube/config default example-controller node-a
//! ```
//!
//! The first interrupt (Ctrl-C) releases the Lease. The other candidate watches the Lease and acquires it within
//! milliseconds.

use std::{error::Error, process::ExitCode, sync::Arc};

use kcm_api::ObjectKey;
use kcm_client::{ClientFactory, ClientOptions, RateLimit, Server, UserAgent};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::adapters::LeaseClient;
use kcm_leader_election::{
    ElectionMetrics, ElectionOutcome, LeaderElectionConfig, LeaderElector, Leadership, identity,
};
use tokio_util::sync::CancellationToken;

/// Prints changes with their time.
struct Printer(Arc<dyn Clock>);

impl ElectionMetrics for Printer {
    fn leading(&self, election: &str, leading: bool) {
        println!("{:.6} {election}: {}", self.0.now(), if leading { "leading" } else { "not leading" });
    }

    fn new_leader(&self, election: &str, identity: &str) {
        println!("{:.6} {election}: held by {identity:?}", self.0.now());
    }
}

async fn lead(leadership: Leadership, stop: CancellationToken) {
    // A controller would run here and check the leadership before each write.
    assert!(leadership.is_leader());
    stop.cancelled().await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, namespace, name, host] = &arguments[..] else {
        eprintln!("usage: lead KUBECONFIG NAMESPACE NAME HOST");
        return ExitCode::FAILURE;
    };
    match stand(path, ObjectKey::new(namespace.as_str(), name.as_str()), host).await {
        Ok(ElectionOutcome::Lost(loss)) => {
            eprintln!("leader election lost: {loss}");
            ExitCode::FAILURE
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn stand(path: &str, lease: ObjectKey, host: &str) -> Result<ElectionOutcome<()>, Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    let options = ClientOptions::new(UserAgent::new("lead", "v0.1.0", ""), Arc::clone(&clock));
    let server = Server::Kubeconfig { path: path.into(), master: None };
    let factory = ClientFactory::connect(server, options).await?;
    let client = factory.for_election().client("leader-election", RateLimit::DEFAULT);

    let mut elector = LeaderElector::new(LeaderElectionConfig {
        unique_identity: true,
        release_on_cancel: true,
        metrics: Arc::new(Printer(Arc::clone(&clock))),
        ..LeaderElectionConfig::new(
            lease.clone(),
            identity(host, &*random),
            Arc::new(LeaseClient::new(&client)),
            Arc::clone(&clock),
            random,
        )
    })?;

    let trigger = elector.acquire_trigger();
    let leases = client.api();
    tokio::spawn(async move { leases.watch_object(&lease, |lease| trigger.lease_changed(lease)).await });
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            let _ = tokio::signal::ctrl_c().await;
            println!("{:.6} interrupted", clock.now());
            stop.cancel();
        }
    });
    Ok(elector.run(&stop, |leadership| lead(leadership, stop.clone())).await)
}
