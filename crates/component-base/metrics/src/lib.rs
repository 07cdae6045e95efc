//! Registry of metrics, exported as Go's Prometheus client exports them, and metrics that all components share.
//!
//! Upstream counterpart: `k8s.io/component-base/metrics`.
//!
//! * [`Registry`] creates metrics and exports them in the text format 0.0.4.
//! * [`ComponentMetrics`], [`ProcessMetrics`] and [`SliMetrics`] are the metrics of every Kubernetes component.
//!
//! Updating a metric takes a few atomic operations and does not allocate.
//!
//! Not part of this crate: HTTP, and metrics of clients, informers, queues or controllers.

#![warn(missing_debug_implementations)]

mod component;
mod options;
mod process;
mod registry;
mod slis;

pub use component::ComponentMetrics;
pub use options::{BuildInfo, MetricsOptions, MetricsOptionsError};
pub use process::ProcessMetrics;
pub use registry::{
    CONTENT_TYPE, Counter, Definition, Family, Gauge, Histogram, MetricType, Origin, Registry, Sample,
    ScrapeHook, Spec, Stability, Value,
};
pub use slis::{HealthStatus, SliMetrics};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
