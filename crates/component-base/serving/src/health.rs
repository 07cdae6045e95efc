//! Health checks.
//!
//! *Upstream counterpart:* `apiserver/pkg/server/healthz`, `controller-manager/pkg/healthz`.

use std::{collections::BTreeSet, fmt, fmt::Write as _, sync::Arc};

use http::{HeaderValue, StatusCode, header::X_CONTENT_TYPE_OPTIONS};
use parking_lot::RwLock;

use crate::{Answer, Asked, Handler, handler};

/// Says whether something is well, or what is wrong with it. It is called while somebody waits: it should look,
/// not try.
pub type HealthCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Is told what health checks said: for `kubernetes_healthcheck`.
pub trait HealthMetrics: Send + Sync + 'static {
    /// The check `name` of the page `page` (`healthz`) was made.
    fn checked(&self, name: &str, page: &str, is_healthy: bool);
}

/// The checks of a component. Can be added to while they are served. Cheap to clone; clones are the same.
#[derive(Clone, Default)]
pub struct HealthChecks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    checks: RwLock<Vec<(Arc<str>, HealthCheck)>>,
    observer: Option<Arc<dyn HealthMetrics>>,
}

impl HealthChecks {
    /// No checks: healthy.
    pub fn new() -> Self {
        Self::default()
    }

    /// No checks; `observer` is told the outcome of those to come.
    pub fn observed(observer: Arc<dyn HealthMetrics>) -> Self {
        Self(Arc::new(Inner { checks: RwLock::default(), observer: Some(observer) }))
    }

    /// Adds a check, in the place of one of the same name.
    pub fn add(&self, name: impl Into<Arc<str>>, check: HealthCheck) {
        let name = name.into();
        let mut checks = self.0.checks.write();
        match checks.iter_mut().find(|(other, _)| *other == name) {
            Some((_, other)) => *other = check,
            None => checks.push((name, check)),
        }
    }

    /// Adds a check that always passes: there is something of that name.
    pub fn add_ping(&self, name: impl Into<Arc<str>>) {
        self.add(name, Arc::new(|| Ok(())));
    }

    /// What answers for all checks, as the page `page`, such as `healthz`: `ok`, or all that is known with
    /// `?verbose` or when one fails; without the checks named by `?exclude=`. Why one fails is for the log: the
    /// page is open to all.
    pub(crate) fn page(&self, page: &str) -> Handler {
        let (checks, page) = (self.clone(), page.to_owned());
        handler(move |asked| checks.answer(&page, asked))
    }

    /// What answers for each check below `prefix`, such as `/healthz/`.
    pub(crate) fn each(&self, page: &str, prefix: &str) -> Handler {
        let (checks, page, prefix) = (self.clone(), page.to_owned(), prefix.to_owned());
        handler(move |asked| {
            let name = asked.path.strip_prefix(&prefix).unwrap_or_default();
            let check = checks.all().into_iter().find(|(other, _)| **other == *name);
            match check.map(|(name, check)| checks.check(&page, &name, &check)) {
                None => Answer::not_found(),
                Some(Ok(())) => well("ok"),
                Some(Err(error)) => Answer::error(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format_args!("internal server error: {error}"),
                ),
            }
        })
    }

    fn answer(&self, page: &str, asked: &Asked<'_>) -> Answer {
        let excluded: BTreeSet<_> = asked.parameters("exclude").collect();
        let mut unknown = excluded.clone();
        let mut report = String::new();
        let mut failed = Vec::new();
        for (name, check) in self.all() {
            // Writing to a String cannot fail, here and below.
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
            return Answer::error(StatusCode::INTERNAL_SERVER_ERROR, message);
        }
        if asked.has_parameter("verbose") {
            well(format!("{report}{page} check passed\n"))
        } else {
            well("ok")
        }
    }

    /// All checks; where there are none, one that says that somebody answers.
    fn all(&self) -> Vec<(Arc<str>, HealthCheck)> {
        let checks = self.0.checks.read();
        if checks.is_empty() { vec![("ping".into(), Arc::new(|| Ok(())))] } else { checks.clone() }
    }

    fn check(&self, page: &str, name: &str, check: &HealthCheck) -> Result<(), String> {
        let outcome = check();
        if let Some(observer) = &self.0.observer {
            observer.checked(name, page, outcome.is_ok());
        }
        outcome
    }
}

fn well(body: impl Into<bytes::Bytes>) -> Answer {
    Answer::text(body).with(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
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
        let asked = Asked { method: &Method::GET, path, query, headers: &headers, body: &body, user: &user };
        let answer = handler(&asked);
        (answer.status.as_u16(), String::from_utf8(answer.body.to_vec()).unwrap())
    }

    // The texts are what kube-controller-manager v1.36 was seen to answer.

    #[test]
    fn page_says_ok_or_all_that_is_known() {
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
    fn page_leaves_out_what_is_excluded_and_names_what_cannot_be() {
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
    fn failing_check_fails_the_page_without_saying_why() {
        let checks = HealthChecks::new();
        checks.add_ping("a");
        checks.add("b", Arc::new(|| Err("a secret".to_owned())));
        let failed = "[+]a ok\n[-]b failed: reason withheld\nhealthz check failed\n";
        assert_eq!(ask(&checks.page("healthz"), "/healthz", ""), (500, failed.to_owned()));
    }

    #[test]
    fn each_check_has_a_page_that_says_why() {
        let checks = HealthChecks::new();
        checks.add("b", Arc::new(|| Err("broken".to_owned())));
        let each = checks.each("healthz", "/healthz/");
        assert_eq!(ask(&each, "/healthz/b", ""), (500, "internal server error: broken\n".to_owned()));
        checks.add_ping("b");
        assert_eq!(ask(&each, "/healthz/b", ""), (200, "ok".to_owned()));
        assert_eq!(ask(&each, "/healthz/c", "").0, 404);
    }

    #[test]
    fn observer_is_told_of_every_check_that_is_made() {
        #[derive(Default)]
        struct Told(Mutex<Vec<String>>);
        impl HealthMetrics for Told {
            fn checked(&self, name: &str, page: &str, is_healthy: bool) {
                self.0.lock().push(format!("{page} {name} {is_healthy}"));
            }
        }
        let told = Arc::new(Told::default());
        let checks = HealthChecks::observed(Arc::clone(&told) as Arc<dyn HealthMetrics>);
        checks.add_ping("a");
        checks.add("b", Arc::new(|| Err(String::new())));
        checks.add_ping("c");
        ask(&checks.page("healthz"), "/healthz", "exclude=c");
        assert_eq!(*told.0.lock(), ["healthz a true", "healthz b false"]);
    }
}
