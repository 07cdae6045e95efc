//! A window for metrics.

use std::{fmt, time::Duration};

use http::Method;

/// Which request an observation is about.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The client's name, such as `deployment-controller`.
    pub client: &'a str,
    /// Where the request goes, such as `https://10.0.0.1:6443`.
    pub server: &'a str,
    /// The HTTP method.
    pub method: &'a Method,
    /// The path without its query, such as `/apis/apps/v1/namespaces/default/replicasets`.
    pub path: &'a str,
    /// 1 when it is sent for the first time, 2 for the first repetition.
    pub attempt: u32,
    /// Whether the answer is a stream of events.
    pub watch: bool,
}

/// Is told what the clients do. All methods do nothing unless implemented; they must not block.
///
/// Upstream counterpart: `client-go/tools/metrics`.
pub trait ClientMetrics: fmt::Debug + Send + Sync + 'static {
    /// A request waited for its turn. Called for those that waited for zero time, too.
    fn throttled(&self, call: Call<'_>, waited: Duration) {
        let _ = (call, waited);
    }

    /// The head of an answer came after `took`; `None` when none came.
    fn answered(&self, call: Call<'_>, code: Option<u16>, took: Duration) {
        let _ = (call, code, took);
    }

    /// The API server refused a request for lack of credentials or rights, see
    /// [`ApiError::is_access_denied`](kcm_api::ApiError::is_access_denied).
    fn denied(&self, call: Call<'_>) {
        let _ = call;
    }

    /// A request will be sent again; `None` when no answer came to the last.
    fn retried(&self, call: Call<'_>, code: Option<u16>) {
        let _ = (call, code);
    }

    /// A request with a body of so many bytes is sent, zero for none. Told before each attempt.
    fn sent(&self, call: Call<'_>, bytes: usize) {
        let _ = (call, bytes);
    }

    /// A body of so many bytes came, be it of a success or of a refusal. Not told of what a watch says.
    fn received(&self, call: Call<'_>, bytes: usize) {
        let _ = (call, bytes);
    }

    /// A request came to its end, well or not, `took` after it was asked for: waiting for its turn and every
    /// repetition included. Not told of watches.
    fn finished(&self, call: Call<'_>, took: Duration) {
        let _ = (call, took);
    }
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoClientMetrics;

impl ClientMetrics for NoClientMetrics {}
