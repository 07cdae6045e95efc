//! Which metrics are shown, and by whom.

use thiserror::Error;

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

/// An option that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MetricsOptionsError {
    /// Upstream's `--disabled-metrics` takes names only.
    #[error("disabled metrics: {0:?} is no metric's name")]
    NoName(String),
    /// The key of an allow-list.
    #[error("allowed labels: {0:?} is no metric's name with a label's, as in metric,label")]
    NoLabel(String),
    /// Hidden metrics are shown for one version longer, not for more.
    #[error(
        "show hidden metrics for version {given:?}: must be omitted or {previous:?}, the previous minor version"
    )]
    NotPrevious {
        /// What was given.
        given: String,
        /// The only version that may be.
        previous: String,
    },
}

impl MetricsOptions {
    /// Whether it makes sense for a program that behaves as Kubernetes v1.`minor`.
    ///
    /// Names that no metric has are fine: a manifest is to serve more than one version.
    ///
    /// # Errors
    ///
    /// What upstream refuses, too.
    pub fn validate(&self, minor: u32) -> Result<(), MetricsOptionsError> {
        if let Some(name) = self.disabled.iter().find(|name| !is_metric_name(name)) {
            return Err(MetricsOptionsError::NoName(name.clone()));
        }
        let bad = |(metric, label, _): &&(String, String, Vec<String>)| {
            !is_metric_name(metric) || !is_label_name(label)
        };
        if let Some((metric, label, _)) = self.allowed_labels.iter().find(bad) {
            return Err(MetricsOptionsError::NoLabel(format!("{metric},{label}")));
        }
        let previous = format!("1.{}", minor.saturating_sub(1));
        match self.show_hidden_for_version.as_deref() {
            None | Some("") => Ok(()),
            Some(version) if version == previous => Ok(()),
            Some(given) => Err(MetricsOptionsError::NotPrevious { given: given.to_owned(), previous }),
        }
    }

    /// The values that `label` of `metric` may have; none for any. What was said last counts.
    pub(crate) fn allowed(&self, metric: &str, label: &str) -> Option<Vec<String>> {
        let is_it = |(of, name, _): &&(String, String, Vec<String>)| of == metric && name == label;
        self.allowed_labels.iter().rev().find(is_it).map(|(_, _, values)| values.clone())
    }
}

/// Whether `text` could be a metric's name.
pub(crate) fn is_metric_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':'))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

/// Whether `text` could be a label's name.
pub(crate) fn is_label_name(text: &str) -> bool {
    is_metric_name(text) && !text.contains(':')
}

/// Who shows the metrics: what `kubernetes_build_info` and `version_info` say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildInfo {
    /// The minor version of Kubernetes whose behaviour the program has: 36 for v1.36.
    pub minor: u32,
    /// The program's own version, such as `v0.1.0`. `git_version` has it behind that of Kubernetes, as in
    /// `v1.36.0+kcm.0.1.0`, so that whoever compares the versions of a cluster's parts finds no mismatch.
    pub version: String,
    /// The commit, if known.
    pub commit: String,
    /// When it was built, if known.
    pub date: String,
}

impl Default for BuildInfo {
    /// Kubernetes v1.36 by this crate's version, from a commit and at a time that are not known.
    fn default() -> Self {
        Self {
            minor: 36,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: String::new(),
            date: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_upstream_refuses_are_refused_by_name() {
        let text = |options: MetricsOptions| options.validate(36).unwrap_err().to_string();
        let disabled = vec!["fine_total".to_owned(), "not-fine".to_owned()];
        assert_eq!(
            text(MetricsOptions { disabled, ..Default::default() }),
            "disabled metrics: \"not-fine\" is no metric's name"
        );
        let allowed_labels = vec![("m".to_owned(), "a:b".to_owned(), Vec::new())];
        assert_eq!(
            text(MetricsOptions { allowed_labels, ..Default::default() }),
            "allowed labels: \"m,a:b\" is no metric's name with a label's, as in metric,label"
        );
        let show_hidden_for_version = Some("1.34".to_owned());
        assert_eq!(
            text(MetricsOptions { show_hidden_for_version, ..Default::default() }),
            "show hidden metrics for version \"1.34\": must be omitted or \"1.35\", the previous minor version"
        );
    }

    #[test]
    fn options_of_any_name_and_the_previous_version_are_accepted() {
        let options = MetricsOptions {
            disabled: vec!["nobody_has_this:one".to_owned()],
            allowed_labels: vec![("_m".to_owned(), "l1".to_owned(), vec![String::new()])],
            show_hidden_for_version: Some("1.35".to_owned()),
        };
        assert_eq!(options.validate(36), Ok(()));
        assert_eq!(MetricsOptions::default().validate(36), Ok(()));
    }

    #[test]
    fn allow_list_that_is_given_twice_is_the_last() {
        let list = |values: &[&str]| {
            ("m".to_owned(), "l".to_owned(), values.iter().copied().map(str::to_owned).collect())
        };
        let options =
            MetricsOptions { allowed_labels: vec![list(&["a"]), list(&["b"])], ..Default::default() };
        assert_eq!(options.allowed("m", "l"), Some(vec!["b".to_owned()]));
        assert_eq!(options.allowed("m", "other"), None);
    }
}
