//! Options of exported metrics.
//!
//! Upstream counterpart: `k8s.io/component-base/metrics/api/v1`.

use std::{collections::BTreeMap, fs};

use kcm_metrics::MetricsOptions;

use super::Diagnostics;
use crate::flags::{Flags, Value};

/// Version whose hidden metrics can be exported: the previous minor version.
const PREVIOUS: &str = "1.35";

const METRIC_NAME: &str = "[a-zA-Z_:][a-zA-Z0-9_:]*";

const LABEL_NAME: &str = "[a-zA-Z_][a-zA-Z0-9_]*";

pub(crate) fn metrics(flags: &Flags, diagnostics: &mut Diagnostics) -> MetricsOptions {
    let version = flags.text("show-hidden-metrics-for-version");
    if !version.is_empty() && version != PREVIOUS {
        diagnostics.error(format!(
            "metrics.showHiddenMetricsForVersion: Invalid value: {version:?}: must be omitted or have the value \
             '{PREVIOUS}'; only the previous minor version is allowed"
        ));
    }
    let disabled = flags.list("disabled-metrics");
    if let Some(bad) = disabled.iter().find(|name| !is_metric_name(name)) {
        let pattern = format!("^{METRIC_NAME}$");
        diagnostics.error(format!(
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
    let flag_mapping = match flags.value("allow-metric-labels") {
        Value::Map(pairs) => pairs.clone(),
        _ => BTreeMap::new(),
    };
    if let Some(error) = keys_error(&flag_mapping) {
        diagnostics.error(format!("metrics.allowListMapping: {error}"));
    }
    let manifest = flags.text("allow-metric-labels-manifest");
    let file_mapping = if manifest.is_empty() { BTreeMap::new() } else { read(manifest, diagnostics) };
    if !manifest.is_empty() && !flag_mapping.is_empty() {
        diagnostics.error("metrics: cannot specify both allowListMapping and allowListMappingManifest");
    }
    let pairs = file_mapping.into_iter().chain(flag_mapping);
    let split = |(key, values): (String, String)| {
        let (metric, label) = key.split_once(',')?;
        let values = values.split(',').map(str::to_owned).collect();
        Some((metric.to_owned(), label.to_owned(), values))
    };
    pairs.filter_map(split).collect()
}

/// Reads the mapping in the file at `path`: at the top level, as upstream's code, or under `allowListMapping`, as
/// upstream's documentation.
fn read(path: &str, diagnostics: &mut Diagnostics) -> BTreeMap<String, String> {
    let field = format!("metrics.allowListMappingManifest: Invalid value: {path:?}");
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            diagnostics.error(format!("{field}: failed to read allow list manifest: {error}"));
            return BTreeMap::new();
        }
    };
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Nested {
        allow_list_mapping: BTreeMap<String, String>,
    }
    let mapping =
        serde_saphyr::from_str::<BTreeMap<String, String>>(&text).or_else(
            |error| match serde_saphyr::from_str::<Nested>(&text) {
                Ok(nested) => Ok(nested.allow_list_mapping),
                Err(_) => Err(error),
            },
        );
    match mapping {
        Ok(mapping) => {
            if let Some(error) = keys_error(&mapping) {
                diagnostics.error(format!("{field}: invalid allow list mapping in manifest: {error}"));
            }
            mapping
        }
        Err(error) => {
            let error = error.to_string();
            let line = error.lines().next().unwrap_or_default();
            diagnostics.error(format!("{field}: failed to parse allow list manifest: {line}"));
            BTreeMap::new()
        }
    }
}

fn keys_error(mapping: &BTreeMap<String, String>) -> Option<String> {
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
