//! Which path is answered by what.

use crate::{Handler, HealthChecks};

/// The paths of a server.
///
/// Upstream counterpart: `mux.PathRecorderMux`.
#[derive(Clone, Default)]
pub struct Routes {
    exact: Vec<(String, Handler)>,
    prefixes: Vec<(String, Handler)>,
}

impl Routes {
    /// No paths.
    pub fn new() -> Self {
        Self::default()
    }

    /// And `path`, which is answered by `handler`.
    #[must_use]
    pub fn exact(mut self, path: impl Into<String>, handler: Handler) -> Self {
        self.exact.push((path.into(), handler));
        self
    }

    /// And all paths that begin with `prefix`, which should end in `/`. The longest that fits counts.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>, handler: Handler) -> Self {
        self.prefixes.push((prefix.into(), handler));
        self
    }

    /// And `path` with the checks of `health`.
    #[must_use]
    pub fn health(self, path: impl Into<String>, health: HealthChecks) -> Self {
        let path = path.into();
        self.exact(path.clone(), health.handler(&path))
    }

    /// The paths, in order.
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<_> =
            self.exact.iter().chain(&self.prefixes).map(|(path, _)| path.clone()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}
