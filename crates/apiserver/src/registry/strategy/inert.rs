//! Kinds that are stored so that `kubectl apply` of a mixed file works, with no controller behind them here.

use serde_json::{Value, json};

use super::{Strategy, count_generation, keep_spec, keep_status};
use crate::{
    json::{at, set},
    selector::{LabelSelector, SelectableField},
};

fn stored_only(kind: &str) -> Vec<String> {
    vec![format!("{kind} is stored only: no controller of the embedded API server acts on it")]
}

/// Services. No address is allocated: a cluster IP that nothing answers on would be a lie.
pub(crate) struct Service;

impl Strategy for Service {
    fn prepare_create(&self, object: &mut Value) {
        set(object, &["status"], json!({"loadBalancer": {}}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_spec(new, old);
    }

    fn selectable_fields(&self) -> &'static [SelectableField] {
        static FIELDS: [SelectableField; 2] = [
            SelectableField { name: "spec.clusterIP", paths: &[&["spec", "clusterIP"]], absent: "" },
            SelectableField { name: "spec.type", paths: &[&["spec", "type"]], absent: "" },
        ];
        &FIELDS
    }

    fn deletion_returns_object(&self) -> bool {
        true
    }

    fn warnings(&self, _object: &Value) -> Vec<String> {
        stored_only("Service")
    }
}

/// ReplicationControllers.
pub(crate) struct ReplicationController;

impl Strategy for ReplicationController {
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

    fn selectable_fields(&self) -> &'static [SelectableField] {
        static FIELDS: [SelectableField; 1] =
            [SelectableField { name: "status.replicas", paths: &[&["status", "replicas"]], absent: "0" }];
        &FIELDS
    }

    fn scale_selector(&self, object: &Value) -> LabelSelector {
        at(object, &["spec", "selector"]).map(LabelSelector::from_labels).unwrap_or_default()
    }

    fn warnings(&self, _object: &Value) -> Vec<String> {
        stored_only("ReplicationController")
    }
}

/// ResourceQuotas.
pub(crate) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn prepare_create(&self, object: &mut Value) {
        set(object, &["status"], json!({}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_spec(new, old);
    }
}

/// PodDisruptionBudgets.
pub(crate) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn prepare_create(&self, object: &mut Value) {
        let none =
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        set(object, &["status"], none);
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

/// HorizontalPodAutoscalers.
pub(crate) struct HorizontalPodAutoscaler;

impl Strategy for HorizontalPodAutoscaler {
    fn prepare_create(&self, object: &mut Value) {
        set(object, &["status"], json!({"currentMetrics": null, "desiredReplicas": 0}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_spec(new, old);
    }

    fn warnings(&self, _object: &Value) -> Vec<String> {
        stored_only("HorizontalPodAutoscaler")
    }
}

/// PriorityClasses.
pub(crate) struct PriorityClass;

impl Strategy for PriorityClass {
    fn prepare_create(&self, object: &mut Value) {
        set(object, &["metadata", "generation"], 1);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        count_generation(new, old, &[&["value"]]);
    }
}
