//! Secure port of a manager.

use std::{future::pending, sync::Arc};

use kcm_client::ClientOptions;
use kcm_metrics::HealthStatus;
use kcm_serving::{
    Access, AuthenticationOptions, AuthorizationOptions, HeaderName, HeaderValue, HealthChecks,
    HealthMetrics, Response, Routes, SecureServer, ServingOptions, handler,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{Metrics, Placement, RunError};

/// Name of the thread of the port.
const THREAD: &str = "secure-port";

/// Secure port: routes, and who may read them.
#[derive(Debug, Clone)]
pub struct Port {
    /// Name of the program, for the self-signed certificate.
    pub name: &'static str,
    /// Address and certificates.
    pub serving: ServingOptions,
    /// Authentication of requests.
    pub authentication: AuthenticationOptions,
    /// Authorization of requests.
    pub authorization: AuthorizationOptions,
    /// Options of the client that reviews requests.
    pub client: ClientOptions,
    /// Routes.
    pub routes: Routes,
}

impl Port {
    /// Health checks that record their outcomes in `metrics`, as `kubernetes_healthcheck` and
    /// `kubernetes_healthchecks_total`.
    pub fn health(metrics: &Metrics) -> HealthChecks {
        HealthChecks::with_metrics(Arc::new(HealthCheckMetrics(metrics.clone())))
    }

    /// Adds `/healthz`, `/readyz`, `/metrics` and `/metrics/slis` to `routes`.
    pub fn add_routes(
        routes: Routes,
        metrics: &Metrics,
        health: &HealthChecks,
        readiness: &HealthChecks,
    ) -> Routes {
        let (all, slis) = (metrics.clone(), metrics.clone());
        routes
            .health("/healthz", health)
            .health("/readyz", readiness)
            .exact("/metrics", handler(move |_| exposition(&all, all.text())))
            .exact("/metrics/slis", handler(move |_| exposition(&slis, slis.slis_text())))
    }

    /// Runs `work` after the port is bound, and serves the port until `work` ends.
    pub(crate) async fn serve_while(
        self,
        placement: Placement,
        work: impl Future<Output = Result<(), RunError>>,
    ) -> Result<(), RunError> {
        let Self { name, serving, authentication, authorization, client, routes } = self;
        let (bound, is_bound) = oneshot::channel();
        let serve = async move {
            let access = Access::connect(&authentication, &authorization, &client).await?;
            let server = SecureServer::bind(&serving, name, access, routes, client.clock).await?;
            // The receiver is dropped if the process ends.
            let _ = bound.send(());
            server.run(CancellationToken::new()).await;
            // Not reached, because the token is not cancelled.
            pending::<Result<(), RunError>>().await
        };
        // Dropping the future stops the server.
        let mut port =
            placement.start(THREAD, serve).map_err(|cause| RunError::Thread { name: THREAD, cause })?;
        tokio::select! {
            biased;
            outcome = &mut port => return outcome,
            // An error means that the port is not served.
            _ = is_bound => {}
        }
        tokio::select! {
            biased;
            outcome = port => outcome,
            outcome = work => outcome,
        }
    }
}

struct HealthCheckMetrics(Metrics);

impl HealthMetrics for HealthCheckMetrics {
    fn checked(&self, name: &str, page: &str, is_healthy: bool) {
        let status = if is_healthy { HealthStatus::Success } else { HealthStatus::Error };
        self.0.health_check(name, page, status);
    }
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
