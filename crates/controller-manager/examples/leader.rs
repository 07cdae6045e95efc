//! Runs the Deployment controller with leader election. Start it twice: one process is the leader, the other a standby that
//! takes over when the first is interrupted.
//!
//! ```text
//! cargo run -p kcm-controller-manager --example leader -- ~/.kube/config
//! ```

use std::{error::Error, sync::Arc};

use kcm_client::{ClientFactory, ClientOptions, Server, UserAgent};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::{
    ControllerSelection, Dependencies, LeaderElectionSettings, Manager, ManagerConfig, logging,
};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: leader KUBECONFIG")?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    logging::init(&logging::LoggingOptions::default(), Arc::clone(&clock));
    let options = ClientOptions::new(UserAgent::new("leader", "v0.1.0", ""), Arc::clone(&clock));
    let clients =
        ClientFactory::connect(Server::Kubeconfig { path: path.into(), master: None }, options).await?;
    let config = ManagerConfig {
        controllers: ControllerSelection::new(&["deployment".to_owned()])?,
        leader_election: Some(LeaderElectionSettings::new("example-leader")),
        ..ManagerConfig::default()
    };
    let shutdown = CancellationToken::new();
    let interrupted = shutdown.clone();
    tokio::spawn(async move {
        // If the handler cannot be installed, an interrupt terminates the process.
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.cancel();
        }
    });
    let dependencies = Dependencies::new(&clients, &clock, &random);
    Ok(Manager::new(config, dependencies, "my-host").run(shutdown).await?)
}
