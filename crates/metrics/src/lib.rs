//! What a manager counts, under upstream's names.
//!
//! *Upstream counterpart:* `k8s.io/component-base/metrics` and the `prometheus/*` packages below it.
//!
//! *What must not live here:* HTTP, and what is counted: each crate tells of itself through a trait of its own.

mod metrics;
mod options;

pub use metrics::{HealthStatus, Metrics, MetricsError};
pub use options::{BuildInfo, MetricsOptions};
