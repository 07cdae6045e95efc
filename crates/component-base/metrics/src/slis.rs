//! Metrics of `/metrics/slis`: outcomes of health checks.

use crate::{
    Counter, Definition, Family, Gauge, MetricsOptions, Registry, Spec,
    Stability::{Alpha, Stable},
    process,
};

/// Outcome of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthStatus {
    /// The check passed.
    Success,
    /// The check failed.
    Error,
}

/// Metrics for service level indicators, in a separate registry.
///
/// Upstream counterpart: `k8s.io/component-base/metrics/prometheus/slis`.
///
/// ```
/// use kcm_metrics::{HealthStatus, MetricsOptions, SliMetrics};
///
/// let slis = SliMetrics::new(&MetricsOptions::default());
/// slis.record("etcd", "readyz", HealthStatus::Success);
/// assert!(slis.text().contains("kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1"));
/// ```
#[derive(Debug)]
pub struct SliMetrics {
    registry: Registry,
    process_start: Option<f64>,
    last: Family<Gauge, 2>,
    total: Family<Counter, 3>,
}

impl SliMetrics {
    /// Registers the metrics.
    pub fn new(options: &MetricsOptions) -> Self {
        let registry = Registry::new(options);
        let start = Spec::upstream("process_start_time_seconds", Alpha, [], process::START_TIME_HELP);
        let process_start = process::start_time("/proc");
        if let Some(start_time) = process_start {
            registry.metric::<Gauge, 0>(start).only().set(start_time);
        }
        Self {
            last: registry.metric(Spec::upstream(
                "kubernetes_healthcheck",
                Stable,
                ["name", "type"],
                "1 if the last run of the health check passed, 0 if it failed.",
            )),
            total: registry.metric(Spec::upstream(
                "kubernetes_healthchecks_total",
                Stable,
                ["name", "status", "type"],
                "Number of runs of the health check by status.",
            )),
            process_start,
            registry,
        }
    }

    /// Start time of the process in seconds since 1970. `None` if `/proc` cannot be read.
    pub fn process_start(&self) -> Option<f64> {
        self.process_start
    }

    /// Records the outcome of a health check, such as `leaderElection` of type `healthz`.
    pub fn record(&self, name: &str, check_type: &str, status: HealthStatus) {
        let (value, text) = match status {
            HealthStatus::Success => (1.0, "success"),
            HealthStatus::Error => (0.0, "error"),
        };
        self.last.with([name, check_type]).set(value);
        self.total.with([name, text, check_type]).inc();
    }

    /// Definitions of the metrics.
    pub fn definitions(&self) -> Vec<Definition> {
        self.registry.definitions()
    }

    /// Exposition of the metrics.
    pub fn text(&self) -> String {
        self.registry.text()
    }
}
