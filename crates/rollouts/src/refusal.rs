//! Refused creations of pods.

use serde_json::Value;

use crate::{
    cause::Cause,
    finding::Finding,
    json::{condition, list, text},
    snapshot::Snapshot,
};

/// Explains why the API server refuses the pods of a ReplicaSet. `None` if its last creation succeeded.
pub(crate) fn explain(snapshot: &Snapshot, replica_set: &Value) -> Option<Finding> {
    let condition =
        condition(replica_set, "ReplicaFailure").filter(|condition| condition["status"] == "True")?;
    if condition["reason"] != "FailedCreate" {
        return None;
    }
    let message = text(condition, "/message");
    Some(classify(snapshot, message))
}

/// Finds the cause in the message of the API server.
pub(crate) fn classify(snapshot: &Snapshot, message: &str) -> Finding {
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
    if message.contains("admission webhook") || message.contains("failed calling webhook") {
        let name = message.split('"').nth(1).unwrap_or_default();
        let text = if message.contains("denied the request") {
            let reason = message.split_once("denied the request").map_or("", |(_, reason)| reason);
            let reason = reason.trim_start_matches([':', ' ']);
            format!("Admission webhook {name} denies new pods: {}.", reason.trim_end_matches('.'))
        } else {
            format!("Admission webhook {name} cannot be called: {message}")
        };
        return Finding::blocks(Cause::AdmissionWebhook, text).object(name);
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
            snapshot.limit_ranges.iter().map(|range| text(range, "/metadata/name")).collect();
        return Finding::blocks(Cause::LimitRange, format!("A limit range refuses new pods: {details}"))
            .object(&names.join(", "));
    }
    Finding::blocks(Cause::CreateRefused, format!("The API server refuses new pods: {message}"))
}

/// Numbers of a quota: those of the message, and the current ones if they can be read.
fn numbers(snapshot: &Snapshot, name: &str, details: &str) -> String {
    let details = details.split_once(", ").map_or(details, |(_, numbers)| numbers);
    let quota = snapshot.quotas.iter().find(|quota| text(quota, "/metadata/name") == name);
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

/// Number of terminating pods of the namespace. Their removal frees quota.
pub(crate) fn terminating(snapshot: &Snapshot) -> usize {
    let is_terminating = |pod: &&Value| pod.pointer("/metadata/deletionTimestamp").is_some();
    let held = |pod: &&Value| !list(pod, "/metadata/finalizers").is_empty();
    snapshot.pods.iter().filter(is_terminating).filter(|pod| !held(pod)).count()
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
