//! Hooks for metrics.

use std::{fmt, time::Duration};

use http::Method;

use crate::PriorityLevel;

/// Request that is observed.
#[derive(Debug, Clone, Copy)]
pub struct RequestInfo<'a> {
    /// Name of the client, such as `deployment-controller`.
    pub client: &'a str,
    /// Address of the API server, such as `https://10.0.0.1:6443`.
    pub server: &'a str,
    /// HTTP method.
    pub method: &'a Method,
    /// Path without the query, such as `/apis/apps/v1/namespaces/default/replicasets`.
    pub path: &'a str,
    /// Number of the attempt, starting with 1.
    pub attempt: u32,
    /// `true` for a watch.
    pub watch: bool,
    /// Priority at the rate limit.
    pub priority_level: PriorityLevel,
}

/// Hooks for metrics of requests. Methods do nothing by default and must not block.
///
/// Upstream counterpart: `client-go/tools/metrics`.
pub trait ClientMetrics: fmt::Debug + Send + Sync + 'static {
    /// A request passed the rate limit after `waited`, which may be zero.
    fn throttled(&self, request: RequestInfo<'_>, waited: Duration) {
        let _ = (request, waited);
    }

    /// The head of a response arrived after `took`. `code` is `None` if there was no response.
    fn answered(&self, request: RequestInfo<'_>, code: Option<u16>, took: Duration) {
        let _ = (request, code, took);
    }

    /// The API server rejected the credentials or the permissions of a request, see
    /// [`ApiError::is_access_denied`](kcm_api::ApiError::is_access_denied).
    fn denied(&self, request: RequestInfo<'_>) {
        let _ = request;
    }

    /// A request will be retried. `code` is `None` if there was no response.
    fn retried(&self, request: RequestInfo<'_>, code: Option<u16>) {
        let _ = (request, code);
    }

    /// A request with a body of `bytes` is about to be sent. Called before each attempt.
    fn sent(&self, request: RequestInfo<'_>, bytes: usize) {
        let _ = (request, bytes);
    }

    /// A body of `bytes` was received, also of error responses. Not called for watches.
    fn received(&self, request: RequestInfo<'_>, bytes: usize) {
        let _ = (request, bytes);
    }

    /// A request ended `took` after it was made, including retries and waits for the rate limit. Not called for watches.
    fn finished(&self, request: RequestInfo<'_>, took: Duration) {
        let _ = (request, took);
    }
}

/// Records no metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoClientMetrics;

impl ClientMetrics for NoClientMetrics {}
