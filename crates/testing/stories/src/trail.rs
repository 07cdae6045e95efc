//! What the manager under observation does, as the API server tells it.

use std::sync::Arc;

use kcm_apiserver::{AuditEvent, defaults};
use kcm_clock::Clock;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// One request of the manager, as an audit log tells of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// `create`, `update`, `patch`, `delete`, `deletecollection`; `watch` for one that has begun.
    pub verb: String,
    /// The plural name, such as `pods`.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name, or empty.
    pub name: String,
    /// What was in its body.
    pub body: Option<Value>,
    /// The HTTP status of the answer.
    pub code: u16,
}

impl Entry {
    /// Whether it would change something, if the server lets it.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// From a line of a log in the form `audit.k8s.io/v1`.
    ///
    /// # Errors
    ///
    /// When the line is no such event.
    pub fn from_audit_line(line: &str) -> Result<Self, serde_json::Error> {
        let event: AuditLine = serde_json::from_str(line)?;
        let AuditLine { verb, object_ref, request_object, response_status } = event;
        let ObjectRef { resource, subresource, namespace, name } = object_ref;
        let code = response_status.code;
        Ok(Self { verb, resource, subresource, namespace, name, body: request_object, code })
    }
}

/// As upstream's server would tell of it: the object as it was understood, with defaults, and its name.
impl From<&AuditEvent> for Entry {
    fn from(event: &AuditEvent) -> Self {
        let object = event.object.clone().unwrap_or_default();
        let mut body = event.request_object.clone();
        let mut name = object.name;
        if let ("create" | "update", Some(body)) = (event.verb, &mut body) {
            understand(body);
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

fn understand(object: &mut Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    defaults::apply(&kind, object);
    // Go spells these out, whether anything was sent for them or not.
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

/// Where entries are left.
#[derive(Debug, Clone)]
pub struct TrailSender(mpsc::UnboundedSender<Entry>);

impl TrailSender {
    /// Leaves an entry. Nobody minds if nobody reads any more.
    pub fn leave(&self, entry: Entry) {
        let _ = self.0.send(entry);
    }
}

/// What the manager did and nobody has looked at yet, in order.
#[derive(Debug)]
pub struct Trail {
    entries: mpsc::UnboundedReceiver<Entry>,
    clock: Arc<dyn Clock>,
}

impl Trail {
    /// An empty trail.
    pub fn new(clock: Arc<dyn Clock>) -> (TrailSender, Self) {
        let (sender, entries) = mpsc::unbounded_channel();
        (TrailSender(sender), Self { entries, clock })
    }

    /// The next entry, if there is one before the monotonic time `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no entry.
    pub async fn next_before(&mut self, deadline: std::time::Duration) -> Option<Entry> {
        let left = deadline.saturating_sub(self.clock.monotonic());
        tokio::select! {
            biased;
            entry = self.entries.recv() => entry,
            () = self.clock.sleep(left) => None,
        }
    }

    /// The next entry, if there is one already.
    pub fn try_next(&mut self) -> Option<Entry> {
        self.entries.try_recv().ok()
    }

    /// Forgets what is there.
    pub fn clear(&mut self) {
        while self.try_next().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_line_of_a_refused_update_becomes_an_entry() {
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
    fn object_is_told_as_it_was_understood() {
        let mut object = json!({"kind": "ReplicaSet", "spec": {}});
        understand(&mut object);
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(object["status"], json!({"replicas": 0}));
    }

    #[test]
    fn audit_line_that_is_none_is_refused() {
        assert!(Entry::from_audit_line("audit: ready").is_err());
    }
}
