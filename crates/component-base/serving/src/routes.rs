//! Paths and their handlers.

use std::{collections::BTreeMap, fmt};

use http::Method;

use crate::{Handler, HealthChecks};

/// Paths of a server.
///
/// Upstream counterpart: `mux.PathRecorderMux`.
///
/// ```
/// use kcm_serving::{HealthChecks, Response, Routes, handler};
///
/// let health = HealthChecks::new();
/// health.add_ping("operator");
/// let routes = Routes::new()
///     .health("/healthz", &health)
///     .exact("/metrics", handler(|_| Response::text("up 1\n")));
/// assert!(routes.paths().contains(&"/metrics".to_owned()));
/// ```
#[derive(Clone, Default)]
pub struct Routes {
    exact: BTreeMap<String, Route>,
    prefixes: BTreeMap<String, Route>,
}

/// Handler of a path.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) handler: Handler,
    /// Method of the requests that have a body. Bodies of other requests are not read.
    body_method: Option<Method>,
}

impl Route {
    fn without_body(handler: Handler) -> Self {
        Self { handler, body_method: None }
    }

    /// Returns `true` if the body of a request with `method` is read.
    pub(crate) fn reads_body(&self, method: &Method) -> bool {
        self.body_method.as_ref() == Some(method)
    }
}

impl Routes {
    /// No paths.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `path`.
    #[must_use]
    pub fn exact(mut self, path: impl Into<String>, handler: Handler) -> Self {
        self.exact.insert(path.into(), Route::without_body(handler));
        self
    }

    /// Adds `path`, where requests with `method` have a body of up to 64 KiB.
    ///
    /// The bodies of all other requests are not read: the handler gets an empty one, and over HTTP/1.1 the connection
    /// is closed after the response.
    #[must_use]
    pub fn exact_with_body(mut self, path: impl Into<String>, method: Method, handler: Handler) -> Self {
        self.exact.insert(path.into(), Route { handler, body_method: Some(method) });
        self
    }

    /// Adds all paths that begin with `prefix`, which should end in `/`. [Exact](Self::exact) paths and longer prefixes take
    /// precedence.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>, handler: Handler) -> Self {
        self.prefixes.insert(prefix.into(), Route::without_body(handler));
        self
    }

    /// Adds `path`, such as `/healthz`, with all checks of `health`. As in kube-controller-manager, single checks have no
    /// paths.
    #[must_use]
    pub fn health(self, path: &str, health: &HealthChecks) -> Self {
        self.exact(path, health.page(page(path)))
    }

    /// Paths that `/statusz` lists: all but those below `/debug/`, sorted.
    pub fn paths(&self) -> Vec<String> {
        let listed = |path: &&String| !path.starts_with("/debug/");
        let mut paths: Vec<_> =
            self.exact.keys().chain(self.prefixes.keys()).filter(listed).cloned().collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Returns the route of `path`.
    pub(crate) fn find(&self, path: &str) -> Option<&Route> {
        self.exact.get(path).or_else(|| {
            let matching = self.prefixes.iter().filter(|(prefix, _)| path.starts_with(*prefix));
            matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, route)| route)
        })
    }
}

fn page(path: &str) -> &str {
    path.trim_start_matches('/')
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.exact.keys()).entries(self.prefixes.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Response, handler};

    #[test]
    fn exact_path_precedes_the_longest_prefix() {
        let named = |name: &'static str| handler(move |_| Response::text(name));
        let routes = Routes::new()
            .exact("/a/b", named("exact"))
            .prefix("/a/", named("short"))
            .prefix("/a/b/", named("long"));
        let found = |path: &str| {
            let (headers, body, user) = Default::default();
            let method = &Method::GET;
            let request =
                crate::Request { method, path, query: "", headers: &headers, body: &body, user: &user };
            routes.find(path).map(|route| (route.handler)(&request).body)
        };
        assert_eq!(found("/a/b").unwrap(), "exact");
        assert_eq!(found("/a/x").unwrap(), "short");
        assert_eq!(found("/a/b/c").unwrap(), "long");
        assert!(found("/a").is_none() && found("/").is_none() && found("").is_none());
    }

    #[test]
    fn debug_paths_are_not_listed() {
        let empty = || handler(|_| Response::text(""));
        let routes = Routes::new()
            .health("/healthz", &HealthChecks::new())
            .exact("/configz", empty())
            .prefix("/debug/pprof/", empty());
        assert_eq!(routes.paths(), ["/configz", "/healthz"]);
    }
}
