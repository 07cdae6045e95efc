//! Routes of the secure port (US-1.7).

use std::{convert::Infallible, future::pending, sync::Arc};

use kcm_client::ClientOptions;
use kcm_clock::Clock;
use kcm_metrics::HealthStatus;
use kcm_serving::{
    Access, HeaderName, HeaderValue, HealthChecks, HealthMetrics, Response, Routes, SecureServer,
    ServingError, StatuszInfo, configz, debug_flags, flagz, handler, profiling, statusz,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    DebugControllers, KUBERNETES_VERSION, ManagerConfig, Metrics, Options,
    configz::{CONFIGZ_NAME, configz as configuration},
    debug,
    logging::Handle,
    version::BINARY,
};

/// Health checks that record their outcomes in `metrics`.
pub(crate) fn health(metrics: &Metrics) -> HealthChecks {
    HealthChecks::with_metrics(Arc::new(HealthCheckMetrics(metrics.clone())))
}

/// Records `kubernetes_healthcheck` and `kubernetes_healthchecks_total`.
struct HealthCheckMetrics(Metrics);

impl HealthMetrics for HealthCheckMetrics {
    fn checked(&self, name: &str, page: &str, is_healthy: bool) {
        let status = if is_healthy { HealthStatus::Success } else { HealthStatus::Error };
        self.0.health_check(name, page, status);
    }
}

/// Serves the secure port. Sends on `bound` when it does, and returns only errors.
///
/// # Errors
///
/// If the port is in use, a file cannot be read, or the authenticating API server cannot be reached.
pub(crate) fn serve(
    options: &Options,
    routes: Routes,
    client: ClientOptions,
    bound: oneshot::Sender<()>,
) -> impl Future<Output = Result<Infallible, ServingError>> + Send + 'static {
    let (serving, authentication, authorization) =
        (options.serving.clone(), options.authentication.clone(), options.authorization.clone());
    async move {
        let access = Access::connect(&authentication, &authorization, &client).await?;
        let server = SecureServer::bind(&serving, BINARY, access, routes, client.clock).await?;
        // The receiver is dropped if the process ends.
        let _ = bound.send(());
        server.run(CancellationToken::new()).await;
        // Not reached, because the token is not cancelled.
        pending().await
    }
}

/// Routes of the secure port.
pub(crate) fn routes(
    options: &Options,
    metrics: &Metrics,
    health: &HealthChecks,
    readiness: &HealthChecks,
    log: Option<Handle>,
    debug: Option<&DebugControllers>,
    clock: &Arc<dyn Clock>,
) -> Routes {
    let (all, slis) = (metrics.clone(), metrics.clone());
    let mut routes = Routes::new()
        .health("/healthz", health)
        .health("/readyz", readiness)
        .exact("/metrics", handler(move |_| exposition(&all, all.text())))
        .exact("/metrics/slis", handler(move |_| exposition(&slis, slis.slis_text())))
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

fn exposition(metrics: &Metrics, text: String) -> Response {
    let response = Response::of_type(kcm_metrics::CONTENT_TYPE, text);
    match metrics.process_start() {
        Some(start) => {
            let name = HeaderName::from_static(Metrics::PROCESS_START_HEADER);
            response.with(name, HeaderValue::from(start as i64))
        }
        None => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaderElectionSettings;

    #[test]
    fn upstreams_lease_is_a_notice() {
        let with_lease = |name| ManagerConfig {
            leader_election: Some(LeaderElectionSettings::new(name)),
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
