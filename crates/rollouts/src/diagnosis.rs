//! Diagnosis of a rollout.

use kcm_clock::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::{
    cause::Cause,
    json::{number, text},
    snapshot::{Snapshot, Unreadable},
};

/// Version of the JSON form of a [`Diagnosis`].
pub const API_VERSION: &str = "rollouts/v1alpha1";

/// State of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// All pods have the current template and are available, and no old pod is left.
    Complete,
    /// The rollout continues without intervention.
    Progressing,
}

/// State of a rollout and its explanation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `RolloutDiagnosis`.
    pub kind: &'static str,
    /// Namespace of the Deployment.
    pub namespace: String,
    /// Name of the Deployment.
    pub name: String,
    /// State.
    pub state: State,
    /// Most important cause.
    pub cause: Option<Cause>,
    /// The state in one sentence.
    pub summary: String,
    /// Resources that could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// Explains the state of the rollout of `deployment` at `now`, the time at which `snapshot` of its namespace was read.
pub fn diagnose(snapshot: &Snapshot, deployment: &Value, _now: Timestamp) -> Diagnosis {
    let status = |field: &str| number(deployment, &format!("/status/{field}")).unwrap_or(0);
    let desired = number(deployment, "/spec/replicas").unwrap_or(1);
    let current = status("observedGeneration") >= number(deployment, "/metadata/generation").unwrap_or(0);
    let (updated, available) = (status("updatedReplicas"), status("availableReplicas"));
    let complete = current && updated == desired && available == desired && status("replicas") == desired;
    Diagnosis {
        api_version: API_VERSION,
        kind: "RolloutDiagnosis",
        namespace: text(deployment, "/metadata/namespace").to_owned(),
        name: text(deployment, "/metadata/name").to_owned(),
        state: if complete { State::Complete } else { State::Progressing },
        cause: None,
        summary: format!("{updated} of {desired} replicas updated, {available} available"),
        unreadable: snapshot.unreadable.clone(),
    }
}
