//! What upstream's manager shows, as scraped from v1.36, against ours.

use std::collections::{BTreeMap, BTreeSet};

use kcm_metrics::{Definition, Origin};
use serde::Deserialize;

use crate::{
    everything::after_everything,
    tables::{document, rows},
};

#[derive(Deserialize)]
struct Facts {
    metrics: Vec<Fact>,
    slis: Vec<Fact>,
}

#[derive(Debug, Deserialize)]
struct Fact {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    stability: String,
    labels: Vec<String>,
    buckets: Vec<String>,
}

fn facts() -> Facts {
    serde_json::from_str(include_str!("../../testdata/upstream-v1.36.json")).unwrap()
}

fn by_name(facts: &[Fact]) -> BTreeMap<&str, &Fact> {
    facts.iter().map(|fact| (fact.name.as_str(), fact)).collect()
}

fn assert_as_upstream(definitions: &[Definition], facts: &[Fact]) {
    let facts = by_name(facts);
    for definition in definitions.iter().filter(|definition| definition.origin == Origin::Upstream) {
        let fact = facts
            .get(definition.name)
            .unwrap_or_else(|| panic!("upstream does not have {}", definition.name));
        assert_eq!(definition.kind.as_str(), fact.kind, "{fact:?}");
        assert_eq!(definition.labels, fact.labels, "{fact:?}");
        assert_eq!(definition.stability.as_str(), fact.stability, "{fact:?}");
        assert_eq!(definition.bounds(), fact.buckets.join(", "), "{fact:?}");
    }
}

#[test]
fn metrics_that_upstream_has_are_the_same_here() {
    let (metrics, facts) = (after_everything(), facts());
    assert_as_upstream(&metrics.definitions(), &facts.metrics);
    assert_as_upstream(&metrics.slis_definitions(), &facts.slis);
}

#[test]
fn metrics_that_only_upstream_has_are_named_with_a_reason() {
    let (metrics, facts) = (after_everything(), facts());
    let document = document("metrics.md");
    let ours: BTreeSet<&str> = metrics.definitions().iter().map(|definition| definition.name).collect();
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
    for fact in &facts.metrics {
        let (has, named) = (ours.contains(fact.name.as_str()), is_named(&fact.name));
        assert!(
            has != named,
            "{}: it is {}",
            fact.name,
            if has { "here, and named as not here" } else { "nowhere" }
        );
    }
    for absent in absent {
        let prefix = absent.trim_end_matches('*');
        let known = facts.metrics.iter().any(|fact| fact.name.starts_with(prefix));
        // Go's own were left out of the recording: there are 130 of them.
        assert!(known || absent == "go_*", "{absent} is not upstream's");
    }
}
