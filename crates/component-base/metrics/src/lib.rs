//! What a manager counts, under upstream's names.
//!
//! *Upstream counterpart:* `k8s.io/component-base/metrics` and the `prometheus/*` packages below it.
//!
//! * [`Metrics`] is all of it. It hands out what queues, informers, clients, elections and controllers tell of
//!   themselves to, and writes it down when somebody scrapes. `docs/metrics.md` is the table.
//! * [`Registry`] is for metrics of one's own, beside these or without them.
//! * [`lint`] checks any exposition text, as `promtool check metrics` does and more.
//!
//! Names, types, labels and buckets are upstream's wherever upstream has a metric, so that dashboards and alerts go on
//! to work; what only this project has begins with `kcm_`. To count is a few atomic additions: series are looked up
//! once where it is often, and nothing is allocated.
//!
//! *What must not live here:* HTTP, and what is counted: each crate tells of itself through a trait of its own.

mod about;
mod clients;
mod controllers;
mod election;
mod health;
mod informers;
mod lint;
mod metrics;
mod options;
mod path;
mod process;
mod queues;
mod registry;
mod rollouts;
mod sizes;

pub use health::HealthStatus;
pub use lint::{Problem, lint};
pub use metrics::Metrics;
pub use options::{BuildInfo, MetricsOptions, MetricsOptionsError};
pub use registry::{
    Counter, Definition, Family, Gauge, Histogram, MetricType, Origin, Registry, Sample, Spec, Stability,
    Value,
};
pub use sizes::CacheSize;
