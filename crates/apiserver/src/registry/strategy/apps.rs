//! `apps/v1`.

use serde_json::{Value, json};

use super::{Strategy, count_generation, keep_spec, keep_status};
use crate::json::{copy, set};

/// Deployments.
pub(crate) struct Deployment;

impl Strategy for Deployment {
    fn prepare_create(&self, object: &mut Value) {
        set(object, &["status"], json!({}));
        set(object, &["metadata", "generation"], 1);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
        // Annotations count, which is why a first rollout that writes its revision observes generation 2.
        count_generation(new, old, &[&["spec"], &["metadata", "annotations"]]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_spec(new, old);
        copy(new, old, &["metadata", "labels"]);
    }
}

/// ReplicaSets.
pub(crate) struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn prepare_create(&self, object: &mut Value) {
        set(object, &["status"], json!({"replicas": 0}));
        set(object, &["metadata", "generation"], 1);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
        count_generation(new, old, &[&["spec"]]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_spec(new, old);
    }
}
