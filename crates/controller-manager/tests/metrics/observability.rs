//! Compares dashboard and alerts with the exported metrics.

use std::{collections::BTreeSet, io::Write as _, path::Path, process::Command};

use serde_json::Value;

use crate::{everything::after_everything, tables::document};

/// Collects all strings under `key` at any depth.
fn strings(value: &Value, key: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                match value {
                    Value::String(text) if name == key => found.push(text.clone()),
                    value => strings(value, key, found),
                }
            }
        }
        Value::Array(array) => array.iter().for_each(|value| strings(value, key, found)),
        _ => {}
    }
}

fn expressions(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    strings(value, "expr", &mut found);
    assert!(found.len() > 10, "only {} expressions", found.len());
    found
}

/// Metrics in a query, without strings, label matchers, label lists such as `by (…)`, and functions.
fn metrics_of(query: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = query;
    let mut braces = 0_usize;
    let mut labels_follow = false;
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            let end = rest[1..].find('"').map_or(rest.len(), |end| end + 2);
            rest = &rest[end..];
        } else if c.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
            rest = &rest[end..];
        } else if c.is_ascii_alphabetic() || c == '_' || c == ':' {
            let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
            let (word, after) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            rest = after;
            if matches!(word, "by" | "without" | "on" | "ignoring" | "group_left" | "group_right") {
                labels_follow = rest.trim_start().starts_with('(');
            } else if braces == 0
                && !labels_follow
                && !rest.trim_start().starts_with('(')
                && !matches!(
                    word,
                    "and" | "or" | "unless" | "bool" | "offset" | "sum" | "max" | "min" | "avg" | "count"
                )
            {
                found.insert(word.to_owned());
            }
        } else {
            match c {
                '{' | '[' => braces += 1,
                '}' | ']' => braces = braces.saturating_sub(1),
                ')' => labels_follow = false,
                // Grafana's `$variable`.
                '$' => {
                    let end = rest[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    rest = end.map_or("", |end| &rest[end + 1..]);
                    continue;
                }
                _ => {}
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    found
}

/// Names that queries may use: exported metrics, parts of histograms, and `up`.
fn known() -> BTreeSet<String> {
    let metrics = after_everything();
    let mut known = BTreeSet::from(["up".to_owned()]);
    for definition in metrics.definitions().into_iter().chain(metrics.slis_definitions()) {
        if definition.kind == kcm_metrics::MetricType::Histogram {
            known.extend(["_bucket", "_sum", "_count"].map(|part| format!("{}{part}", definition.name)));
        } else {
            known.insert(definition.name.to_owned());
        }
    }
    known
}

#[test]
fn parses_metrics_of_queries() {
    let query = "sum by (a, le) (rate(x_total{job=~\"y z\",b!=\"c\"}[5m])) / on (n) group_left () max(w{}) > 1e3 \
                 and $q * v_sum offset 5m";
    assert_eq!(metrics_of(query), ["v_sum", "w", "x_total"].map(str::to_owned).into());
    assert_eq!(metrics_of("rate(x[$__rate_interval]) or r:s:t"), ["r:s:t", "x"].map(str::to_owned).into());
}

#[test]
fn dashboard_uses_exported_metrics() {
    let dashboard: Value = serde_json::from_str(&document("observability/dashboard.json")).unwrap();
    let known = known();
    for query in expressions(&dashboard) {
        let unknown: Vec<_> = metrics_of(&query).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?} in {query}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "duplicate id of {}", panel["title"]);
        let (x, w) = (panel["gridPos"]["x"].as_u64().unwrap(), panel["gridPos"]["w"].as_u64().unwrap());
        assert!(x + w <= 24, "{} exceeds the width", panel["title"]);
        if panel["type"] != "row" {
            assert!(
                !panel["description"].as_str().unwrap().is_empty(),
                "{} has no description",
                panel["title"]
            );
        }
    }
}

#[test]
fn rules_use_exported_metrics_and_have_runbooks() {
    let rules: Value = serde_saphyr::from_str(&document("observability/rules.yaml")).unwrap();
    let mut known = known();
    let mut records = Vec::new();
    strings(&rules, "record", &mut records);
    known.extend(records);
    for query in expressions(&rules) {
        let unknown: Vec<_> = metrics_of(&query).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?} in {query}");
    }
    let groups = rules["groups"].as_array().unwrap();
    let mut names = BTreeSet::new();
    for rule in groups.iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let Some(name) = rule["alert"].as_str() else { continue };
        assert!(names.insert(name), "duplicate {name}");
        let annotation = |key: &str| rule["annotations"][key].as_str().unwrap_or_default();
        assert!(!annotation("summary").is_empty() && !annotation("description").is_empty(), "{name}");
        assert!(
            matches!(rule["labels"]["severity"].as_str(), Some("critical" | "warning" | "info")),
            "{name}"
        );
        let runbook = annotation("runbook");
        let heading = format!("### {name}\n");
        assert!(runbook.ends_with(&format!("#{}", name.to_lowercase())), "{name}: {runbook}");
        assert!(document("observability/README.md").contains(&heading), "{name} is not in the README");
    }
}

#[test]
fn dashboard_selects_cluster_job_and_instance() {
    let dashboard: Value = serde_json::from_str(&document("observability/dashboard.json")).unwrap();
    for query in expressions(&dashboard) {
        for labels in query.split('{').skip(1) {
            let selected = r#"cluster=~"$cluster",job=~"$job",instance=~"$instance""#;
            assert!(labels.starts_with(selected), "{query}");
        }
    }
}

#[test]
fn dashboard_shows_each_metric_of_the_rules() {
    // The parts of a histogram count as the histogram.
    let metrics_in = |document: &Value| -> BTreeSet<String> {
        let read = expressions(document).into_iter().flat_map(|query| metrics_of(&query));
        read.map(|metric| metric.trim_end_matches("_bucket").trim_end_matches("_count").to_owned()).collect()
    };
    let dashboard: Value = serde_json::from_str(&document("observability/dashboard.json")).unwrap();
    let rules: Value = serde_saphyr::from_str(&document("observability/rules.yaml")).unwrap();
    let missing: Vec<_> = metrics_in(&rules)
        .difference(&metrics_in(&dashboard))
        // Results of recording rules have colons in their names.
        .filter(|metric| !metric.contains(':'))
        .cloned()
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Names of the alerts in `rules.yaml`.
fn alerts() -> BTreeSet<String> {
    let rules: Value = serde_saphyr::from_str(&document("observability/rules.yaml")).unwrap();
    let mut names = Vec::new();
    strings(&rules, "alert", &mut names);
    names.into_iter().collect()
}

#[test]
fn rules_keep_the_cluster_label() {
    let rules: Value = serde_saphyr::from_str(&document("observability/rules.yaml")).unwrap();
    for query in expressions(&rules) {
        assert!(!query.contains("without ("), "{query}");
        for labels in query.split(" by (").skip(1) {
            assert!(labels.starts_with("cluster, job"), "{query}");
        }
    }
}

#[test]
fn each_alert_has_a_firing_and_a_silent_test() {
    let tests: Value = serde_saphyr::from_str(&document("observability/rules.test.yaml")).unwrap();
    let (mut firing, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for test in tests["tests"].as_array().unwrap() {
        for check in test["alert_rule_test"].as_array().unwrap() {
            let expected = check["exp_alerts"].as_array().unwrap();
            let checked = if expected.is_empty() { &mut silent } else { &mut firing };
            checked.insert(check["alertname"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(firing, alerts());
    assert_eq!(silent, alerts());
}

#[test]
fn alert_tests_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/observability");
    let promtool =
        Command::new("promtool").args(["test", "rules", "rules.test.yaml"]).current_dir(folder).output();
    let Ok(output) = promtool else {
        // The test harness captures the output of `eprintln!`.
        let _ = writeln!(std::io::stderr(), "SKIPPED: the unit tests of the alerts (no promtool)");
        return;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
