//! Strategies of `apps/v1` kinds.

use serde_json::{Value, json};

use super::Strategy;
use crate::json::copy;

/// Deployments.
pub(crate) struct Deployment;

impl Strategy for Deployment {
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        Some(json!({}))
    }

    fn generation_fields(&self) -> &'static [&'static [&'static str]] {
        // Annotations count, as upstream. The first rollout writes the revision annotation and thereby observes generation 2.
        &[&["spec"], &["metadata", "annotations"]]
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        copy(new, old, &["metadata", "labels"]);
    }
}

/// ReplicaSets.
pub(crate) struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        Some(json!({"replicas": 0}))
    }

    fn generation_fields(&self) -> &'static [&'static [&'static str]] {
        &[&["spec"]]
    }
}
