//! `kubernetes_healthcheck`, apart from the rest: what a service level objective may be built on.

use crate::{
    Counter, Definition, Family, Gauge, MetricsOptions, Registry, Spec,
    Stability::{Alpha, Stable},
    process,
};

/// What came of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthStatus {
    /// It is well.
    Success,
    /// It is not.
    Error,
}

/// What `/metrics/slis` shows.
#[derive(Debug)]
pub(crate) struct Health {
    registry: Registry,
    started: Option<f64>,
    last: Family<Gauge, 2>,
    all: Family<Counter, 3>,
}

impl Health {
    pub(crate) fn new(options: &MetricsOptions) -> Self {
        let registry = Registry::new(options);
        let start = Spec::upstream(
            "process_start_time_seconds",
            Alpha,
            [],
            "When the process started, in seconds since 1970.",
        );
        let started = process::started("/proc");
        if let Some(started) = started {
            registry.metric::<Gauge, 0>(start).only().set(started);
        }
        Self {
            last: registry.metric(Spec::upstream(
                "kubernetes_healthcheck",
                Stable,
                ["name", "type"],
                "1 if the check said at last that all is well, 0 if not.",
            )),
            all: registry.metric(Spec::upstream(
                "kubernetes_healthchecks_total",
                Stable,
                ["name", "status", "type"],
                "Health checks by what came of them.",
            )),
            started,
            registry,
        }
    }

    /// When the process started, in seconds since 1970; `None` where nobody tells.
    pub(crate) fn started(&self) -> Option<f64> {
        self.started
    }

    pub(crate) fn checked(&self, name: &str, check_type: &str, status: HealthStatus) {
        let (well, text) = match status {
            HealthStatus::Success => (1.0, "success"),
            HealthStatus::Error => (0.0, "error"),
        };
        self.last.with([name, check_type]).set(well);
        self.all.with([name, text, check_type]).inc();
    }

    pub(crate) fn definitions(&self) -> Vec<Definition> {
        self.registry.definitions()
    }

    pub(crate) fn text(&self) -> String {
        self.registry.text()
    }
}
