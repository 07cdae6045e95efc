//! The custom resource `PodPool`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A number of equal pods, each of which takes a seat of an external reservation.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.org",
    version = "v1",
    kind = "PodPool",
    namespaced,
    status = "PodPoolStatus",
    doc = "A number of equal pods, each of which takes a seat of an external reservation.",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}"#,
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct PodPoolSpec {
    /// Number of pods.
    pub replicas: u32,
    /// Labels of the pods. Pods that have them and no controller are adopted.
    pub selector: BTreeMap<String, String>,
    /// Template of the pods. Its labels contain those of the selector.
    #[schemars(schema_with = "any_object")]
    pub template: PodTemplateSpec,
    /// Maximum number of pods that are not ready while pods are moved off cordoned nodes.
    #[serde(default = "one")]
    pub max_unavailable: u32,
}

/// Observed state of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodPoolStatus {
    /// Generation of the specification that this status is for.
    pub observed_generation: Option<i64>,
    /// Number of pods that are not finished and not being deleted.
    #[serde(default)]
    pub replicas: u32,
    /// Number of those that are ready.
    #[serde(default)]
    pub ready_replicas: u32,
    /// Number of those that are on cordoned nodes.
    #[serde(default)]
    pub cordoned_replicas: u32,
}

const fn one() -> u32 {
    1
}

/// Schema of an object with any fields.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
