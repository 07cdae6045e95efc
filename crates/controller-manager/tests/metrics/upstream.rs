//! Comparison with a scrape of upstream's manager v1.36.

use std::collections::{BTreeMap, BTreeSet};

use kcm_metrics::{Definition, Origin};
use serde::Deserialize;

use crate::{
    everything::after_everything,
    tables::{document, rows},
};

#[derive(Deserialize)]
struct Recording {
    metrics: Vec<Recorded>,
    slis: Vec<Recorded>,
}

#[derive(Debug, Deserialize)]
struct Recorded {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    stability: String,
    labels: Vec<String>,
    buckets: Vec<String>,
}

fn recording() -> Recording {
    serde_json::from_str(include_str!("testdata/upstream-v1.36.json")).unwrap()
}

fn by_name(recorded: &[Recorded]) -> BTreeMap<&str, &Recorded> {
    recorded.iter().map(|metric| (metric.name.as_str(), metric)).collect()
}

fn assert_as_upstream(definitions: &[Definition], recorded: &[Recorded]) {
    let recorded = by_name(recorded);
    for definition in definitions.iter().filter(|definition| definition.origin == Origin::Upstream) {
        let metric = recorded
            .get(definition.name)
            .unwrap_or_else(|| panic!("upstream does not have {}", definition.name));
        assert_eq!(definition.kind.as_str(), metric.kind, "{metric:?}");
        assert_eq!(definition.labels, metric.labels, "{metric:?}");
        assert_eq!(definition.stability.as_str(), metric.stability, "{metric:?}");
        assert_eq!(definition.bounds(), metric.buckets.join(", "), "{metric:?}");
    }
}

#[test]
fn upstreams_metrics_have_the_same_definition() {
    let (metrics, recorded) = (after_everything(), recording());
    assert_as_upstream(&metrics.definitions(), &recorded.metrics);
    assert_as_upstream(&metrics.slis_definitions(), &recorded.slis);
}

#[test]
fn missing_metrics_are_documented() {
    let (metrics, recorded) = (after_everything(), recording());
    let document = document("metrics.md");
    let exported: BTreeSet<&str> = metrics.definitions().iter().map(|definition| definition.name).collect();
    // `name` or `prefix_*`.
    let absent: Vec<&str> = rows(&document, "## Not here")
        .into_iter()
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','))
        .map(|name| name.trim().trim_matches('`'))
        .collect();
    let is_named = |name: &str| {
        absent.iter().any(|absent| match absent.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *absent,
        })
    };
    for metric in &recorded.metrics {
        let (has, named) = (exported.contains(metric.name.as_str()), is_named(&metric.name));
        assert!(
            has != named,
            "{} is {}",
            metric.name,
            if has {
                "exported and documented as missing"
            } else {
                "neither exported nor documented as missing"
            }
        );
    }
    for absent in absent {
        let prefix = absent.trim_end_matches('*');
        let known = recorded.metrics.iter().any(|metric| metric.name.starts_with(prefix));
        // The recording does not contain the metrics of the Go runtime.
        assert!(known || absent == "go_*", "upstream does not export {absent}");
    }
}
