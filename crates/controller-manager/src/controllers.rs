//! A manager with the controllers of this crate.

use std::sync::Arc;

use kcm_client::{ClientOptions, InProcessServer};
use kcm_clock::{Clock, Random};
use kcm_leader_election::ElectionConfigError;
use kcm_manager::{Controllers, Manager, Settings};

use crate::{
    Dependencies, ManagerConfig, descriptor::CONTROLLERS, manager_informers::ManagerInformers, user_agent,
    version::BINARY,
};

/// Manager with the controllers that `config` selects. `host` is part of the holder identity in the Lease.
///
/// # Errors
///
/// If the settings of leader election are invalid.
///
/// # Panics
///
/// With leader election, outside of a Tokio runtime.
pub fn manager(
    config: &ManagerConfig,
    dependencies: &Dependencies,
    host: impl Into<String>,
) -> Result<Manager, ElectionConfigError> {
    let mut manager = Manager::new(settings(config, host.into()), dependencies.manager.clone())?;
    add_controllers(&mut manager, config, dependencies);
    Ok(manager)
}

fn settings(config: &ManagerConfig, host: String) -> Settings {
    Settings {
        host,
        rate_limit: config.rate_limit,
        min_resync_period: config.min_resync_period,
        streaming_lists: config.features.watch_list_client,
        controller_start_interval: config.controller_start_interval,
        controller_shutdown_timeout: config.controller_shutdown_timeout,
        leader_election: config.leader_election.clone(),
        unserved: config.unserved_controllers(),
        ..Settings::new(BINARY)
    }
}

fn add_controllers(manager: &mut Manager, config: &ManagerConfig, dependencies: &Dependencies) {
    for descriptor in CONTROLLERS {
        if !config.controllers.includes(descriptor.name) {
            // Upstream's message and level.
            tracing::info!(controller = descriptor.name, "Warning: controller is disabled");
            continue;
        }
        let constructor = (descriptor.prepare)(&ManagerInformers {
            config,
            metrics: dependencies.metrics.as_ref(),
            debug: dependencies.debug.as_ref(),
            manager,
        });
        manager.add_constructor(descriptor.name, constructor);
    }
}

/// Starts the controllers that `config` selects, without leader election. No other process may run the same controllers.
///
/// See [`Manager::start`].
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn start(config: &ManagerConfig, dependencies: &Dependencies) -> Controllers {
    let mut manager =
        Manager::without_election(settings(config, String::new()), dependencies.manager.clone());
    add_controllers(&mut manager, config, dependencies);
    manager.start()
}

/// Starts the controllers as [`start`] does, with an API server in this process, such as the embedded one.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn start_in_process(
    config: &ManagerConfig,
    server: impl InProcessServer,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
) -> Controllers {
    let options = ClientOptions::new(user_agent(), Arc::clone(clock));
    start(config, &Dependencies::new(&server.clients(options), clock, random))
}

#[cfg(test)]
mod tests;
