//! Health checks.
//!
//! Upstream counterpart: `apiserver/pkg/server/healthz`, `controller-manager/pkg/healthz`.

use std::{collections::BTreeSet, fmt, fmt::Write as _, sync::Arc};

use http::{HeaderValue, StatusCode, header::X_CONTENT_TYPE_OPTIONS};
use parking_lot::RwLock;

use crate::{Handler, Request, Response, handler};

/// Health check. It runs during a request, so it should inspect state and not perform I/O.
pub type HealthCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Metrics of health checks: `kubernetes_healthcheck`.
pub trait HealthMetrics: Send + Sync + 'static {
    /// The check `name` ran for the page `page`, such as `healthz`.
    fn checked(&self, name: &str, page: &str, is_healthy: bool);
}

/// Health checks of a component. Checks can be added at any time. Clones share the checks.
///
/// ```
/// use std::sync::Arc;
///
/// use kcm_serving::HealthChecks;
///
/// let health = HealthChecks::new();
/// health.add("queue", Arc::new(|| Err("no key was processed for 10m".to_owned())));
/// ```
#[derive(Clone, Default)]
pub struct HealthChecks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    checks: RwLock<Vec<(Arc<str>, HealthCheck)>>,
    metrics: Option<Arc<dyn HealthMetrics>>,
}

impl HealthChecks {
    /// No checks, which is healthy.
    pub fn new() -> Self {
        Self::default()
    }

    /// No checks. Outcomes of checks are recorded in `metrics`.
    pub fn with_metrics(metrics: Arc<dyn HealthMetrics>) -> Self {
        Self(Arc::new(Inner { checks: RwLock::default(), metrics: Some(metrics) }))
    }

    /// Adds a check. Replaces a check of the same name.
    pub fn add(&self, name: impl Into<Arc<str>>, check: HealthCheck) {
        let name = name.into();
        let mut checks = self.0.checks.write();
        match checks.iter_mut().find(|(other, _)| *other == name) {
            Some((_, other)) => *other = check,
            None => checks.push((name, check)),
        }
    }

    /// Adds a check that always passes.
    pub fn add_ping(&self, name: impl Into<Arc<str>>) {
        self.add(name, Arc::new(|| Ok(())));
    }

    /// Handler of the page `page`, such as `healthz`, with all checks except those in `?exclude=`.
    ///
    /// The response is `ok`, or a list of the checks with `?verbose` or if one fails. The reason of a failure is only
    /// logged, because the page does not require authorization.
    pub(crate) fn page(&self, page: &str) -> Handler {
        let (checks, page) = (self.clone(), page.to_owned());
        handler(move |request| checks.respond(&page, request))
    }

    fn respond(&self, page: &str, request: &Request<'_>) -> Response {
        let excluded: BTreeSet<_> = request.parameters("exclude").collect();
        let mut unknown = excluded.clone();
        let mut report = String::new();
        let mut failed = Vec::new();
        for (name, check) in self.all() {
            // Writing to a `String` does not fail, here and below.
            if excluded.contains(&*name) {
                unknown.remove(&*name);
                let _ = writeln!(report, "[+]{name} excluded: ok");
                continue;
            }
            match self.check(page, &name, &check) {
                Ok(()) => {
                    let _ = writeln!(report, "[+]{name} ok");
                }
                Err(error) => {
                    let _ = writeln!(report, "[-]{name} failed: reason withheld");
                    failed.push(format!("{name}: {error}"));
                }
            }
        }
        if !unknown.is_empty() {
            let names = unknown.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            let _ = writeln!(report, "warn: some health checks cannot be excluded: no matches for {names}");
        }
        if !failed.is_empty() {
            tracing::debug!(page, failed = failed.join("; "), "Health check failed");
            let message = format_args!("{report}{page} check failed");
            return Response::error(StatusCode::INTERNAL_SERVER_ERROR, message);
        }
        if request.has_parameter("verbose") {
            passed(format!("{report}{page} check passed\n"))
        } else {
            passed("ok")
        }
    }

    /// All checks, or `ping` if there are none.
    fn all(&self) -> Vec<(Arc<str>, HealthCheck)> {
        let checks = self.0.checks.read();
        if checks.is_empty() { vec![("ping".into(), Arc::new(|| Ok(())))] } else { checks.clone() }
    }

    fn check(&self, page: &str, name: &str, check: &HealthCheck) -> Result<(), String> {
        let outcome = check();
        if let Some(metrics) = &self.0.metrics {
            metrics.checked(name, page, outcome.is_ok());
        }
        outcome
    }
}

fn passed(body: impl Into<bytes::Bytes>) -> Response {
    Response::text(body).with(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.checks.read().iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use parking_lot::Mutex;

    use super::*;
    use crate::User;

    fn ask(handler: &Handler, path: &str, query: &str) -> (u16, String) {
        let (headers, body, user) = (HeaderMap::new(), Bytes::new(), User::default());
        let request =
            Request { method: &Method::GET, path, query, headers: &headers, body: &body, user: &user };
        let response = handler(&request);
        (response.status.as_u16(), String::from_utf8(response.body.to_vec()).unwrap())
    }

    // The texts were recorded from kube-controller-manager v1.36.

    #[test]
    fn page_is_ok_or_verbose() {
        let checks = HealthChecks::new();
        let page = checks.page("healthz");
        assert_eq!(ask(&page, "/healthz", "verbose"), (200, "[+]ping ok\nhealthz check passed\n".to_owned()));
        checks.add_ping("leaderElection");
        checks.add_ping("deployment-controller");
        assert_eq!(ask(&page, "/healthz", ""), (200, "ok".to_owned()));
        let all = "[+]leaderElection ok\n[+]deployment-controller ok\nhealthz check passed\n";
        assert_eq!(ask(&page, "/healthz", "verbose"), (200, all.to_owned()));
    }

    #[test]
    fn page_excludes_checks() {
        let checks = HealthChecks::new();
        checks.add("leaderElection", Arc::new(|| Err("gone".to_owned())));
        let page = checks.page("healthz");
        let without = "[+]leaderElection excluded: ok\nhealthz check passed\n";
        assert_eq!(ask(&page, "/healthz", "exclude=leaderElection&verbose"), (200, without.to_owned()));
        checks.add_ping("leaderElection");
        let unknown = "[+]leaderElection ok\n\
            warn: some health checks cannot be excluded: no matches for \"nope\"\nhealthz check passed\n";
        assert_eq!(ask(&page, "/healthz", "exclude=nope&verbose"), (200, unknown.to_owned()));
    }

    #[test]
    fn failing_check_fails_the_page_without_a_reason() {
        let checks = HealthChecks::new();
        checks.add_ping("a");
        checks.add("b", Arc::new(|| Err("a secret".to_owned())));
        let failed = "[+]a ok\n[-]b failed: reason withheld\nhealthz check failed\n";
        assert_eq!(ask(&checks.page("healthz"), "/healthz", ""), (500, failed.to_owned()));
    }

    #[test]
    fn metrics_record_every_check() {
        #[derive(Default)]
        struct Recorded(Mutex<Vec<String>>);
        impl HealthMetrics for Recorded {
            fn checked(&self, name: &str, page: &str, is_healthy: bool) {
                self.0.lock().push(format!("{page} {name} {is_healthy}"));
            }
        }
        let recorded = Arc::new(Recorded::default());
        let checks = HealthChecks::with_metrics(Arc::clone(&recorded) as Arc<dyn HealthMetrics>);
        checks.add_ping("a");
        checks.add("b", Arc::new(|| Err(String::new())));
        checks.add_ping("c");
        ask(&checks.page("healthz"), "/healthz", "exclude=c");
        assert_eq!(*recorded.0.lock(), ["healthz a true", "healthz b false"]);
    }
}
