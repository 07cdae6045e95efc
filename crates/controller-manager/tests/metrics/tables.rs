//! Compares `docs/metrics.md` with the exported metrics.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::everything::after_everything;

pub(crate) fn document(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rows of the tables below a heading.
pub(crate) fn rows<'a>(document: &'a str, heading: &str) -> BTreeSet<&'a str> {
    let (_, section) = document
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("docs/metrics.md has no heading {heading:?}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter(|line| line.starts_with("| `")).collect()
}

#[track_caller]
fn assert_same(documented: &BTreeSet<&str>, actual: &BTreeSet<String>) {
    let actual: BTreeSet<&str> = actual.iter().map(String::as_str).collect();
    let missing: Vec<_> = actual.difference(documented).collect();
    let extra: Vec<_> = documented.difference(&actual).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "docs/metrics.md is out of date: `cargo run -p kcm-controller-manager --example metrics_table` prints it.\n\
         missing: {missing:#?}\nunknown: {extra:#?}"
    );
}

#[test]
fn document_equals_definitions() {
    let metrics = after_everything();
    let document = document("metrics.md");
    let table = |definitions: Vec<kcm_metrics::Definition>| -> BTreeSet<String> {
        definitions.iter().map(kcm_metrics::Definition::table_row).collect()
    };
    assert_same(&rows(&document, "## /metrics"), &table(metrics.definitions()));
    assert_same(&rows(&document, "## /metrics/slis"), &table(metrics.slis_definitions()));
    let bounds: BTreeSet<String> = metrics
        .definitions()
        .iter()
        .filter(|definition| !definition.buckets.is_empty())
        .map(|definition| format!("| `{}` | {} |", definition.name, definition.bounds()))
        .collect();
    assert_same(&rows(&document, "## Upper bounds of histograms"), &bounds);
}

#[test]
fn scrape_contains_all_definitions() {
    let metrics = after_everything();
    for (text, definitions) in
        [(metrics.text(), metrics.definitions()), (metrics.slis_text(), metrics.slis_definitions())]
    {
        let scraped: BTreeSet<(&str, &str)> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        let defined: BTreeSet<(&str, &str)> =
            definitions.iter().map(|definition| (definition.name, definition.kind.as_str())).collect();
        assert_eq!(scraped, defined);
    }
}

#[test]
fn labels_are_sorted_and_help_texts_are_sentences() {
    for definition in after_everything().definitions() {
        assert!(definition.labels.is_sorted(), "{definition:?}");
        assert!(definition.help.ends_with('.'), "{definition:?}");
        let is_own = definition.name.starts_with("kcm_");
        assert_eq!(is_own, definition.origin == kcm_metrics::Origin::Project, "{definition:?}");
    }
}
