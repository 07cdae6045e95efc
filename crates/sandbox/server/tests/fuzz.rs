//! Parsers of user-defined rules on arbitrary text.
//!
//! A property must not panic or exhaust the stack or memory. The test runs it on mutations of `fuzz/seeds`; the target in
//! `fuzz` runs it under libFuzzer.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, reason = "a test")]

use kcm_apiserver::{Fault, FieldSelector, LabelSelector, Resource};
use kcm_sandbox_server::{AuditPolicy, Tokens};

#[cfg(test)]
#[path = "../../../../fuzz/mutate.rs"]
mod mutate;

/// Selectors, faults, audit policies and token files are parsed or rejected.
pub fn rules(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let object = serde_json::json!({"metadata": {"name": "web", "labels": {"app": "web"}}});
    if let Ok(selector) = LabelSelector::parse(text) {
        selector.matches(&object);
    }
    if let Ok(selector) = FieldSelector::parse(text, Resource::PODS) {
        selector.matches(&object);
    }
    drop(text.parse::<Fault>());
    drop(AuditPolicy::parse(text));
    drop(Tokens::parse(text));
}

#[test]
fn parses_mutated_rules() {
    mutate::check("rules", 500, rules);
}
