//! Runs the ReplicaSet controller in another program, without leader election.
//!
//! ```text
//! cargo run -p kcm-controller-manager --example embed -- ~/.kube/config
//! ```

use std::{process::ExitCode, sync::Arc};

use kcm_client::{ClientFactory, ClientOptions, Server, UserAgent};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::{ControllerSelection, Controllers, ManagerConfig, logging};

#[tokio::main]
async fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: embed KUBECONFIG");
        return ExitCode::FAILURE;
    };
    match embed(Server::Kubeconfig { path: path.into(), master: None }).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn embed(server: Server) -> Result<(), Box<dyn std::error::Error>> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    let options = logging::LoggingOptions { verbosity: 2, ..logging::LoggingOptions::default() };
    logging::init(&options, Arc::clone(&clock));
    let agent = UserAgent::new("embed", "v0.1.0", "");
    let clients = ClientFactory::connect(server, ClientOptions::new(agent, Arc::clone(&clock))).await?;
    let config = ManagerConfig {
        controllers: ControllerSelection::new(&["replicaset".to_owned()])?,
        concurrent_replica_set_syncs: 20,
        ..ManagerConfig::default()
    };
    let mut controllers = Controllers::start(&config, &clients, &clock, &random);
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        failure = controllers.failed() => return Err(failure.into()),
    }
    Ok(controllers.stop().await?)
}
