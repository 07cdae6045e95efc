//! Standing refusals: requests of the controllers that the API server of the cluster refuses before the change.

use kcm_api::{Deployment, PodTemplate, condition_type};
use kcm_apiserver::Resource;
use kcm_clock::Timestamp;
use kcm_rollouts::{last_time, refused_write};
use serde_json::{Value, json};

use crate::{
    Snapshot,
    json::{condition, number, text, time},
};

/// Reason of the condition `Progressing` if the ReplicaSet cannot be created.
pub(crate) const REPLICA_SET_CREATE_ERROR: &str = "ReplicaSetCreateError";

/// Request that the API server refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    CreatePods,
    DeletePods,
    CreateReplicaSets,
}

/// Refusal that a condition of the Deployment or of a ReplicaSet reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    request: Request,
    /// Name of the ReplicaSet whose controller the request is of, or of the Deployment.
    pub(crate) object: String,
    /// Message of the API server.
    pub(crate) message: String,
    /// Time of the first refusal.
    pub(crate) since: Option<Timestamp>,
    /// `true` if the preview assumes that the API server continues to refuse the requests.
    pub(crate) stands: bool,
    /// `true` for a quota that the simulation enforces.
    pub(crate) is_quota: bool,
}

impl Refusal {
    /// `true` if creations of `resource` are refused.
    pub(crate) fn creates(&self, resource: Resource) -> bool {
        match self.request {
            Request::CreatePods => resource == Resource::PODS,
            Request::CreateReplicaSets => resource == Resource::REPLICA_SETS,
            Request::DeletePods => false,
        }
    }

    /// `true` if deletions of pods are refused.
    pub(crate) fn deletes_pods(&self) -> bool {
        self.request == Request::DeletePods
    }

    /// Description of the refused requests.
    pub(crate) fn requests(&self) -> &'static str {
        match self.request {
            Request::CreatePods => "the creation of pods",
            Request::DeletePods => "the deletion of pods",
            Request::CreateReplicaSets => "the creation of ReplicaSets",
        }
    }
}

/// Returns the refusals in `snapshot`, for a change with the result `after`.
///
/// A quota that could be read is simulated. Another refusal stands, unless the change replaces the spec of the pods,
/// which may be what is refused. A webhook that cannot be called refuses every spec.
pub(crate) fn standing(snapshot: &Snapshot, after: &Deployment) -> Vec<Refusal> {
    if snapshot.is_terminating {
        let message = format!(
            "unable to create new content in namespace {} because it is being terminated",
            snapshot.namespace
        );
        let refusal = |request| Refusal {
            request,
            object: snapshot.name.clone(),
            message: message.clone(),
            since: None,
            stands: true,
            is_quota: false,
        };
        return vec![refusal(Request::CreatePods), refusal(Request::CreateReplicaSets)];
    }
    let mut refusals: Vec<Refusal> = Vec::new();
    let mut add = |request, object: &Value, condition: &Value, message: &str| {
        let message = message.to_owned();
        let is_quota = ["exceeded quota: ", "failed quota: "].iter().any(|part| message.contains(part))
            && !snapshot.unreadable.iter().any(|list| list.resource == "resourcequotas");
        let is_changed = !spec_of(&object["spec"]["template"])
            .equal_ignore_hash(&spec_of(&after.spec.template.to_value()));
        let may_depend_on_spec =
            request != Request::DeletePods && !message.contains("failed calling webhook");
        let stands = !(is_quota || is_changed && may_depend_on_spec);
        let since = time(condition, "/lastTransitionTime");
        if !refusals.iter().any(|known| known.request == request && known.message == message) {
            let object = text(object, "/metadata/name").to_owned();
            refusals.push(Refusal { request, object, message, since, stands, is_quota });
        }
    };
    for set in snapshot.own_replica_sets() {
        let failure = condition(set, condition_type::REPLICA_FAILURE);
        let Some(failure) = failure.filter(|failure| failure["status"] == "True") else { continue };
        let [desired, actual] =
            ["/spec/replicas", "/status/replicas"].map(|field| number(set, field).unwrap_or(0));
        let message = newest_message(&snapshot.events, set, failure);
        match text(failure, "/reason") {
            "FailedCreate" if actual < desired => add(Request::CreatePods, set, failure, message),
            "FailedDelete" if actual > desired => add(Request::DeletePods, set, failure, message),
            _ => {}
        }
    }
    if let Some(deployment) = &snapshot.deployment
        && let Some(progressing) = condition(deployment, condition_type::PROGRESSING)
        && progressing["reason"] == REPLICA_SET_CREATE_ERROR
    {
        add(Request::CreateReplicaSets, deployment, progressing, text(progressing, "/message"));
    }
    refusals
}

/// Returns the message of the newest refusal of the requests of `set`.
///
/// The condition `failure` retains the message of the first refusal, although later ones may have another reason. The events
/// contain these.
fn newest_message<'a>(events: &'a [Value], set: &Value, failure: &'a Value) -> &'a str {
    let is_refusal = |event: &&Value| {
        event["reason"] == failure["reason"]
            && text(event, "/involvedObject/uid") == text(set, "/metadata/uid")
            && last_time(event) >= time(failure, "/lastTransitionTime")
    };
    let Some(event) = events.iter().filter(is_refusal).max_by_key(|event| last_time(event)) else {
        return text(failure, "/message");
    };
    refused_write(text(event, "/message"))
}

/// Template without its metadata.
fn spec_of(template: &Value) -> PodTemplate {
    serde_json::from_value(json!({ "spec": template["spec"] })).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unreadable;

    const POLICY: &str = "pods \"web-1-\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no";

    fn spec(image: &str) -> Value {
        json!({ "metadata": {}, "spec": { "containers": [{ "name": "app", "image": image }] } })
    }

    fn snapshot(reason: &str, message: &str, replicas: (u8, u8)) -> Snapshot {
        let since = "2026-01-01T00:00:00Z";
        let set = json!({
            "metadata": { "uid": "s", "ownerReferences": [{ "controller": true, "uid": "d" }] },
            "spec": { "replicas": replicas.0, "template": spec("web:1") },
            "status": { "replicas": replicas.1, "conditions": [{
                "type": "ReplicaFailure", "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": since,
            }] },
        });
        let deployment = json!({ "metadata": { "uid": "d" }, "spec": { "template": spec("web:1") } });
        Snapshot { deployment: Some(deployment), replica_sets: vec![set], ..Snapshot::default() }
    }

    fn after(image: &str) -> Deployment {
        serde_json::from_value(json!({ "spec": { "template": spec(image) } })).unwrap()
    }

    struct Case {
        name: &'static str,
        reason: &'static str,
        message: &'static str,
        /// Desired and existing replicas.
        replicas: (u8, u8),
        image: &'static str,
        /// `None` if there is no refusal.
        stands: Option<bool>,
    }

    #[test]
    fn refusal_stands_unless_the_change_may_end_it() {
        let quota = "pods \"web-1-\" is forbidden: exceeded quota: small, requested: pods=1";
        let webhook = "Internal error occurred: failed calling webhook \"w\": connection refused";
        for Case { name, reason, message, replicas, image, stands } in [
            Case {
                name: "equal spec",
                reason: "FailedCreate",
                message: POLICY,
                replicas: (3, 0),
                image: "web:1",
                stands: Some(true),
            },
            Case {
                name: "other image",
                reason: "FailedCreate",
                message: POLICY,
                replicas: (3, 0),
                image: "web:2",
                stands: Some(false),
            },
            Case {
                name: "webhook",
                reason: "FailedCreate",
                message: webhook,
                replicas: (3, 0),
                image: "web:2",
                stands: Some(true),
            },
            Case {
                name: "quota",
                reason: "FailedCreate",
                message: quota,
                replicas: (3, 2),
                image: "web:1",
                stands: Some(false),
            },
            Case {
                name: "deletion",
                reason: "FailedDelete",
                message: POLICY,
                replicas: (1, 2),
                image: "web:2",
                stands: Some(true),
            },
            Case {
                name: "outdated",
                reason: "FailedCreate",
                message: POLICY,
                replicas: (2, 2),
                image: "web:1",
                stands: None,
            },
        ] {
            let found = standing(&snapshot(reason, message, replicas), &after(image));
            assert_eq!(found.first().map(|refusal| refusal.stands), stands, "{name}");
        }
    }

    #[test]
    fn unreadable_quota_continues_to_refuse() {
        let mut snapshot = snapshot("FailedCreate", "exceeded quota: small, requested: pods=1", (3, 2));
        snapshot.unreadable = vec![Unreadable {
            resource: "resourcequotas".to_owned(),
            reason: "forbidden".to_owned(),
            permission: None,
        }];
        let refusals = standing(&snapshot, &after("web:1"));
        assert_eq!((refusals[0].stands, refusals[0].is_quota), (true, false));
    }

    /// Event about the ReplicaSet.
    fn event(message: &str, last: &str) -> Value {
        json!({
            "involvedObject": { "uid": "s" }, "reason": "FailedCreate", "message": message, "lastTimestamp": last,
        })
    }

    /// The condition keeps the message of the webhook, which was repaired.
    #[test]
    fn newest_event_replaces_the_message_of_the_condition() {
        let webhook = "Internal error occurred: failed calling webhook \"w\": connection refused";
        let mut snapshot = snapshot("FailedCreate", webhook, (3, 0));
        snapshot.events = vec![
            event(
                &format!("(combined from similar events): Error creating: {POLICY}"),
                "2026-01-01T00:05:00Z",
            ),
            event(&format!("Error creating: {webhook}"), "2026-01-01T00:01:00Z"),
        ];
        let refusals = standing(&snapshot, &after("web:2"));
        assert_eq!((&*refusals[0].message, refusals[0].stands), (POLICY, false));
        assert_eq!(refusals[0].since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        // An event of an earlier failure.
        snapshot.events = vec![event(POLICY, "2025-12-31T23:59:00Z")];
        assert_eq!(standing(&snapshot, &after("web:2"))[0].message, webhook);
    }
}
