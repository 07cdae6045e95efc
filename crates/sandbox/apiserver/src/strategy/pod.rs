//! Strategy of Pods.

use serde_json::{Value, json};

use super::{Strategy, update_generation};
use crate::{
    json::{at, copy, i64_at, list_at, str_at},
    selectable_field::SelectableField,
};

/// Pods.
pub(crate) struct Pod;

impl Strategy for Pod {
    fn initial_status(&self, object: &Value) -> Option<Value> {
        Some(json!({"phase": "Pending", "qosClass": qos_class(object)}))
    }

    fn generation_fields(&self) -> &'static [&'static [&'static str]] {
        &[&["spec"]]
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        for field in ["ownerReferences", "deletionTimestamp"] {
            copy(new, old, &["metadata", field]);
        }
        if str_at(new, &["status", "qosClass"]).is_empty() {
            copy(new, old, &["status", "qosClass"]);
        }
    }

    fn selectable_fields(&self) -> &'static [SelectableField] {
        const fn field(
            name: &'static str,
            paths: &'static [&'static [&'static str]],
            absent: &'static str,
        ) -> SelectableField {
            SelectableField { name, paths, absent }
        }
        static FIELDS: [SelectableField; 9] = [
            field("spec.nodeName", &[&["spec", "nodeName"]], ""),
            field("spec.restartPolicy", &[&["spec", "restartPolicy"]], ""),
            field("spec.schedulerName", &[&["spec", "schedulerName"]], ""),
            field("spec.serviceAccountName", &[&["spec", "serviceAccountName"]], ""),
            field("spec.hostNetwork", &[&["spec", "hostNetwork"]], "false"),
            field("status.phase", &[&["status", "phase"]], ""),
            field("status.podIP", &[&["status", "podIP"]], ""),
            field("status.podIPs", &[&["status", "podIP"]], ""),
            field("status.nominatedNodeName", &[&["status", "nominatedNodeName"]], ""),
        ];
        &FIELDS
    }

    fn deletion_returns_object(&self) -> bool {
        true
    }

    fn grace_period(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let own = || i64_at(object, &["spec", "terminationGracePeriodSeconds"]);
        let seconds = match requested.or_else(own).unwrap_or_default() {
            negative if negative < 0 => 1,
            seconds => seconds,
        };
        // A pod that is not bound or has finished is removed immediately.
        let not_bound = str_at(object, &["spec", "nodeName"]).is_empty();
        let done = matches!(str_at(object, &["status", "phase"]), "Succeeded" | "Failed");
        Some(if not_bound || done { 0 } else { seconds })
    }
}

/// Restores what a write of the ephemeral containers does not change.
///
/// Upstream counterpart: `dropNonEphemeralContainerUpdates`.
pub(crate) fn prepare_ephemeral_containers(new: &mut Value, old: &Value) {
    let sent = std::mem::replace(new, old.clone());
    copy(new, &sent, &["spec", "ephemeralContainers"]);
    update_generation(&Pod, new, old);
}

/// Restores what a resize does not change. Containers that are added, removed, renamed or reordered are left to validation.
///
/// Upstream counterpart: `dropNonResizeUpdates`.
pub(crate) fn prepare_resize(new: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let names =
        |pod, list| list_at(pod, &["spec", list]).iter().map(|container| str_at(container, &["name"]));
    if lists.iter().any(|list| !names(new, list).eq(names(old, list))) {
        return;
    }
    let sent = std::mem::replace(new, old.clone());
    copy(new, &sent, &["spec", "resources"]);
    for list in lists {
        let sent = list_at(&sent, &["spec", list]);
        let containers = new.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for (container, sent) in containers.into_iter().flatten().zip(sent) {
            copy(container, sent, &["resources"]);
            copy(container, sent, &["resizePolicy"]);
        }
    }
    update_generation(&Pod, new, old);
}

/// Returns the QoS class of a pod.
///
/// Upstream counterpart: `qos.ComputePodQOS`.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let containers = ["containers", "initContainers"].map(|list| list_at(pod, &["spec", list]));
    let amounts = |container, kind| at(container, &["resources", kind]).and_then(Value::as_object);
    let is_some = |amount: &Value| !matches!(amount.as_str(), Some("0"));
    let (mut any, mut guaranteed) = (false, true);
    for container in containers.into_iter().flatten() {
        for resource in ["cpu", "memory"] {
            let amount = |kind| {
                amounts(container, kind)
                    .and_then(|amounts| amounts.get(resource))
                    .filter(|amount| is_some(amount))
            };
            let (limit, request) = (amount("limits"), amount("requests"));
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: &[Value]) -> Value {
        let containers: Vec<Value> =
            resources.iter().map(|resources| json!({"resources": resources})).collect();
        json!({"spec": {"containers": containers}})
    }

    #[test]
    fn qos_class_depends_on_requests_and_limits() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(qos_class(&pod(&[json!({}), json!({})])), "BestEffort");
        assert_eq!(qos_class(&pod(&[json!({"limits": full, "requests": full})])), "Guaranteed");
        assert_eq!(qos_class(&pod(&[json!({"limits": full, "requests": full}), json!({})])), "Burstable");
        assert_eq!(qos_class(&pod(&[json!({"requests": {"cpu": "1"}})])), "Burstable");
    }

    #[test]
    fn grace_period_is_zero_unless_running() {
        let running = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {}});
        let pending = json!({"spec": {"terminationGracePeriodSeconds": 30}, "status": {}});
        let failed = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}});
        assert_eq!(Pod.grace_period(&running, None), Some(30));
        assert_eq!(Pod.grace_period(&running, Some(5)), Some(5));
        assert_eq!(Pod.grace_period(&running, Some(-5)), Some(1));
        assert_eq!(Pod.grace_period(&pending, Some(5)), Some(0));
        assert_eq!(Pod.grace_period(&failed, Some(5)), Some(0));
    }
}
