//! Requests of a controller manager, from the audit log of an API server.

use kcm_apiserver::{AuditEvent, defaults};
use serde::Deserialize;
use serde_json::{Value, json};

/// Request of the manager, as an audit log contains it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// `create`, `update`, `patch`, `delete` or `deletecollection`; `watch` for a watch that has started.
    pub verb: String,
    /// Plural resource name, for example `pods`.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// Request body.
    pub body: Option<Value>,
    /// HTTP status of the response.
    pub code: u16,
}

impl Entry {
    /// `true` if the request writes.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Parses a line of an `audit.k8s.io/v1` log.
    pub fn from_audit_line(line: &str) -> Result<Self, serde_json::Error> {
        let event: AuditLine = serde_json::from_str(line)?;
        let AuditLine { verb, object_ref, request_object, response_status } = event;
        let ObjectRef { resource, subresource, namespace, name } = object_ref;
        let code = response_status.code;
        Ok(Self { verb, resource, subresource, namespace, name, body: request_object, code })
    }
}

/// Converts to the form that kube-apiserver logs: decoded objects with defaults and their name.
impl From<&AuditEvent> for Entry {
    fn from(event: &AuditEvent) -> Self {
        let object = event.object.clone().unwrap_or_default();
        let mut body = event.request_object.clone();
        let mut name = object.name;
        if let ("create" | "update", Some(body)) = (event.verb, &mut body) {
            apply_defaults(body);
            if name.is_empty() {
                name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            }
        }
        Self {
            verb: event.verb.to_owned(),
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name,
            body,
            code: event.code,
        }
    }
}

fn apply_defaults(object: &mut Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    defaults::apply(&kind, object);
    // Go encodes these fields even if they were absent.
    let Value::Object(members) = object else { return };
    if matches!(kind.as_str(), "Pod" | "ReplicaSet") {
        let status = members.entry("status").or_insert_with(|| json!({}));
        if let ("ReplicaSet", Value::Object(status)) = (kind.as_str(), status) {
            status.entry("replicas").or_insert_with(|| json!(0));
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditLine {
    #[serde(default)]
    verb: String,
    #[serde(default)]
    object_ref: ObjectRef,
    request_object: Option<Value>,
    #[serde(default)]
    response_status: ResponseStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_update_is_parsed() {
        let line = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","verb":"update",
            "user":{"username":"manager"},"objectRef":{"resource":"deployments","namespace":"n","name":"web",
            "apiGroup":"apps","apiVersion":"v1","resourceVersion":"4","subresource":"status"},
            "responseStatus":{"metadata":{},"status":"Failure","reason":"Conflict","code":409},
            "requestObject":{"kind":"Deployment"}}"#;
        let entry = Entry::from_audit_line(line).unwrap();
        assert_eq!((entry.verb.as_str(), entry.subresource.as_str(), entry.code), ("update", "status", 409));
        assert!(entry.is_write());
        assert_eq!(entry.body.unwrap()["kind"], "Deployment");
    }

    #[test]
    fn defaults_are_applied() {
        let mut object = json!({"kind": "ReplicaSet", "spec": {}});
        apply_defaults(&mut object);
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(object["status"], json!({"replicas": 0}));
    }

    #[test]
    fn invalid_line_is_rejected() {
        assert!(Entry::from_audit_line("audit: ready").is_err());
    }
}
