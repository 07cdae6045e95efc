//! Causes that `kubectl rollout undo` resolves.

use kcm_deployment_util::replica_sets::available_replica_count;
use serde_json::Value;

use crate::{
    cause::Cause,
    finding::{Effect, Finding},
    json::{list, text},
    rollout::Rollout,
};

/// `true` if the last revision exists and does not have the cause.
pub(crate) fn resolves(rollout: &Rollout<'_>, finding: &Finding) -> bool {
    let Some((last, new)) = last_revision(rollout) else { return false };
    let (last, new) = (&last["spec"]["template"]["spec"], &new["spec"]["template"]["spec"]);
    // Pods of the last revision that run are a sign that they can be created.
    let ran = available_replica_count(&rollout.sets.old) > 0;
    // kubectl does not undo a paused Deployment.
    finding.effect == Effect::Blocks
        && !rollout.deployment.spec.paused
        && match finding.cause {
            Cause::ImagePull => !has_same_image(last, new, finding.container.as_deref().unwrap_or_default()),
            Cause::ContainerConfig | Cause::VolumeMount | Cause::InitContainer => {
                missing(&finding.message).is_none_or(|missing| !missing.is_required_by(last))
            }
            Cause::CrashLoop | Cause::ProbeFailing | Cause::ProbeKill => true,
            Cause::QuotaExceeded
            | Cause::LimitRange
            | Cause::AdmissionWebhook
            | Cause::PodSecurity
            | Cause::CreateRefused
            | Cause::SchedulingGated
            | Cause::Unschedulable => ran,
            _ => false,
        }
}

/// ReplicaSet of the revision before the current one, and the new ReplicaSet.
fn last_revision<'a>(rollout: &Rollout<'a>) -> Option<(&'a Value, &'a Value)> {
    let revision = |set: &Value| {
        let value = &set["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        value.as_str().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
    };
    let new = rollout.new_set()?;
    let older = rollout.set_objects.iter().copied().filter(|set| (1..revision(new)).contains(&revision(set)));
    Some((older.max_by_key(|set| revision(set))?, new))
}

/// `true` if both pods pull the same image of the container in the same way.
fn has_same_image(last: &Value, new: &Value, container: &str) -> bool {
    let pull = |pod: &Value| {
        let lists = ["/containers", "/initContainers"].into_iter().flat_map(|lists| list(pod, lists));
        let found = lists.into_iter().find(|one| text(one, "/name") == container)?;
        Some([&found["image"], &found["imagePullPolicy"], &pod["imagePullSecrets"]].map(Value::clone))
    };
    pull(new).is_some_and(|image| pull(last) == Some(image))
}

/// ConfigMap or Secret that does not exist, or a key that it does not have.
#[derive(Debug, PartialEq, Eq)]
struct Missing<'a> {
    is_secret: bool,
    name: &'a str,
    key: Option<&'a str>,
}

/// Reads the missing object in a message of the kubelet: `secret "tls" not found`, or
/// `couldn't find key password in Secret shop/db`.
fn missing(message: &str) -> Option<Missing<'_>> {
    for (kind, is_secret) in [("configmap \"", false), ("secret \"", true)] {
        let name = message.split_once(kind).and_then(|(_, rest)| rest.split_once("\" not found"));
        if let Some((name, _)) = name {
            return Some(Missing { is_secret, name, key: None });
        }
    }
    let (key, object) = message.split_once("couldn't find key ")?.1.split_once(" in ")?;
    let (kind, name) = object.split_once(' ')?;
    let name = name.split_once('/')?.1.split_whitespace().next()?;
    Some(Missing { is_secret: kind == "Secret", name, key: Some(key) })
}

impl Missing<'_> {
    /// `true` if a part of the pod specification refers to the object, or to its key, and it is not optional there.
    fn is_required_by(&self, part: &Value) -> bool {
        let fields = match self.is_secret {
            true => ["secretKeyRef", "secretRef", "secret"],
            false => ["configMapKeyRef", "configMapRef", "configMap"],
        };
        match part {
            Value::Array(parts) => parts.iter().any(|part| self.is_required_by(part)),
            Value::Object(members) => members.iter().any(|(field, part)| {
                fields.contains(&field.as_str()) && self.is_meant(part) || self.is_required_by(part)
            }),
            _ => false,
        }
    }

    fn is_meant(&self, reference: &Value) -> bool {
        let is_named = ["name", "secretName"].iter().any(|field| reference[*field] == *self.name);
        let has_key = self.key.is_none_or(|key| reference["key"] == *key);
        is_named && has_key && reference["optional"] != true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_objects_in_messages() {
        let object = |is_secret, name| Some(Missing { is_secret, name, key: None });
        let key = |is_secret, name| Some(Missing { is_secret, name, key: Some("password") });
        let cases = [
            (
                "Container app cannot start (CreateContainerConfigError): configmap \"a\" not found",
                object(false, "a"),
            ),
            ("MountVolume.SetUp failed for volume \"v\" : secret \"tls\" not found", object(true, "tls")),
            ("couldn't find key password in Secret shop/db", key(true, "db")),
            ("couldn't find key password in ConfigMap shop/db", key(false, "db")),
            ("container has runAsNonRoot and image will run as root", None),
        ];
        for (message, expected) in cases {
            assert_eq!(missing(message), expected, "{message}");
        }
    }

    #[test]
    fn references_to_missing_objects() {
        let tls = Missing { is_secret: true, name: "tls", key: None };
        let pod = |volume: Value| json!({ "volumes": [{ "name": "v", "secret": volume }] });
        assert!(tls.is_required_by(&pod(json!({ "secretName": "tls" }))));
        assert!(!tls.is_required_by(&pod(json!({ "secretName": "tls", "optional": true }))));
        assert!(!tls.is_required_by(&pod(json!({ "secretName": "other" }))));
        let projected = json!({ "projected": { "sources": [{ "secret": { "name": "tls" } }] } });
        assert!(tls.is_required_by(&projected));
        let key = Missing { is_secret: true, name: "db", key: Some("password") };
        let env = |key: &str| json!([{ "valueFrom": { "secretKeyRef": { "name": "db", "key": key } } }]);
        assert!(key.is_required_by(&env("password")) && !key.is_required_by(&env("user")));
    }
}
