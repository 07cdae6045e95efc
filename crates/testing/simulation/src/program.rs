//! Program of the simulated managers: all controllers of `kcm-controller-manager`, with an election.

use std::{sync::Arc, time::Duration};

use kcm_client::{ClientFactory, ClientOptions, RateLimit};
use kcm_clock::{Random, SeededRandom};
use kcm_controller_manager::{
    ControllerFeatures, ControllerSelection, Dependencies, LeaderElectionSettings, ManagerConfig,
    UnknownControllers, user_agent,
};
use kcm_simulation::engine::{
    managers::{Execution, ManagerProgram},
    network::ProcessConnection,
};
use tokio_util::sync::CancellationToken;

use crate::scenario::ManagerSettings;

const CONTROLLERS: [&str; 3] =
    ["deployment-controller", "replicaset-controller", "replicationcontroller-controller"];

/// Timeout of requests, in place of the pings of HTTP/2, which find a silent connection dead.
const SILENT_CONNECTION: Duration = Duration::from_secs(60);

/// Controller manager with the settings of a scenario.
pub(crate) struct ControllerManager(ManagerConfig);

impl ControllerManager {
    pub(crate) fn new(settings: &ManagerSettings) -> Result<Arc<Self>, UnknownControllers> {
        let lease = Duration::from_secs(settings.lease);
        let config = ManagerConfig {
            controllers: ControllerSelection::new(&CONTROLLERS.map(str::to_owned))?,
            concurrent_deployment_syncs: settings.workers,
            concurrent_replica_set_syncs: settings.workers,
            concurrent_replication_controller_syncs: settings.workers,
            rate_limit: RateLimit { qps: f64::from(settings.qps), burst: settings.qps * 3 / 2 },
            leader_election: (settings.lease > 0).then(|| LeaderElectionSettings {
                lease_duration: lease,
                renew_deadline: lease * 2 / 3,
                retry_period: lease * 2 / 15,
                ..LeaderElectionSettings::new("kube-system", "kube-controller-manager-rs")
            }),
            features: ControllerFeatures {
                deployment_replica_set_terminating_replicas: settings.terminating_replicas,
                ..ControllerFeatures::default()
            },
            ..ManagerConfig::default()
        };
        Ok(Arc::new(Self(config)))
    }
}

impl ManagerProgram for ControllerManager {
    fn run(&self, connection: ProcessConnection, seed: u64, stop: CancellationToken) -> Execution {
        let process = Arc::clone(&connection.process);
        let clock = process.clock(&connection.network);
        let options = ClientOptions {
            timeout: Some(SILENT_CONNECTION),
            ..ClientOptions::new(user_agent(), Arc::clone(&clock))
        };
        let clients = ClientFactory::in_process(connection, options);
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(!seed));
        let identity = format!("m{}", process.manager);
        let mut dependencies = Dependencies::new(&clients, &clock, &random);
        dependencies.manager.syncs = Some(Arc::new(move |controller| process.sync_metrics(controller)));
        let config = self.0.clone();
        Box::pin(async move {
            let manager = kcm_controller_manager::manager(&config, &dependencies, identity)
                .map_err(|error| error.to_string())?;
            manager.run(stop).await.map_err(|error| error.to_string())
        })
    }
}
