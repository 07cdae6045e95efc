//! Which metrics are shown.
//!
//! Upstream counterpart: `k8s.io/component-base/metrics/api/v1`.

use std::{collections::BTreeMap, fs};

use kcm_metrics::MetricsOptions;

use super::Diagnostics;
use crate::flags::{Flags, Value};

/// The version whose hidden metrics can be shown.
const PREVIOUS: &str = "1.35";

const METRIC_NAME: &str = "[a-zA-Z_:][a-zA-Z0-9_:]*";

const LABEL_NAME: &str = "[a-zA-Z_][a-zA-Z0-9_]*";

pub(crate) fn metrics(flags: &Flags, diagnostics: &mut Diagnostics) -> MetricsOptions {
    let version = flags.text("show-hidden-metrics-for-version");
    if !version.is_empty() && version != PREVIOUS {
        diagnostics.problem(format!(
            "metrics.showHiddenMetricsForVersion: Invalid value: {version:?}: must be omitted or have the value \
             '{PREVIOUS}'; only the previous minor version is allowed"
        ));
    }
    let disabled = flags.list("disabled-metrics");
    if let Some(bad) = disabled.iter().find(|name| !is_metric_name(name)) {
        let pattern = format!("^{METRIC_NAME}$");
        diagnostics.problem(format!(
            "metrics.disabledMetrics: Invalid value: {}: must be fully qualified metric names matching {pattern:?}, \
             got {bad:?}",
            serde_json::json!(disabled)
        ));
    }
    MetricsOptions {
        disabled: disabled.to_vec(),
        allowed_labels: allowed_labels(flags, diagnostics),
        show_hidden_for_version: Some(version).filter(|version| !version.is_empty()).map(str::to_owned),
    }
}

fn allowed_labels(flags: &Flags, diagnostics: &mut Diagnostics) -> Vec<(String, String, Vec<String>)> {
    let by_flag = match flags.value("allow-metric-labels") {
        Value::Map(pairs) => pairs.clone(),
        _ => BTreeMap::new(),
    };
    if let Some(problem) = keys_problem(&by_flag) {
        diagnostics.problem(format!("metrics.allowListMapping: {problem}"));
    }
    let manifest = flags.text("allow-metric-labels-manifest");
    let by_file = if manifest.is_empty() { BTreeMap::new() } else { read(manifest, diagnostics) };
    if !manifest.is_empty() && !by_flag.is_empty() {
        diagnostics.problem("metrics: cannot specify both allowListMapping and allowListMappingManifest");
    }
    let pairs = by_file.into_iter().chain(by_flag);
    let split = |(key, values): (String, String)| {
        let (metric, label) = key.split_once(',')?;
        let values = values.split(',').map(str::to_owned).collect();
        Some((metric.to_owned(), label.to_owned(), values))
    };
    pairs.filter_map(split).collect()
}

/// The mapping in the file at `path`: by itself, which is what upstream reads, or below `allowListMapping`, which is
/// what it says that it reads.
fn read(path: &str, diagnostics: &mut Diagnostics) -> BTreeMap<String, String> {
    let field = format!("metrics.allowListMappingManifest: Invalid value: {path:?}");
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            diagnostics.problem(format!("{field}: failed to read allow list manifest: {error}"));
            return BTreeMap::new();
        }
    };
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Below {
        allow_list_mapping: BTreeMap<String, String>,
    }
    let mapping =
        serde_saphyr::from_str::<BTreeMap<String, String>>(&text).or_else(
            |error| match serde_saphyr::from_str::<Below>(&text) {
                Ok(below) => Ok(below.allow_list_mapping),
                Err(_) => Err(error),
            },
        );
    match mapping {
        Ok(mapping) => {
            if let Some(problem) = keys_problem(&mapping) {
                diagnostics.problem(format!("{field}: invalid allow list mapping in manifest: {problem}"));
            }
            mapping
        }
        Err(error) => {
            let error = error.to_string();
            let line = error.lines().next().unwrap_or_default();
            diagnostics.problem(format!("{field}: failed to parse allow list manifest: {line}"));
            BTreeMap::new()
        }
    }
}

fn keys_problem(mapping: &BTreeMap<String, String>) -> Option<String> {
    let is_key = |key: &String| {
        key.split_once(',').is_some_and(|(metric, label)| is_metric_name(metric) && is_label_name(label))
    };
    (!mapping.keys().all(is_key)).then(|| {
        format!(
            "Invalid value: {}: must have keys with format `metricName,labelName` where metricName matches \
             {METRIC_NAME:?} and labelName matches {LABEL_NAME:?}",
            serde_json::json!(mapping)
        )
    })
}

fn is_metric_name(name: &str) -> bool {
    is_label_name(&name.replace(':', "_"))
}

fn is_label_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
