//! Metrics of clients: `rest_client_*` (US-1.8), writes and throttling.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use kcm_client::{ClientMetrics, PriorityLevel, RequestInfo};
use parking_lot::RwLock;

use kcm_metrics::{Counter, Family, Histogram, Registry, Spec, Stability::Alpha};

use super::request_path::RequestPath;

/// Value of the label `code` for requests without a response.
pub(super) const NO_RESPONSE: &str = "<error>";

const LATENCY: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// 64 B to 16 MiB.
const SIZE: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// Metrics of all clients.
pub(super) struct Clients {
    families: Families,
    /// A few for each client, in the order of first use.
    series: RwLock<Vec<Series>>,
}

struct Families {
    request_duration: Family<Histogram, 2>,
    request_size: Family<Histogram, 2>,
    response_size: Family<Histogram, 2>,
    rate_limiter: Family<Histogram, 2>,
    requests: Family<Counter, 3>,
    retries: Family<Counter, 3>,
    throttle: Family<Histogram, 2>,
    writes: Family<Counter, 5>,
    denied: Family<Counter, 4>,
}

/// Time series of a client, server and method. Each is created at its first use, because unused series are not exported.
struct Series {
    client: Box<str>,
    server: Box<str>,
    method: Box<str>,
    request_duration: OnceLock<Arc<Histogram>>,
    request_size: OnceLock<Arc<Histogram>>,
    response_size: OnceLock<Arc<Histogram>>,
    rate_limiter: OnceLock<Arc<Histogram>>,
    /// By priority level.
    throttle: [OnceLock<Arc<Histogram>>; PriorityLevel::ALL.len()],
}

impl Series {
    fn new(request: &RequestInfo<'_>) -> Self {
        Self {
            client: request.client.into(),
            server: request.server.into(),
            method: request.method.as_str().into(),
            request_duration: OnceLock::new(),
            request_size: OnceLock::new(),
            response_size: OnceLock::new(),
            rate_limiter: OnceLock::new(),
            throttle: Default::default(),
        }
    }

    fn matches(&self, request: &RequestInfo<'_>) -> bool {
        *self.method == *request.method.as_str()
            && *self.client == *request.client
            && *self.server == *request.server
    }

    fn labels(&self) -> [&str; 2] {
        [host(&self.server), &self.method]
    }
}

impl Clients {
    pub(super) fn new(registry: &Registry) -> Self {
        Self { families: Families::new(registry), series: RwLock::default() }
    }

    /// Calls `update` with the time series of `request`.
    fn with_series(&self, request: &RequestInfo<'_>, update: impl FnOnce(&Families, &Series)) {
        let find = |series: &&Series| series.matches(request);
        if let Some(series) = self.series.read().iter().find(find) {
            return update(&self.families, series);
        }
        let mut all = self.series.write();
        if let Some(series) = all.iter().find(find) {
            return update(&self.families, series);
        }
        let series = Series::new(request);
        update(&self.families, &series);
        all.push(series);
    }
}

impl Families {
    fn new(registry: &Registry) -> Self {
        let by_verb = |name, help| Spec::upstream(name, Alpha, ["host", "verb"], help);
        Self {
            request_duration: registry.metric(
                by_verb(
                    "rest_client_request_duration_seconds",
                    "Duration of a request in seconds, including client-side throttling and retries, without watches.",
                )
                .buckets(LATENCY),
            ),
            request_size: registry.metric(
                by_verb("rest_client_request_size_bytes", "Size of a request body, in bytes.")
                    .buckets(SIZE),
            ),
            response_size: registry.metric(
                by_verb("rest_client_response_size_bytes", "Size of a response body, in bytes.")
                    .buckets(SIZE),
            ),
            rate_limiter: registry.metric(
                by_verb(
                    "rest_client_rate_limiter_duration_seconds",
                    "Duration of client-side throttling of a request, in seconds.",
                )
                .buckets(LATENCY),
            ),
            requests: registry.metric(Spec::upstream(
                "rest_client_requests_total",
                Alpha,
                ["code", "host", "method"],
                "Requests sent, including retries, by status code of the response, <error> without a response.",
            )),
            retries: registry.metric(Spec::upstream(
                "rest_client_request_retries_total",
                Alpha,
                ["code", "host", "verb"],
                "Retries of requests by status code of the response, <error> without a response.",
            )),
            throttle: registry.metric(
                Spec::own(
                    "kcm_client_throttle_duration_seconds",
                    ["client", "priority_level"],
                    "Duration of client-side throttling of a request by client and priority level, in seconds.",
                )
                .buckets(LATENCY),
            ),
            writes: registry.metric(Spec::own(
                "kcm_client_writes_total",
                ["client", "code", "resource", "subresource", "verb"],
                "Writes sent, including retries, by client, resource, verb and status code of the response, <error> \
                 without a response.",
            )),
            denied: registry.metric(Spec::own(
                "kcm_client_access_denied_total",
                ["client", "resource", "subresource", "verb"],
                "Requests denied by authentication or authorization of the API server, by client. Denials by quotas and \
                 admission are not counted.",
            )),
        }
    }
}

impl ClientMetrics for Clients {
    fn throttled(&self, request: RequestInfo<'_>, waited: Duration) {
        self.with_series(&request, |families, series| {
            let by_verb = series.rate_limiter.get_or_init(|| families.rate_limiter.with(series.labels()));
            by_verb.observe_seconds(waited);
            let level = request.priority_level;
            if let Some(by_level) = series.throttle.get(level as usize) {
                let labels = [&*series.client, level.as_str()];
                by_level.get_or_init(|| families.throttle.with(labels)).observe_seconds(waited);
            }
        });
    }

    fn answered(&self, request: RequestInfo<'_>, code: Option<u16>, _took: Duration) {
        let mut digits = [0; 5];
        let code = code.map_or(NO_RESPONSE, |code| decimal(code, &mut digits));
        let (host, method) = (host(request.server), request.method.as_str());
        self.families.requests.with([code, host, method]).inc();
        if request.attempt > 1 {
            self.families.retries.with([code, host, method]).inc();
        }
        if let Some(verb) = write_verb(method) {
            let RequestPath { resource, subresource } = RequestPath::parse(request.path);
            self.families.writes.with([request.client, code, resource, subresource, verb]).inc();
        }
    }

    fn denied(&self, request: RequestInfo<'_>) {
        let verb = match write_verb(request.method.as_str()) {
            Some(verb) => verb,
            None if request.watch => "watch",
            None => "read",
        };
        let RequestPath { resource, subresource } = RequestPath::parse(request.path);
        self.families.denied.with([request.client, resource, subresource, verb]).inc();
    }

    fn sent(&self, request: RequestInfo<'_>, bytes: usize) {
        if !request.watch {
            self.with_series(&request, |families, series| {
                let size = series.request_size.get_or_init(|| families.request_size.with(series.labels()));
                size.observe(bytes as f64);
            });
        }
    }

    fn received(&self, request: RequestInfo<'_>, bytes: usize) {
        if !request.watch {
            self.with_series(&request, |families, series| {
                let size = series.response_size.get_or_init(|| families.response_size.with(series.labels()));
                size.observe(bytes as f64);
            });
        }
    }

    fn finished(&self, request: RequestInfo<'_>, took: Duration) {
        self.with_series(&request, |families, series| {
            let duration =
                series.request_duration.get_or_init(|| families.request_duration.with(series.labels()));
            duration.observe_seconds(took);
        });
    }
}

/// API verb of a method that writes. `None` for other methods.
fn write_verb(method: &str) -> Option<&'static str> {
    match method {
        "POST" => Some("create"),
        "PUT" => Some("update"),
        "PATCH" => Some("patch"),
        "DELETE" => Some("delete"),
        _ => None,
    }
}

/// Host and port of an address. `none` for an API server in the same process.
fn host(server: &str) -> &str {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    match rest.split_once('/').map_or(rest, |(host, _)| host) {
        "" => "none",
        host => host,
    }
}

/// Formats `n` without an allocation.
pub(super) fn decimal(mut n: u16, digits: &mut [u8; 5]) -> &str {
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
        start -= 1;
        if n == 0 {
            break;
        }
    }
    std::str::from_utf8(digits.get(start..).unwrap_or_default()).unwrap_or_default()
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_has_no_scheme_and_path() {
        for (server, expected) in [
            ("https://10.0.0.1:6443", "10.0.0.1:6443"),
            ("http://[::1]:8080/base", "[::1]:8080"),
            ("api.example", "api.example"),
            ("", "none"),
        ] {
            assert_eq!(host(server), expected);
        }
    }

    #[test]
    fn formats_codes() {
        for code in [0, 7, 200, 409, u16::MAX] {
            assert_eq!(decimal(code, &mut [0; 5]), code.to_string());
        }
    }
}
