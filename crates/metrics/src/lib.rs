//! What a manager counts, under upstream's names.
//!
//! *Upstream counterpart:* `k8s.io/component-base/metrics` and the `prometheus/*` packages below it.
//!
//! *What must not live here:* HTTP, and what is counted: each crate tells of itself through a trait of its own.

/// Which metrics are shown, as flags say. The default is upstream's: all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// `--disabled-metrics`: names that are not shown.
    pub disabled: Vec<String>,
    /// `--allow-metric-labels`: by `metric,label`, which values stay; others become `unexpected`.
    pub allowed_labels: Vec<(String, String, Vec<String>)>,
    /// `--show-hidden-metrics-for-version`, such as `1.35`.
    pub show_hidden_for_version: Option<String>,
}
