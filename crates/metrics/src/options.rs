//! Which metrics are shown, and by whom.

/// Which metrics are shown, as flags say. The default is upstream's: all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// `--disabled-metrics`: names that are not shown.
    pub disabled: Vec<String>,
    /// `--allow-metric-labels`: by metric and label, which values stay; others become `unexpected`.
    pub allowed_labels: Vec<(String, String, Vec<String>)>,
    /// `--show-hidden-metrics-for-version`, such as `1.35`.
    pub show_hidden_for_version: Option<String>,
}

/// Who shows the metrics: what `kubernetes_build_info` and `version_info` say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildInfo {
    /// The minor version of Kubernetes whose behaviour the program has: 36 for v1.36.
    pub minor: u32,
    /// The version, such as `v1.36.0`; shown as `git_version`.
    pub version: String,
    /// The commit, if known.
    pub commit: String,
    /// When it was built, if known.
    pub date: String,
}

impl Default for BuildInfo {
    /// Kubernetes v1.36, at a commit and a time that are not known.
    fn default() -> Self {
        Self { minor: 36, version: "v1.36.0".to_owned(), commit: String::new(), date: String::new() }
    }
}
