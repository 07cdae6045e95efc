//! Options of exported metrics, and build information.

use thiserror::Error;

/// Options of exported metrics. By default, all metrics are exported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// `--disabled-metrics`: names of metrics that are not exported.
    pub disabled: Vec<String>,
    /// `--allow-metric-labels`: metric, label and allowed values. Other values are exported as `unexpected`.
    pub allowed_labels: Vec<(String, String, Vec<String>)>,
    /// `--show-hidden-metrics-for-version`, such as `1.35`.
    pub show_hidden_for_version: Option<String>,
}

/// Invalid [`MetricsOptions`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetricsOptionsError {
    /// A disabled metric is not a metric name.
    #[error("invalid disabled metric {0:?}: not a metric name")]
    InvalidName(String),
    /// The key of an allow list is not a metric name with a label name.
    #[error("invalid allowed label {0:?}: must be metric,label")]
    InvalidLabel(String),
    /// Only the hidden metrics of the previous minor version can be exported.
    #[error(
        "invalid version for hidden metrics {given:?}: must be omitted or {previous:?}, the previous minor version"
    )]
    NotPrevious {
        /// Invalid version.
        given: String,
        /// Previous minor version.
        previous: String,
    },
}

impl MetricsOptions {
    /// Validates the options for Kubernetes v1.`minor`. Names of unknown metrics are valid.
    ///
    /// # Errors
    ///
    /// The first option that upstream rejects.
    pub fn validate(&self, minor: u32) -> Result<(), MetricsOptionsError> {
        if let Some(name) = self.disabled.iter().find(|name| !is_metric_name(name)) {
            return Err(MetricsOptionsError::InvalidName(name.clone()));
        }
        let bad = |(metric, label, _): &&(String, String, Vec<String>)| {
            !is_metric_name(metric) || !is_label_name(label)
        };
        if let Some((metric, label, _)) = self.allowed_labels.iter().find(bad) {
            return Err(MetricsOptionsError::InvalidLabel(format!("{metric},{label}")));
        }
        let previous = format!("1.{}", minor.saturating_sub(1));
        match self.show_hidden_for_version.as_deref() {
            None | Some("") => Ok(()),
            Some(version) if version == previous => Ok(()),
            Some(given) => Err(MetricsOptionsError::NotPrevious { given: given.to_owned(), previous }),
        }
    }

    /// Allowed values of `label` of `metric`. `None` allows all values. The last entry takes precedence.
    pub(crate) fn allowed(&self, metric: &str, label: &str) -> Option<Vec<String>> {
        let is_it = |(of, name, _): &&(String, String, Vec<String>)| of == metric && name == label;
        self.allowed_labels.iter().rev().find(is_it).map(|(_, _, values)| values.clone())
    }
}

/// Returns `true` if `text` is a valid metric name.
pub(crate) fn is_metric_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':'))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

/// Returns `true` if `text` is a valid label name.
pub(crate) fn is_label_name(text: &str) -> bool {
    is_metric_name(text) && !text.contains(':')
}

/// Build information of `kubernetes_build_info` and `version_info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildInfo {
    /// Minor version of Kubernetes that the program emulates: 36 for v1.36.
    pub minor: u32,
    /// Version of the program, such as `v0.1.0`. The label `git_version` contains it as a suffix of the Kubernetes version,
    /// such as `v1.36.0+kcm.0.1.0`, so that version skew checks pass.
    pub version: String,
    /// Commit. Empty if unknown.
    pub commit: String,
    /// Build date. Empty if unknown.
    pub date: String,
}

impl Default for BuildInfo {
    /// Kubernetes v1.36 and this crate's version.
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
    fn rejects_invalid_options() {
        let text = |options: MetricsOptions| options.validate(36).unwrap_err().to_string();
        let disabled = vec!["valid_total".to_owned(), "not-valid".to_owned()];
        assert_eq!(
            text(MetricsOptions { disabled, ..Default::default() }),
            "invalid disabled metric \"not-valid\": not a metric name"
        );
        let allowed_labels = vec![("m".to_owned(), "a:b".to_owned(), Vec::new())];
        assert_eq!(
            text(MetricsOptions { allowed_labels, ..Default::default() }),
            "invalid allowed label \"m,a:b\": must be metric,label"
        );
        let show_hidden_for_version = Some("1.34".to_owned());
        assert_eq!(
            text(MetricsOptions { show_hidden_for_version, ..Default::default() }),
            "invalid version for hidden metrics \"1.34\": must be omitted or \"1.35\", the previous minor version"
        );
    }

    #[test]
    fn accepts_unknown_names_and_the_previous_version() {
        let options = MetricsOptions {
            disabled: vec!["unknown:metric".to_owned()],
            allowed_labels: vec![("_m".to_owned(), "l1".to_owned(), vec![String::new()])],
            show_hidden_for_version: Some("1.35".to_owned()),
        };
        assert_eq!(options.validate(36), Ok(()));
        assert_eq!(MetricsOptions::default().validate(36), Ok(()));
    }

    #[test]
    fn last_allow_list_takes_precedence() {
        let list = |values: &[&str]| {
            ("m".to_owned(), "l".to_owned(), values.iter().copied().map(str::to_owned).collect())
        };
        let options =
            MetricsOptions { allowed_labels: vec![list(&["a"]), list(&["b"])], ..Default::default() };
        assert_eq!(options.allowed("m", "l"), Some(vec!["b".to_owned()]));
        assert_eq!(options.allowed("m", "other"), None);
    }
}
