//! Hooks for metrics.

use std::{fmt, time::Duration};

use http::Method;

/// Request that is observed.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
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
}

/// Hooks for metrics of requests. Methods do nothing by default and must not block.
///
/// Upstream counterpart: `client-go/tools/metrics`.
pub trait ClientMetrics: fmt::Debug + Send + Sync + 'static {
    /// A request passed the rate limit after `waited`, which may be zero.
    fn throttled(&self, call: Call<'_>, waited: Duration) {
        let _ = (call, waited);
    }

    /// The head of a response arrived after `took`. `code` is `None` if there was no response.
    fn answered(&self, call: Call<'_>, code: Option<u16>, took: Duration) {
        let _ = (call, code, took);
    }

    /// The API server rejected the credentials or the permissions of a request, see
    /// [`ApiError::is_access_denied`](kcm_api::ApiError::is_access_denied).
    fn denied(&self, call: Call<'_>) {
        let _ = call;
    }

    /// A request will be retried. `code` is `None` if there was no response.
    fn retried(&self, call: Call<'_>, code: Option<u16>) {
        let _ = (call, code);
    }

    /// A request with a body of `bytes` is about to be sent. Called before each attempt.
    fn sent(&self, call: Call<'_>, bytes: usize) {
        let _ = (call, bytes);
    }

    /// A body of `bytes` was received, also of error responses. Not called for watches.
    fn received(&self, call: Call<'_>, bytes: usize) {
        let _ = (call, bytes);
    }

    /// A request ended `took` after the call, including retries and waits for the rate limit. Not called for watches.
    fn finished(&self, call: Call<'_>, took: Duration) {
        let _ = (call, took);
    }
}

/// Records no metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoClientMetrics;

impl ClientMetrics for NoClientMetrics {}
