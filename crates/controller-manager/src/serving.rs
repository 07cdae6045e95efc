//! Routes of the secure port (US-1.7).

use std::sync::Arc;

use kcm_client::ClientOptions;
use kcm_clock::Clock;
use kcm_metrics::HealthStatus;
use kcm_serving::{
    Access, HeaderName, HeaderValue, HealthChecks, HealthMetrics, Response, Routes, SecureServer,
    ServingError, StatuszInfo, configz, debug_flags, flagz, handler, profiling, statusz,
};

use crate::{
    DebugControllers, KUBERNETES_VERSION, Metrics, Options,
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

/// Server of the secure port. `None` if the port is 0.
///
/// # Errors
///
/// If the port is in use, a file cannot be read, or the authenticating API server cannot be reached.
pub(crate) async fn bind(
    options: &Options,
    metrics: &Metrics,
    health: &HealthChecks,
    readiness: &HealthChecks,
    log: Option<Handle>,
    debug: Option<&DebugControllers>,
    client: &ClientOptions,
) -> Result<Option<SecureServer>, ServingError> {
    if options.serving.secure_port == 0 {
        return Ok(None);
    }
    let clock = &client.clock;
    let access = Access::connect(&options.authentication, &options.authorization, client).await?;
    let routes = routes(options, metrics, health, readiness, log, debug, clock);
    SecureServer::bind(&options.serving, BINARY, access, routes, Arc::clone(clock)).await.map(Some)
}

fn routes(
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
        };
        routes = routes.exact("/statusz", statusz(status, Arc::clone(clock)));
    }
    routes
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
