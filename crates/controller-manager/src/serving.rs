//! Routes of the secure port (US-1.7).

use std::sync::Arc;

use kcm_clock::Clock;
use kcm_manager::{Port, logging::Handle};
use kcm_serving::{HealthChecks, Routes, StatuszInfo, configz, debug_flags, flagz, profiling, statusz};

use crate::{
    DebugControllers, KUBERNETES_VERSION, ManagerConfig, Metrics, Options,
    configz::{CONFIGZ_NAME, configz as configuration},
    debug,
    version::BINARY,
};

/// Inputs of [`routes`].
pub(crate) struct RouteInputs<'a> {
    pub options: &'a Options,
    pub metrics: &'a Metrics,
    /// Checks of `/healthz`.
    pub health: &'a HealthChecks,
    /// Checks of `/readyz`.
    pub readiness: &'a HealthChecks,
    /// Handle that `/debug/flags/v` changes the log verbosity with.
    pub log: Option<Handle>,
    /// Controllers of the debug pages, or `None` without `--profiling`.
    pub debug: Option<&'a DebugControllers>,
    pub clock: &'a Arc<dyn Clock>,
}

/// Routes of the secure port.
pub(crate) fn routes(inputs: RouteInputs<'_>) -> Routes {
    let RouteInputs { options, metrics, health, readiness, log, debug, clock } = inputs;
    let mut routes = Port::add_routes(Routes::new(), metrics, health, readiness)
        .exact("/configz", configz(CONFIGZ_NAME, &configuration(options)));
    if options.features.is_enabled("ComponentFlagz") {
        routes = routes.exact("/flagz", flagz(BINARY, options.flags.flagz()));
    }
    if options.profiling {
        routes = profiling(routes);
        routes = debug_flags(routes, move |verbosity| {
            if let Some(log) = &log {
                log.set_verbosity(u8::try_from(verbosity).unwrap_or(u8::MAX));
            }
        });
    }
    if let Some(debug) = debug {
        routes = routes.prefix(debug::PREFIX, debug.handler());
    }
    if options.features.is_enabled("ComponentStatusz") {
        let version = KUBERNETES_VERSION.trim_start_matches('v');
        let mut paths = routes.paths();
        paths.push("/statusz".to_owned());
        let status = StatuszInfo {
            component: BINARY.to_owned(),
            started: clock.now(),
            binary_version: version.to_owned(),
            emulation_version: version.to_owned(),
            compiler: concat!("rustc ", env!("CARGO_PKG_RUST_VERSION"), "+").to_owned(),
            paths,
            notices: notices(&options.manager),
        };
        routes = routes.exact("/statusz", statusz(status, Arc::clone(clock)));
    }
    routes
}

/// Lines of `/statusz` about the configuration.
fn notices(config: &ManagerConfig) -> Vec<String> {
    let unserved = config.unserved_controllers();
    if unserved.is_empty() {
        return Vec::new();
    }
    vec![format!("no process runs these controllers while this process leads: {}", unserved.join(" "))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaderElectionSettings;

    #[test]
    fn upstreams_lease_is_a_notice() {
        let with_lease = |name| ManagerConfig {
            leader_election: Some(LeaderElectionSettings::new("kube-system", name)),
            ..ManagerConfig::default()
        };
        assert!(notices(&with_lease("kube-controller-manager-rs")).is_empty());
        let notices = notices(&with_lease("kube-controller-manager"));
        let [notice] = notices.as_slice() else { panic!("{notices:?}") };
        assert!(
            notice.contains(" job-controller ") && !notice.contains(" deployment-controller "),
            "{notice}"
        );
    }
}
