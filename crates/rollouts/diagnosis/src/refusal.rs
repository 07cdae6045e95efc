//! Refused creations of pods.

use jiff::SignedDuration;
use kcm_clock::Timestamp;
use serde_json::Value;

use crate::{
    cause::Cause,
    duration::short,
    finding::{Effect, Finding},
    index::Index,
    json::{amount, condition, text, time},
    snapshot::Snapshot,
};

/// Longest back-off of a ReplicaSet between two attempts, as upstream's.
const MAX_BACK_OFF: SignedDuration = SignedDuration::from_secs(1000);

/// Explains why the API server refuses the creation or deletion of the pods of a ReplicaSet. `None` if the last ones
/// succeeded.
///
/// The controller does not update the condition while writes fail, so a newer event has the reason of the last failure.
pub(crate) fn explain(index: &Index<'_>, replica_set: &Value, now: Timestamp) -> Option<Finding> {
    let snapshot = index.snapshot;
    let condition =
        condition(replica_set, "ReplicaFailure").filter(|condition| condition["status"] == "True")?;
    let newer = index
        .events
        .newest(replica_set, &["FailedCreate", "FailedDelete"])
        .filter(|event| event.at > time(condition, "/lastTransitionTime"));
    let (reason, message) = match newer {
        Some(event) => (event.reason, refused_write(event.message)),
        None => (text(condition, "/reason"), text(condition, "/message")),
    };
    if reason == "FailedDelete" {
        return Some(deletion(message));
    }
    let refused = classify(snapshot, message);
    if refused.cause != Cause::QuotaExceeded {
        return Some(refused);
    }
    if has_room(snapshot, message) {
        // The back-off doubles, so the next attempt comes after about the time since the first one.
        let since = time(condition, "/lastTransitionTime");
        let delay = since.map_or(MAX_BACK_OFF, |since| now.duration_since(since).min(MAX_BACK_OFF));
        let text = format!(
            "Quota {} refused new pods and has room again; the ReplicaSet controller waits for its back-off, {} at most.",
            refused.object.as_deref().unwrap_or_default(),
            short(delay),
        );
        let until = now.saturating_add(delay).ok();
        let object = refused.object.as_deref().unwrap_or_default();
        return Some(Finding::delays(Cause::CreateBackOff, text, until).object(object));
    }
    if index.frees_quota(now) {
        let message = format!("{} Terminating pods will free some of it.", refused.message);
        return Some(Finding { effect: Effect::Delays, message, ..refused });
    }
    Some(refused)
}

/// Message of the API server in the message of an event about a refused creation or deletion of pods.
pub fn refused_write(message: &str) -> &str {
    let message = message.strip_prefix("(combined from similar events):").unwrap_or(message).trim();
    let prefixes = ["Error creating: ", "Error deleting: "];
    prefixes.into_iter().find_map(|prefix| message.strip_prefix(prefix)).unwrap_or(message)
}

/// Explains a refused deletion of pods.
pub(crate) fn deletion(message: &str) -> Finding {
    let object = webhook(message).unwrap_or_default();
    let finding =
        Finding::blocks(Cause::DeleteRefused, format!("The deletion of pods is refused: {message}"));
    if object.is_empty() { finding } else { finding.object(object) }
}

/// Name of the webhook in the message of a refusal.
fn webhook(message: &str) -> Option<&str> {
    let is_webhook = message.contains("admission webhook") || message.contains("failed calling webhook");
    let name = message.split("webhook \"").nth(1).and_then(|rest| rest.split('"').next());
    name.filter(|_| is_webhook)
}

/// `true` if the quotas that refused a request, such as `requested: pods=1`, have room for it now.
fn has_room(snapshot: &Snapshot, message: &str) -> bool {
    let (Some(quotas), Some((_, details))) =
        (snapshot.quotas.known(), message.split_once("exceeded quota: "))
    else {
        return false;
    };
    let name = details.split(',').next().unwrap_or_default();
    let Some(quota) = quotas.iter().find(|quota| text(quota, "/metadata/name") == name) else {
        // The quota was deleted.
        return true;
    };
    let requested = details.split("requested: ").nth(1).and_then(|rest| rest.split(", used:").next());
    let fits = |pair: &str| {
        let (resource, wanted) = pair.split_once('=')?;
        let limit = quota["status"]["hard"].get(resource)?;
        let used = amount(&quota["status"]["used"][resource]);
        Some(used + amount(&Value::from(wanted)) <= amount(limit))
    };
    requested.is_some_and(|pairs| pairs.split(',').all(|pair| fits(pair).unwrap_or(true)))
}

/// Finds the cause in the message of the API server.
pub(crate) fn classify(snapshot: &Snapshot, message: &str) -> Finding {
    // Their messages can contain those of the others.
    if message.contains("admission webhook") || message.contains("failed calling webhook") {
        let name = webhook(message).unwrap_or_default();
        let text = if message.contains("denied the request") {
            let reason = message.split_once("denied the request").map_or("", |(_, reason)| reason);
            let reason = reason.trim_start_matches([':', ' ']);
            format!("Admission webhook {name} denies new pods: {}.", reason.trim_end_matches('.'))
        } else {
            format!("Admission webhook {name} cannot be called: {message}")
        };
        return Finding::blocks(Cause::AdmissionWebhook, text).object(name);
    }
    if let Some((_, policy)) = message.split_once("ValidatingAdmissionPolicy '") {
        let name = policy.split('\'').next().unwrap_or_default();
        let reason = policy.split_once("denied request: ").map_or(policy, |(_, reason)| reason);
        let text = format!("ValidatingAdmissionPolicy {name} refuses new pods: {reason}");
        return Finding::blocks(Cause::CreateRefused, text).object(name);
    }
    if let Some((_, details)) = message.split_once("exceeded quota: ") {
        let name = details.split(',').next().unwrap_or_default();
        return Finding::blocks(
            Cause::QuotaExceeded,
            format!("Quota {name} refuses new pods: {}.", numbers(snapshot, name, details)),
        )
        .object(name);
    }
    if let Some((_, details)) = message.split_once("failed quota: ") {
        let name = details.split(':').next().unwrap_or_default();
        return Finding::blocks(Cause::QuotaExceeded, format!("Quota {details}")).object(name);
    }
    if let Some((_, details)) = message.split_once("violates PodSecurity ") {
        return Finding::blocks(Cause::PodSecurity, format!("Pod Security refuses new pods: {details}"));
    }
    if ["usage per", "per Container", "per Pod", "limit to request ratio"]
        .iter()
        .any(|part| message.contains(part))
    {
        let details = message.split_once("is forbidden: ").map_or(message, |(_, details)| details);
        let names: Vec<&str> =
            snapshot.limit_ranges.seen().iter().map(|range| text(range, "/metadata/name")).collect();
        return Finding::blocks(Cause::LimitRange, format!("A limit range refuses new pods: {details}"))
            .object(&names.join(", "));
    }
    Finding::blocks(Cause::CreateRefused, format!("The API server refuses new pods: {message}"))
}

/// Numbers of a quota: those of the message, and the current ones if they can be read.
fn numbers(snapshot: &Snapshot, name: &str, details: &str) -> String {
    let details = details.split_once(", ").map_or(details, |(_, numbers)| numbers);
    let quota = snapshot.quotas.seen().iter().find(|quota| text(quota, "/metadata/name") == name);
    let Some(quota) = quota else { return details.to_owned() };
    let hard = quota.pointer("/status/hard").and_then(Value::as_object);
    let used = |resource: &str| quota["status"]["used"][resource].as_str().unwrap_or("0");
    let full = hard.into_iter().flatten().filter(|(resource, _)| details.contains(resource.as_str()));
    let now: Vec<String> = full
        .map(|(resource, limit)| {
            format!("{resource} {} of {}", used(resource), limit.as_str().unwrap_or("?"))
        })
        .collect();
    if now.is_empty() { details.to_owned() } else { format!("{details}; now {}", now.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        message: &'static str,
        cause: Cause,
        object: Option<&'static str>,
    }

    #[test]
    fn messages_of_the_api_server() {
        let cases = [
            Case {
                message: "pods \"web-1\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5",
                cause: Cause::QuotaExceeded,
                object: Some("small"),
            },
            Case {
                message: "pods \"web-1\" is forbidden: failed quota: compute: must specify limits.cpu for: app",
                cause: Cause::QuotaExceeded,
                object: Some("compute"),
            },
            Case {
                message: "admission webhook \"images.example.com\" denied the request: exceeded quota: x $(id), y",
                cause: Cause::AdmissionWebhook,
                object: Some("images.example.com"),
            },
            Case {
                message: "admission webhook \"images.example.com\" denied the request: unsigned image",
                cause: Cause::AdmissionWebhook,
                object: Some("images.example.com"),
            },
            Case {
                message: "Internal error occurred: failed calling webhook \"w.example.com\": connection refused",
                cause: Cause::AdmissionWebhook,
                object: Some("w.example.com"),
            },
            Case {
                message: "pods \"web-1\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
                cause: Cause::PodSecurity,
                object: None,
            },
            Case {
                message: "pods \"web-1\" is forbidden: maximum cpu usage per Container is 100m, but limit is 2",
                cause: Cause::LimitRange,
                object: Some(""),
            },
            Case {
                message: "pods \"web-1\" is forbidden: error looking up service account shop/web: not found",
                cause: Cause::CreateRefused,
                object: None,
            },
        ];
        for case in cases {
            let finding = classify(&Snapshot::default(), case.message);
            assert_eq!(
                (finding.cause, finding.object.as_deref()),
                (case.cause, case.object),
                "{}",
                case.message
            );
        }
    }
}
