//! Failure of requests of the controllers.

use serde_json::{Value, json};

use crate::scenario::{Refusal, Request};

impl Request {
    /// `true` if the HTTP request with this method and path is the named one.
    pub fn matches(self, method: &str, path: &str) -> bool {
        let is_update = method == "PUT" || method == "PATCH";
        let segments: Vec<&str> = path.split('/').collect();
        let ends = |plural: &str| segments.last() == Some(&plural);
        // A named object, or its subresource.
        let item = |plural: &str, from_end: usize| {
            segments.len().checked_sub(from_end).is_some_and(|index| segments.get(index) == Some(&plural))
        };
        let status = segments.last() == Some(&"status");
        match self {
            Self::CreatePods => method == "POST" && ends("pods"),
            Self::DeletePods => method == "DELETE" && item("pods", 2),
            Self::CreateReplicaSets => method == "POST" && ends("replicasets"),
            Self::UpdateReplicaSets => is_update && item("replicasets", 2),
            Self::UpdateDeploymentStatus => is_update && status && item("deployments", 3),
            Self::UpdateReplicaSetStatus => is_update && status && item("replicasets", 3),
        }
    }
}

impl Refusal {
    /// Response of the API server: a `Status`.
    pub fn status(&self) -> Value {
        let reason = match self.code {
            403 => "Forbidden",
            422 => "Invalid",
            _ => "InternalError",
        };
        json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": self.code, "reason": reason,
            "message": self.message,
        })
    }
}
