//! Strategies of kinds without a controller. They are stored so that `kubectl apply` of mixed manifests works.

use serde_json::{Value, json};

use super::Strategy;
use crate::{
    User,
    json::{at, set, str_at},
    selectable_field::SelectableField,
};

fn warning(kind: &str) -> Vec<String> {
    vec![format!("{kind} is stored only: no controller of the embedded API server acts on it")]
}

/// Services. No cluster IP is allocated, because no traffic is routed.
pub(crate) struct Service;

impl Strategy for Service {
    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn initial_status(&self, _object: &Value) -> Option<Value> {
        Some(json!({"loadBalancer": {}}))
    }

    fn prepare_create(&self, object: &mut Value, _user: Option<&User>) {
        let address = str_at(object, &["spec", "clusterIP"]).to_owned();
        if !address.is_empty() && at(object, &["spec", "clusterIPs"]).is_none() {
            set(object, &["spec", "clusterIPs"], json!([address]));
        }
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
        warning("Service")
    }
}

/// ResourceQuotas.
pub(crate) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        Some(json!({}))
    }
}

/// PodDisruptionBudgets.
pub(crate) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn initial_status(&self, _object: &Value) -> Option<Value> {
        Some(json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}))
    }

    fn generation_fields(&self) -> &'static [&'static [&'static str]] {
        &[&["spec"]]
    }
}

/// HorizontalPodAutoscalers.
pub(crate) struct HorizontalPodAutoscaler;

impl Strategy for HorizontalPodAutoscaler {
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        Some(json!({"desiredReplicas": 0}))
    }

    fn warnings(&self, _object: &Value) -> Vec<String> {
        warning("HorizontalPodAutoscaler")
    }
}

/// PriorityClasses.
pub(crate) struct PriorityClass;

impl Strategy for PriorityClass {
    fn generation_fields(&self) -> &'static [&'static [&'static str]] {
        &[&["value"]]
    }
}
