//! `rest_client_*` (US-1.8), and what clients wrote and waited for.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use kcm_client::{Call, ClientMetrics};
use parking_lot::RwLock;

use crate::{Counter, Family, Histogram, Registry, Spec, Stability::Alpha, path::Target};

/// What upstream calls the code of a request without an answer.
pub(crate) const NO_ANSWER: &str = "<error>";

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

/// Counts what clients do.
pub(crate) struct Clients {
    families: Families,
    /// In the order in which they were first heard of: a few for each client.
    lanes: RwLock<Vec<Lane>>,
}

struct Families {
    request_duration: Family<Histogram, 2>,
    request_size: Family<Histogram, 2>,
    response_size: Family<Histogram, 2>,
    rate_limiter: Family<Histogram, 2>,
    requests: Family<Counter, 3>,
    retries: Family<Counter, 3>,
    throttle: Family<Histogram, 1>,
    writes: Family<Counter, 5>,
    denied: Family<Counter, 4>,
}

/// The series of one client's requests of one method, as soon as each is asked for: one that never is must not be shown.
struct Lane {
    client: Box<str>,
    server: Box<str>,
    method: Box<str>,
    request_duration: OnceLock<Arc<Histogram>>,
    request_size: OnceLock<Arc<Histogram>>,
    response_size: OnceLock<Arc<Histogram>>,
    rate_limiter: OnceLock<Arc<Histogram>>,
    throttle: OnceLock<Arc<Histogram>>,
}

impl Lane {
    fn of(call: &Call<'_>) -> Self {
        Self {
            client: call.client.into(),
            server: call.server.into(),
            method: call.method.as_str().into(),
            request_duration: OnceLock::new(),
            request_size: OnceLock::new(),
            response_size: OnceLock::new(),
            rate_limiter: OnceLock::new(),
            throttle: OnceLock::new(),
        }
    }

    fn is_of(&self, call: &Call<'_>) -> bool {
        *self.method == *call.method.as_str() && *self.client == *call.client && *self.server == *call.server
    }

    fn labels(&self) -> [&str; 2] {
        [host(&self.server), &self.method]
    }
}

impl Clients {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self { families: Families::new(registry), lanes: RwLock::default() }
    }

    /// Tells the series of such calls.
    fn tell(&self, call: &Call<'_>, what: impl FnOnce(&Families, &Lane)) {
        let find = |lane: &&Lane| lane.is_of(call);
        if let Some(lane) = self.lanes.read().iter().find(find) {
            return what(&self.families, lane);
        }
        let mut lanes = self.lanes.write();
        if let Some(lane) = lanes.iter().find(find) {
            return what(&self.families, lane);
        }
        let lane = Lane::of(call);
        what(&self.families, &lane);
        lanes.push(lane);
    }
}

impl Families {
    fn new(registry: &Registry) -> Self {
        let by_verb = |name, help| Spec::upstream(name, Alpha, ["host", "verb"], help);
        Self {
            request_duration: registry.metric(
                by_verb(
                    "rest_client_request_duration_seconds",
                    "How long a request took, waiting for its turn and repetitions included, in seconds. Watches are \
                     not counted.",
                )
                .buckets(LATENCY),
            ),
            request_size: registry.metric(
                by_verb("rest_client_request_size_bytes", "The size of a request's body, in bytes.")
                    .buckets(SIZE),
            ),
            response_size: registry.metric(
                by_verb("rest_client_response_size_bytes", "The size of an answer's body, in bytes.")
                    .buckets(SIZE),
            ),
            rate_limiter: registry.metric(
                by_verb(
                    "rest_client_rate_limiter_duration_seconds",
                    "How long a request waited for the client's own rate limit, in seconds.",
                )
                .buckets(LATENCY),
            ),
            requests: registry.metric(Spec::upstream(
                "rest_client_requests_total",
                Alpha,
                ["code", "host", "method"],
                "Requests sent, repetitions included, by the answer's status code; <error> for no answer.",
            )),
            retries: registry.metric(Spec::upstream(
                "rest_client_request_retries_total",
                Alpha,
                ["code", "host", "verb"],
                "Requests that repeat one, by the answer's status code; <error> for no answer.",
            )),
            throttle: registry.metric(
                Spec::own(
                    "kcm_client_throttle_duration_seconds",
                    ["client"],
                    "How long a request waited for its client's own rate limit, by client, in seconds.",
                )
                .buckets(LATENCY),
            ),
            writes: registry.metric(Spec::own(
                "kcm_client_writes_total",
                ["client", "code", "resource", "subresource", "verb"],
                "Writes sent, repetitions included, by client, by what was written and by the answer's status code; \
                 <error> for no answer.",
            )),
            denied: registry.metric(Spec::own(
                "kcm_client_access_denied_total",
                ["client", "resource", "subresource", "verb"],
                "Requests that the API server refused because of missing credentials or a missing role, by client. \
                 Refusals by quotas and admission policies are not counted.",
            )),
        }
    }
}

impl ClientMetrics for Clients {
    fn throttled(&self, call: Call<'_>, waited: Duration) {
        self.tell(&call, |families, lane| {
            let by_verb = lane.rate_limiter.get_or_init(|| families.rate_limiter.with(lane.labels()));
            by_verb.observe_seconds(waited);
            lane.throttle.get_or_init(|| families.throttle.with([&lane.client])).observe_seconds(waited);
        });
    }

    fn answered(&self, call: Call<'_>, code: Option<u16>, _took: Duration) {
        let mut digits = [0; 5];
        let code = code.map_or(NO_ANSWER, |code| decimal(code, &mut digits));
        let (host, method) = (host(call.server), call.method.as_str());
        self.families.requests.with([code, host, method]).inc();
        if call.attempt > 1 {
            self.families.retries.with([code, host, method]).inc();
        }
        if let Some(verb) = write_verb(method) {
            let Target { resource, subresource } = Target::of(call.path);
            self.families.writes.with([call.client, code, resource, subresource, verb]).inc();
        }
    }

    fn denied(&self, call: Call<'_>) {
        let verb = match write_verb(call.method.as_str()) {
            Some(verb) => verb,
            None if call.watch => "watch",
            None => "read",
        };
        let Target { resource, subresource } = Target::of(call.path);
        self.families.denied.with([call.client, resource, subresource, verb]).inc();
    }

    fn sent(&self, call: Call<'_>, bytes: usize) {
        if !call.watch {
            self.tell(&call, |families, lane| {
                let series = lane.request_size.get_or_init(|| families.request_size.with(lane.labels()));
                series.observe(bytes as f64);
            });
        }
    }

    fn received(&self, call: Call<'_>, bytes: usize) {
        if !call.watch {
            self.tell(&call, |families, lane| {
                let series = lane.response_size.get_or_init(|| families.response_size.with(lane.labels()));
                series.observe(bytes as f64);
            });
        }
    }

    fn finished(&self, call: Call<'_>, took: Duration) {
        self.tell(&call, |families, lane| {
            let series = lane.request_duration.get_or_init(|| families.request_duration.with(lane.labels()));
            series.observe_seconds(took);
        });
    }
}

/// The verb of the API for a method that writes.
fn write_verb(method: &str) -> Option<&'static str> {
    match method {
        "POST" => Some("create"),
        "PUT" => Some("update"),
        "PATCH" => Some("patch"),
        "DELETE" => Some("delete"),
        _ => None,
    }
}

/// Host and port of an address, as upstream shows it; `none` where there is no connection.
fn host(server: &str) -> &str {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    match rest.split_once('/').map_or(rest, |(host, _)| host) {
        "" => "none",
        host => host,
    }
}

/// The digits of `n`, without an allocation.
pub(crate) fn decimal(mut n: u16, digits: &mut [u8; 5]) -> &str {
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
    fn host_is_without_scheme_and_path() {
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
    fn code_is_spelled_in_full() {
        for code in [0, 7, 200, 409, u16::MAX] {
            assert_eq!(decimal(code, &mut [0; 5]), code.to_string());
        }
    }
}
