//! Audit log: policy and format.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use kcm_apiserver::{AuditEvent, AuditSink, ObjectReference, json::write_json};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Selection of audited requests and the level at which they are logged. The default logs all requests at level
/// Request.
///
/// Upstream counterpart: `audit.k8s.io/v1` Policy. Rules match by user, group, verb, resource and namespace. The first
/// matching rule decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPolicy {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Level {
    None,
    Metadata,
    Request,
}

/// Rule of a policy. An empty list matches everything, as upstream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyFile {
    api_version: String,
    kind: String,
    /// Accepted and ignored.
    #[serde(default, rename = "metadata")]
    _metadata: Option<Value>,
    /// Stages that are not logged. Only stages that are never logged here are accepted.
    #[serde(default)]
    omit_stages: Vec<String>,
    rules: Vec<Rule>,
}

/// Invalid audit policy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuditPolicyError {
    /// The file is not valid YAML or has unknown fields.
    #[error(transparent)]
    Syntax(#[from] serde_saphyr::Error),
    /// The policy requires an unsupported feature.
    #[error("{0}")]
    Unsupported(String),
}

impl Default for AuditPolicy {
    fn default() -> Self {
        let everything = Rule {
            level: Level::Request,
            users: Vec::new(),
            user_groups: Vec::new(),
            verbs: Vec::new(),
            resources: Vec::new(),
            namespaces: Vec::new(),
            omit_stages: Vec::new(),
        };
        Self { rules: vec![everything] }
    }
}

impl AuditPolicy {
    /// Parses a policy file in YAML or JSON.
    ///
    /// # Errors
    ///
    /// The file is not a policy or requires an unsupported feature: level RequestResponse, non-resource URLs, object
    /// names, or omitting the stage ResponseComplete.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        let file: PolicyFile = serde_saphyr::from_str(text)?;
        let PolicyFile { api_version, kind, _metadata, omit_stages, rules } = file;
        if (api_version.as_str(), kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            return Err(AuditPolicyError::Unsupported(format!(
                "expected kind Policy in audit.k8s.io/v1, got {kind:?} in {api_version:?}"
            )));
        }
        let stages = rules.iter().flat_map(|rule| &rule.omit_stages).chain(&omit_stages);
        if let Some(stage) = stages
            .into_iter()
            .find(|stage| !matches!(stage.as_str(), "RequestReceived" | "ResponseStarted" | "Panic"))
        {
            return Err(AuditPolicyError::Unsupported(format!("stage {stage:?} cannot be omitted")));
        }
        Ok(Self { rules })
    }

    fn level(&self, event: &AuditEvent) -> Level {
        self.rules.iter().find(|rule| rule.matches(event)).map_or(Level::None, |rule| rule.level)
    }
}

impl Rule {
    fn matches(&self, event: &AuditEvent) -> bool {
        let of = |list: &[String], value: &str| list.is_empty() || list.iter().any(|listed| listed == value);
        let about = |matches: &dyn Fn(&ObjectReference) -> bool| event.object.as_ref().is_some_and(matches);
        of(&self.users, &event.user)
            && of(&self.verbs, event.verb)
            && (self.user_groups.is_empty()
                || event.groups.iter().any(|group| self.user_groups.contains(group)))
            && (self.namespaces.is_empty() || about(&|object| of(&self.namespaces, &object.namespace)))
            && (self.resources.is_empty()
                || about(&|object| self.resources.iter().any(|listed| listed.contains(object))))
    }
}

impl GroupResources {
    /// Matches `pods` (without subresources), `pods/status` (one subresource) and `pods/*` (all subresources).
    fn contains(&self, object: &ObjectReference) -> bool {
        self.group == object.api_group
            && (self.resources.is_empty()
                || self.resources.iter().any(|listed| {
                    let (resource, subresource) = listed.split_once('/').unwrap_or((listed, ""));
                    let any = listed == "*" || (subresource == "*" && !object.subresource.is_empty());
                    (resource == "*" || resource == object.resource)
                        && (any || subresource == object.subresource)
                }))
    }
}

/// Audit log file with a line of JSON per request that the policy selects.
///
/// Upstream counterpart: `--audit-log-path`, `audit/plugin/log`. DEVIATION: one event per request, at the start of its
/// response. The stage of a watch is ResponseStarted.
#[derive(Debug)]
pub struct AuditLog {
    policy: AuditPolicy,
    file: Mutex<File>,
}

impl AuditLog {
    /// Opens the file in append mode. It is created if it does not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn open(path: &Path, policy: AuditPolicy) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { policy, file: Mutex::new(file) })
    }

    /// Writes an event if the policy selects it. The event is in the file when this returns.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, event: &AuditEvent) -> io::Result<()> {
        let level = self.policy.level(event);
        if level == Level::None {
            return Ok(());
        }
        let mut line = Vec::with_capacity(1024);
        write_json(&mut line, &to_value(event, level));
        line.push(b'\n');
        // One write call, so that concurrent readers see whole lines.
        self.file.lock().write_all(&line)
    }

    /// Returns a sink for [`ApiServerConfig::audit`](kcm_apiserver::ApiServerConfig::audit). Write errors are logged.
    pub fn into_sink(self) -> AuditSink {
        Arc::new(move |event| {
            if let Err(error) = self.write(event) {
                tracing::error!(%error, "Failed to write audit log");
            }
        })
    }
}

fn to_value(event: &AuditEvent, level: Level) -> Value {
    let mut user = json!({"username": event.user, "groups": event.groups});
    if !event.user_uid.is_empty() {
        user["uid"] = json!(event.user_uid);
    }
    if !event.extra.is_empty() {
        user["extra"] = json!(event.extra);
    }
    let elapsed = SignedDuration::try_from(event.latency).unwrap_or_default();
    let mut value = json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": if level == Level::Metadata { "Metadata" } else { "Request" },
        "auditID": event.id,
        "stage": if event.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" },
        "requestURI": event.uri,
        "verb": event.verb,
        "user": user,
        "userAgent": event.user_agent,
        "responseStatus": {"metadata": {}, "code": event.code},
        "requestReceivedTimestamp": micros(event.received),
        "stageTimestamp": micros(event.received.checked_add(elapsed).unwrap_or(event.received)),
    });
    if let Some(failure) = &event.failure {
        value["responseStatus"]["status"] = json!("Failure");
        value["responseStatus"]["message"] = json!(failure.message);
        value["responseStatus"]["reason"] = json!(failure.reason.to_string());
    }
    if let Some(object) = &event.object {
        value["objectRef"] = reference(object);
    }
    if let Some(body) = event.request_object.as_ref().filter(|_| level == Level::Request) {
        value["requestObject"] = body.clone();
    }
    value
}

fn reference(object: &ObjectReference) -> Value {
    let members = [
        ("resource", &object.resource),
        ("namespace", &object.namespace),
        ("name", &object.name),
        ("uid", &object.uid),
        ("apiGroup", &object.api_group),
        ("apiVersion", &object.api_version),
        ("resourceVersion", &object.resource_version),
        ("subresource", &object.subresource),
    ];
    let given = members.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(given.map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>())
}

/// Formats a time as `metav1.MicroTime`.
fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use kcm_apiserver::{ApiStatus, StatusReason};

    fn event(user: &str, verb: &'static str, resource: &str, subresource: &str) -> AuditEvent {
        AuditEvent {
            id: "0000".to_owned(),
            received: "2024-05-06T07:08:09.5Z".parse().unwrap(),
            latency: Duration::from_millis(2),
            uri: "/apis/apps/v1/namespaces/a/deployments/web".to_owned(),
            verb,
            user: user.to_owned(),
            user_uid: "u2".to_owned(),
            groups: vec!["system:masters".to_owned()],
            extra: [("scopes".to_owned(), vec!["view".to_owned()])].into(),
            user_agent: "test".to_owned(),
            object: Some(ObjectReference {
                api_group: "apps".to_owned(),
                api_version: "v1".to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                namespace: "a".to_owned(),
                name: "web".to_owned(),
                uid: "1-2".to_owned(),
                resource_version: "7".to_owned(),
            }),
            request_object: Some(json!({"spec": {}})),
            code: 409,
            revision_before: 6,
            revision_after: 7,
            failure: Some(ApiStatus::new(StatusReason::Conflict, "no")),
        }
    }

    #[test]
    fn events_have_upstream_format() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = AuditLog::open(&path, AuditPolicy::default()).unwrap();
        log.write(&event("manager", "update", "deployments", "status")).unwrap();
        log.write(&event("manager", "get", "deployments", "")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[0],
            json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "auditID": "0000",
                "stage": "ResponseComplete", "requestURI": "/apis/apps/v1/namespaces/a/deployments/web",
                "verb": "update",
                "user": {"username": "manager", "uid": "u2", "groups": ["system:masters"],
                    "extra": {"scopes": ["view"]}},
                "userAgent": "test",
                "objectRef": {
                    "resource": "deployments", "namespace": "a", "name": "web", "uid": "1-2", "apiGroup": "apps",
                    "apiVersion": "v1", "resourceVersion": "7", "subresource": "status",
                },
                "requestObject": {"spec": {}},
                "responseStatus": {
                    "metadata": {}, "status": "Failure", "message": "no", "reason": "Conflict", "code": 409,
                },
                "requestReceivedTimestamp": "2024-05-06T07:08:09.500000Z",
                "stageTimestamp": "2024-05-06T07:08:09.502000Z",
            })
        );
    }

    #[test]
    fn first_matching_rule_decides() {
        let policy = AuditPolicy::parse(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules:\n\
             - level: None\n  resources: [{group: apps, resources: [replicasets, deployments/*]}]\n\
             - level: Request\n  users: [manager]\n  verbs: [create, update]\n\
             - level: Metadata\n  userGroups: [system:masters]\n  namespaces: [a]\n  verbs: [get]\n\
             - level: None\n",
        )
        .unwrap();
        let level = |user, verb, resource, part| policy.level(&event(user, verb, resource, part));
        assert_eq!(level("manager", "update", "deployments", ""), Level::Request);
        assert_eq!(level("manager", "update", "deployments", "status"), Level::None);
        assert_eq!(level("manager", "update", "replicasets", ""), Level::None);
        assert_eq!(level("manager", "update", "replicasets", "status"), Level::Request);
        assert_eq!(level("admin", "update", "deployments", ""), Level::None);
        assert_eq!(level("admin", "get", "deployments", ""), Level::Metadata);
        assert_eq!(to_value(&event("", "get", "", ""), Level::Metadata).get("requestObject"), None);
    }

    #[test]
    fn unsupported_policies_are_rejected() {
        let policy = |rule: &str| {
            AuditPolicy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {rule}\n"))
        };
        assert!(policy("level: Request").is_ok());
        for bad in [
            "level: RequestResponse",
            "{level: Request, nonResourceURLs: [/healthz]}",
            "{level: Request, omitStages: [ResponseComplete]}",
            "level: Everything",
        ] {
            assert!(policy(bad).is_err(), "{bad}");
        }
        assert!(AuditPolicy::parse("apiVersion: v1\nkind: Policy\nrules: []\n").is_err());
    }
}
