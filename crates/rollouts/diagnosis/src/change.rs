//! Last change of a pod template, from `managedFields` and the ReplicaSets or ControllerRevisions.

use jiff::SignedDuration;
use kcm_clock::Timestamp;
use serde_json::Value;

use crate::json::{list, number, text, time};

/// Label that the Deployment controller adds to the template of a ReplicaSet.
const HASH: &str = "pod-template-hash";
/// Maximum time from a change to the creation of its revision.
const CONTROLLER_DELAY: SignedDuration = SignedDuration::from_secs(60);
/// Usual time from a change to the creation of its revision.
const USUAL_DELAY: SignedDuration = SignedDuration::from_secs(5);

/// Returns the time of the last change of the pod template, and the manager that made it.
///
/// `revisions` are the ReplicaSets of a Deployment, or the ControllerRevisions of another workload. The time is the creation
/// of the revision with the template, or else that of the manager's entry. An entry also gets a new time when its manager
/// changes another field, so an entry that is older than the change excludes its manager. `None` if more than one manager
/// remains, or the template is that of an older revision: no object contains the time then.
pub(crate) fn last_change_of_template(workload: &Value, revisions: &[&Value]) -> Option<(Timestamp, String)> {
    let created = |revision: &&Value| time(revision, "/metadata/creationTimestamp");
    let newest = revisions.iter().filter_map(created).max();
    let template = template(workload);
    let current = revisions.iter().find(|revision| self::template(revision) == template);
    let managers = managers(workload);
    let Some(at) = current.map(created) else {
        // The controller has not created the revision.
        let is_observed =
            number(workload, "/status/observedGeneration") >= number(workload, "/metadata/generation");
        if is_observed && workload["spec"]["paused"] != true {
            return None;
        }
        let since = |entry: &&Entry<'_>| newest.is_none_or(|newest| entry.time >= newest);
        let Entry { time, manager } = only(managers.iter().filter(since))?;
        return Some((time, manager.to_owned()));
    };
    let at = at.filter(|at| newest == Some(*at))?;
    let since = |delay| at.saturating_sub(delay).unwrap_or(at);
    let possible = || managers.iter().filter(move |entry| entry.time >= since(CONTROLLER_DELAY));
    let usual = |entry: &&Entry<'_>| entry.time <= at && entry.time >= since(USUAL_DELAY);
    let Entry { manager, .. } = only(possible()).or_else(|| only(possible().filter(usual)))?;
    Some((at, manager.to_owned()))
}

/// Entry of `managedFields`.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    time: Timestamp,
    manager: &'a str,
}

/// Entries of the managers that own fields of the template.
fn managers(workload: &Value) -> Vec<Entry<'_>> {
    list(workload, "/metadata/managedFields")
        .iter()
        .filter(|entry| text(entry, "/subresource").is_empty())
        .filter(|entry| entry.pointer("/fieldsV1/f:spec/f:template").is_some())
        .filter_map(|entry| Some(Entry { time: time(entry, "/time")?, manager: text(entry, "/manager") }))
        .filter(|entry| !entry.manager.is_empty())
        .collect()
}

/// Returns the element if there is exactly one.
fn only<'a, 'b: 'a>(mut entries: impl Iterator<Item = &'a Entry<'b>>) -> Option<Entry<'b>> {
    let first = *entries.next()?;
    entries.next().is_none().then_some(first)
}

/// Pod template of a workload or of its revision, without the members that the controller adds.
fn template(object: &Value) -> Value {
    let mut template = object.pointer("/data/spec/template").unwrap_or(&object["spec"]["template"]).clone();
    if let Some(members) = template.as_object_mut() {
        members.remove("$patch");
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        // Members of a typed object that was serialized.
        metadata.retain(|_, value| !value.is_null());
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(HASH);
        }
    }
    template
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, at: &str, fields: &Value) -> Value {
        json!({ "manager": manager, "operation": "Update", "time": at, "fieldsV1": { "f:spec": fields } })
    }

    fn template_of(manager: &str, at: &str) -> Value {
        entry(manager, at, &json!({ "f:replicas": {}, "f:template": { "f:spec": {} } }))
    }

    fn deployment(image: &str, managed_fields: &[Value]) -> Value {
        json!({
            "metadata": { "name": "web", "generation": 2, "managedFields": managed_fields },
            "status": { "observedGeneration": 1 },
            "spec": { "template": {
                "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "image": image }] },
            } },
        })
    }

    fn replica_set(image: &str, created: &str) -> Value {
        json!({
            "metadata": { "creationTimestamp": created },
            "spec": { "template": {
                "metadata": { "labels": { "app": "web", "pod-template-hash": "1" } },
                "spec": { "containers": [{ "image": image }] },
            } },
        })
    }

    const OLD: &str = "2026-01-15T10:00:00Z";
    const CHANGE: &str = "2026-01-15T14:02:00Z";
    const LATER: &str = "2026-01-15T15:00:00Z";

    fn find(managed_fields: &[Value], sets: &[(&str, &str)]) -> Option<(String, String)> {
        let sets: Vec<Value> = sets.iter().map(|(image, at)| replica_set(image, at)).collect();
        let sets: Vec<&Value> = sets.iter().collect();
        let found = last_change_of_template(&deployment("app:2", managed_fields), &sets);
        found.map(|(at, manager)| (at.to_string(), manager))
    }

    fn some(at: &str, manager: &str) -> Option<(String, String)> {
        Some((at.to_owned(), manager.to_owned()))
    }

    #[test]
    fn creation_of_the_replica_set() {
        let sets = [("app:1", OLD), ("app:2", CHANGE)];
        let helm = template_of("helm", OLD);
        assert_eq!(find(&[helm.clone(), template_of("argocd", CHANGE)], &sets), some(CHANGE, "argocd"));
        // The manager has changed another field since.
        assert_eq!(find(&[helm.clone(), template_of("argocd", LATER)], &sets), some(CHANGE, "argocd"));
        // Two managers have, of which one did nothing else.
        let both = [template_of("kubectl-edit", "2026-01-15T14:01:59Z"), template_of("argocd", LATER)];
        assert_eq!(find(&both, &sets), some(CHANGE, "kubectl-edit"));
        let scale = entry("hpa", CHANGE, &json!({ "f:replicas": {} }));
        assert_eq!(find(&[helm, scale, template_of("argocd", LATER)], &sets), some(CHANGE, "argocd"));
    }

    #[test]
    fn change_without_a_replica_set() {
        let sets = [("app:1", OLD)];
        let managers = [template_of("helm", "2026-01-15T09:59:59Z"), template_of("argocd", CHANGE)];
        assert_eq!(find(&managers, &sets), some(CHANGE, "argocd"));
        assert_eq!(find(&[template_of("helm", OLD)], &[]), some(OLD, "helm"));
    }

    #[test]
    fn controller_revisions() {
        let revision = |image: &str, created: &str| {
            let mut revision = replica_set(image, created);
            let mut template = revision["spec"]["template"].take();
            template["$patch"] = json!("replace");
            template["metadata"] = json!({ "creationTimestamp": null, "labels": { "app": "web" } });
            revision["data"] = json!({ "spec": { "template": template } });
            revision
        };
        let (old, new) = (revision("app:1", OLD), revision("app:2", CHANGE));
        let managers = [template_of("helm", "2026-01-15T09:59:59Z"), template_of("argocd", LATER)];
        let mut workload = deployment("app:2", &managers);
        let find = |workload: &Value, revisions: &[&Value]| {
            last_change_of_template(workload, revisions).map(|(at, manager)| (at.to_string(), manager))
        };
        assert_eq!(find(&workload, &[&old, &new]), some(CHANGE, "argocd"));
        assert_eq!(find(&workload, &[&old]), some(LATER, "argocd"));
        // The controller has observed the change, so a revision exists that was not recognized.
        workload["status"]["observedGeneration"] = json!(2);
        assert_eq!(find(&workload, &[&old]), None);
    }

    #[test]
    fn ambiguous_changes() {
        let sets = [("app:1", OLD), ("app:2", CHANGE)];
        let later = |manager| template_of(manager, LATER);
        assert_eq!(find(&[later("argocd"), later("kubectl-edit")], &sets), None);
        assert_eq!(find(&[template_of("helm", OLD)], &sets), None);
        assert_eq!(find(&[], &sets), None);
        // A rollback: the ReplicaSet is older than the change.
        let rollback = [("app:2", OLD), ("app:3", CHANGE)];
        assert_eq!(find(&[later("kubectl-rollout")], &rollback), None);
        let mut subresource = later("argocd");
        subresource["subresource"] = json!("status");
        assert_eq!(find(&[subresource], &sets), None);
    }
}
