//! Causes that several rollouts have in common.

use std::collections::BTreeMap;

use kcm_rollouts::{Cause, Diagnosis, State};
use serde::Serialize;
use serde_json::Value;

/// Cause of several rollouts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommonCause {
    /// Cause.
    pub(super) cause: Cause,
    /// Object with its kind, such as `quota shop/small` or `registry registry.example.com`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<String>,
    /// Deployments, as `NAMESPACE/NAME`.
    pub(super) deployments: Vec<String>,
}

impl CommonCause {
    /// Number of Deployments, object and cause in one line.
    pub(super) fn describe(&self) -> String {
        let object = self.object.as_ref().map(|object| format!(", {object}")).unwrap_or_default();
        format!("{} Deployments: {}{object}", self.deployments.len(), self.cause)
    }
}

/// Returns the causes that hold more than one rollout, the most frequent first. `deployments` are the objects of `found`.
pub(super) fn causes(found: &[Diagnosis], deployments: &[Value]) -> Vec<CommonCause> {
    let mut groups: BTreeMap<(Cause, Option<String>), Vec<String>> = BTreeMap::new();
    for (diagnosis, deployment) in found.iter().zip(deployments) {
        let Some(cause) = diagnosis.cause else { continue };
        if matches!(diagnosis.state, State::Complete | State::Progressing | State::Paused) {
            continue;
        }
        let name = format!("{}/{}", diagnosis.namespace, diagnosis.name);
        groups.entry((cause, object(diagnosis, cause, deployment))).or_default().push(name);
    }
    let mut common: Vec<CommonCause> = groups
        .into_iter()
        .filter(|(_, deployments)| deployments.len() > 1)
        .map(|((cause, object), deployments)| CommonCause { cause, object, deployments })
        .collect();
    common.sort_by_key(|common| std::cmp::Reverse(common.deployments.len()));
    common
}

/// Object of the cause, with its kind.
fn object(diagnosis: &Diagnosis, cause: Cause, deployment: &Value) -> Option<String> {
    let finding = diagnosis.findings.iter().find(|finding| finding.cause == cause)?;
    let object = finding.object.as_deref();
    let namespaced = |kind: &str| object.map(|object| format!("{kind} {}/{object}", diagnosis.namespace));
    let global = |kind: &str| object.map(|object| format!("{kind} {object}"));
    match cause.name() {
        "image_pull" | "image_pulling" => {
            let image = image(deployment, finding.container.as_deref()?)?;
            Some(format!("registry {}", registry(image)))
        }
        "quota_exceeded" => namespaced("quota"),
        "limit_range" => namespaced("limit range"),
        "admission_webhook" => global("webhook"),
        "node_lost" => global("node"),
        "scheduler_not_running" => global("scheduler"),
        _ => object.map(str::to_owned),
    }
}

/// Image of a container of the template.
fn image<'a>(deployment: &'a Value, container: &str) -> Option<&'a str> {
    let pod = deployment.pointer("/spec/template/spec")?;
    let lists = ["containers", "initContainers"].into_iter().filter_map(|list| pod[list].as_array());
    lists.flatten().find(|one| one["name"] == *container)?["image"].as_str()
}

/// Registry of an image. As for container runtimes, the first part is one if it has a dot or a port, or is `localhost`.
fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    }
}

#[cfg(test)]
mod tests {
    use kcm_rollouts::{Effect, Finding, Snapshot, diagnose};
    use serde_json::json;

    use super::*;

    fn rollout(name: &str, image: &str, cause: Cause, object: Option<&str>) -> (Diagnosis, Value) {
        let deployment = json!({
            "metadata": { "name": name, "namespace": "shop", "uid": name },
            "spec": { "paused": true, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": { "app": name } }, "template": {
                "spec": { "containers": [{ "name": "app", "image": image }] },
            } },
        });
        let now = "2026-01-15T00:00:00Z".parse().unwrap();
        let mut diagnosis = diagnose(&Snapshot::default(), &deployment, now).unwrap();
        let finding = diagnosis.findings.pop();
        let mut finding = finding.unwrap_or_else(|| panic!("{diagnosis:?}"));
        (finding.cause, finding.effect) = (cause, Effect::Blocks);
        (finding.object, finding.container) = (object.map(str::to_owned), Some("app".to_owned()));
        diagnosis.findings = Vec::<Finding>::from([finding]);
        (diagnosis.state, diagnosis.cause) = (State::Stuck, Some(cause));
        (diagnosis, deployment)
    }

    #[test]
    fn groups_by_registry_and_object() {
        let rows = [
            rollout("a", "r.example:5000/a:1", Cause::ImagePull, None),
            rollout("b", "r.example:5000/team/b:1", Cause::ImagePull, None),
            rollout("c", "r.example:5000/c:1", Cause::ImagePull, None),
            rollout("d", "team/d:1", Cause::ImagePull, None),
            rollout("e", "e:1", Cause::QuotaExceeded, Some("small")),
            rollout("f", "f:1", Cause::QuotaExceeded, Some("small")),
            rollout("g", "g:1", Cause::QuotaExceeded, Some("large")),
        ];
        let (found, deployments): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let lines: Vec<String> = causes(&found, &deployments).iter().map(CommonCause::describe).collect();
        assert_eq!(
            lines,
            [
                "3 Deployments: image_pull, registry r.example:5000",
                "2 Deployments: quota_exceeded, quota shop/small",
            ]
        );
    }

    #[test]
    fn only_held_rollouts() {
        let rows: Vec<_> = ["a", "b"]
            .map(|name| {
                let (diagnosis, deployment) = rollout(name, "a:1", Cause::PodStarting, None);
                (Diagnosis { state: State::Progressing, ..diagnosis }, deployment)
            })
            .into();
        let (found, deployments): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        assert_eq!(causes(&found, &deployments), []);
    }

    #[test]
    fn registries() {
        let registries =
            ["web", "web:1", "team/web:1", "localhost/web", "ghcr.io/o/web", "r:5000/web"].map(registry);
        assert_eq!(registries, ["docker.io", "docker.io", "docker.io", "localhost", "ghcr.io", "r:5000"]);
    }
}
