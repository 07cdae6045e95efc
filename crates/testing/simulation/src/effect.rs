//! End state of a scenario: unfinished work, and the effect that is compared with the run without faults.

use std::collections::BTreeMap;

use kcm_apiserver::{ApiServer, ListOptions, Object, Resource, json::condition};
use serde_json::{Value, json};

use crate::{
    judge::replicas,
    ledger::{full_name, selects},
    outcome::NOT_COMPARED,
    scenario::{DELETABLE_NAMESPACE, Scenario, UserAction, Workload, WorkloadKind},
};

/// State of the objects that controllers are responsible for.
pub(crate) struct Snapshot<'a> {
    scenario: &'a Scenario,
    workloads: Vec<Option<std::sync::Arc<Object>>>,
    sets: Vec<std::sync::Arc<Object>>,
    pods: Vec<std::sync::Arc<Object>>,
    namespaces: Vec<std::sync::Arc<Object>>,
}

impl<'a> Snapshot<'a> {
    pub(crate) fn take(server: &ApiServer, scenario: &'a Scenario) -> Self {
        let list = |resource| {
            let list = server.list(resource, None, &ListOptions::default());
            list.map_or_else(|_| Vec::new(), |list| list.items)
        };
        let find = |(at, workload): (usize, &Workload)| {
            server.get(workload.kind.resource(), scenario.namespace(at), &Workload::name(at)).ok()
        };
        let mut sets = list(Resource::REPLICA_SETS);
        sets.extend(list(Resource::REPLICATION_CONTROLLERS));
        Self {
            scenario,
            workloads: scenario.workloads.iter().enumerate().map(find).collect(),
            sets,
            pods: list(Resource::PODS),
            namespaces: list(Resource::NAMESPACES),
        }
    }

    /// Returns a description of unfinished work, or `None` if there is none.
    pub(crate) fn unfinished(&self) -> Option<String> {
        if let Some(namespace) = self.namespaces.iter().find(|namespace| namespace.is_deleting()) {
            return Some(format!("namespace {} is still there", namespace.name()));
        }
        if self.namespaces.iter().all(|namespace| namespace.name() != DELETABLE_NAMESPACE) {
            let left =
                self.sets.iter().chain(&self.pods).find(|object| object.namespace() == DELETABLE_NAMESPACE);
            if let Some(left) = left {
                return Some(format!("{} is left in a namespace that is gone", left.name()));
            }
        }
        let deployments =
            self.workloads.iter().flatten().filter(|one| one.resource() == Resource::DEPLOYMENTS);
        for object in self.workloads.iter().flatten().chain(&self.sets).chain(&self.pods) {
            if object.is_deleting() {
                return Some(format!("{} is still being deleted", describe(object)));
            }
        }
        self.sets
            .iter()
            .find_map(|set| self.unfinished_set(set))
            .or_else(|| {
                deployments
                    .clone()
                    .map(AsRef::as_ref)
                    .find_map(|deployment| self.unfinished_deployment(deployment))
            })
            .or_else(|| {
                let active: Vec<&Object> =
                    self.pods.iter().map(AsRef::as_ref).filter(|pod| is_active(pod)).collect();
                let sets: Vec<&Object> = self.sets.iter().map(AsRef::as_ref).collect();
                let deployments: Vec<&Object> = deployments.map(AsRef::as_ref).collect();
                wrong_owner(&active, &sets).or_else(|| wrong_owner(&sets, &deployments))
            })
    }

    fn unfinished_set(&self, set: &Object) -> Option<String> {
        let wanted = replicas(set.value());
        let active = self.pods.iter().filter(|pod| is_of(pod, set) && is_active(pod)).count();
        let wrong = |what: String| Some(format!("{} {what}", describe(set)));
        if i64::try_from(active) != Ok(wanted) {
            return wrong(format!("has {active} pods, and spec.replicas is {wanted}"));
        }
        let fields = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        if let Some(what) = wrong_number(set.value(), fields) {
            return wrong(what);
        }
        if has_old_status(set.value()) {
            return wrong("has an old status".to_owned());
        }
        condition(set.value(), "ReplicaFailure")
            .and_then(|_| wrong("has the condition ReplicaFailure".to_owned()))
    }

    fn unfinished_deployment(&self, deployment: &Object) -> Option<String> {
        let value = deployment.value();
        let wanted = replicas(value);
        let wrong = |what: String| Some(format!("{} {what}", describe(deployment)));
        let own: Vec<&Object> =
            self.sets.iter().map(AsRef::as_ref).filter(|set| is_of(set, deployment)).collect();
        if is_held(deployment, &own) {
            return None;
        }
        let all_new: Vec<&&Object> = own.iter().filter(|set| is_of_template(set, deployment)).collect();
        // There can be several, if an orphan was adopted.
        let Some(new) = all_new.iter().find(|set| replicas(set.value()) == wanted).or(all_new.first()) else {
            return wrong("has no new ReplicaSet".to_owned());
        };
        if replicas(new.value()) != wanted {
            return wrong(format!(
                "has spec.replicas {wanted}, and its new ReplicaSet {}",
                replicas(new.value())
            ));
        }
        if let Some(old) = own.iter().find(|set| set.uid() != new.uid() && replicas(set.value()) != 0) {
            return wrong(format!("has an old {} whose spec.replicas is not 0", describe(old)));
        }
        let fields = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        if let Some(what) = wrong_number(value, fields) {
            return wrong(what);
        }
        if has_old_status(value) || number(value, "/status/unavailableReplicas") != 0 {
            return wrong("has an old status".to_owned());
        }
        let progress = condition(value, "Progressing").map(|condition| &condition["reason"]);
        let is_available =
            condition(value, "Available").is_some_and(|condition| condition["status"] == "True");
        if !is_available
            || condition(value, "ReplicaFailure").is_some()
            || progress.is_some_and(|reason| reason != "NewReplicaSetAvailable")
        {
            return wrong(format!("has the conditions {}", value["status"]["conditions"]));
        }
        if progress.is_none() && has_deadline(value) {
            return wrong("has no condition Progressing".to_owned());
        }
        if let ([new], Value::Object(of_users)) = (&all_new[..], annotations(deployment))
            && let Some(name) =
                of_users.keys().find(|name| new.annotation(name) != deployment.annotation(name))
        {
            return wrong(format!("has another annotation {name} than {}", describe(new)));
        }
        let history = value.pointer("/spec/revisionHistoryLimit").and_then(Value::as_u64).unwrap_or(10);
        let old = own.len().saturating_sub(1);
        if old as u64 > history {
            return wrong(format!("keeps {old} old ReplicaSets and may keep {history}"));
        }
        None
    }

    /// Effect of the scenario, by workload. Names, times and whatever follows from the order of events are left out.
    ///
    /// Objects that users have released or orphaned are left out: an action picks them among the objects of the moment.
    pub(crate) fn effect(&self) -> BTreeMap<String, Value> {
        let mut effect = BTreeMap::new();
        for (at, found) in self.workloads.iter().enumerate() {
            let Some(object) = found else {
                effect.insert(Workload::name(at), json!("gone"));
                continue;
            };
            if self
                .scenario
                .actions
                .iter()
                .any(|one| matches!(one.event, UserAction::Undo { workload, .. } if workload == at))
            {
                effect.insert(Workload::name(at), json!(NOT_COMPARED));
                continue;
            }
            let is_deployment =
                self.scenario.workloads.get(at).is_some_and(|one| one.kind == WorkloadKind::Deployment);
            let value = object.value();
            let mut compared = json!({
                "labels": value["metadata"]["labels"],
                "annotations": annotations(object),
                "spec": value["spec"],
                "pods": self.pods_of(object, is_deployment),
                "available": number(value, "/status/availableReplicas"),
            });
            if is_deployment {
                let own = self.sets.iter().filter(|set| is_of(set, object));
                if is_held(object, &own.clone().map(AsRef::as_ref).collect::<Vec<_>>()) {
                    effect.insert(Workload::name(at), json!(NOT_COMPARED));
                    continue;
                }
                let mut new = own.clone().filter(|set| is_of_template(set, object));
                let wanted = replicas(value);
                let new = new.clone().find(|set| replicas(set.value()) == wanted).or_else(|| new.next());
                compared["new"] = new.map_or(Value::Null, |set| set_effect(set, object));
                compared["conditions"] = conditions(value);
                compared["active"] = json!(own.filter(|set| replicas(set.value()) > 0).count());
            }
            effect.insert(Workload::name(at), compared);
        }
        effect
    }

    /// Revision and conditions of each Deployment, and names, revisions and sizes of its ReplicaSets. They are the same if a
    /// process is killed and replaced before the next action of a user.
    pub(crate) fn details(&self) -> BTreeMap<String, Value> {
        let revision = |object: &Object| json!(object.annotation("deployment.kubernetes.io/revision"));
        let deployments =
            self.workloads.iter().flatten().filter(|one| one.resource() == Resource::DEPLOYMENTS);
        let details = |deployment: &Object| {
            let own = self.sets.iter().filter(|set| is_of(set, deployment));
            let mut sets: Vec<String> = own
                .map(|set| format!("{} {} {}", set.name(), revision(set), replicas(set.value())))
                .collect();
            sets.sort();
            let all = deployment.value()["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            let condition = |one: &Value| format!("{} {} {}", one["type"], one["status"], one["reason"]);
            // A process that is started again does not distinguish created and existing ReplicaSets.
            let condition =
                |one: &Value| condition(one).replace("FoundNewReplicaSet", "NewReplicaSetCreated");
            let mut conditions: Vec<String> = all.iter().map(condition).collect();
            conditions.sort();
            json!({ "revision": revision(deployment), "sets": sets, "conditions": conditions })
        };
        deployments.map(|one| (one.name().to_owned(), details(one))).collect()
    }

    /// Active pods by image. The image of a pod of anything but a Deployment depends on when the pod was created.
    fn pods_of(&self, owner: &Object, is_deployment: bool) -> Value {
        let mut count: BTreeMap<String, usize> = BTreeMap::new();
        for set in self.sets.iter().filter(|set| set.uid() == owner.uid() || is_of(set, owner)) {
            for pod in self.pods.iter().filter(|pod| is_of(pod, set) && is_active(pod)) {
                let image = pod.value().pointer("/spec/containers/0/image").and_then(Value::as_str);
                let image = image.filter(|_| is_deployment).unwrap_or("any");
                *count.entry(image.to_owned()).or_default() += 1;
            }
        }
        json!(count)
    }
}

/// `true` if the Deployment is taken to be scaled for as long as its size stays, and nothing is left to scale (US-4.8b): an
/// active ReplicaSet has an annotation with another size, and it is the only one and has the right size, or the strategy
/// is Recreate and there are several.
fn is_held(deployment: &Object, own: &[&Object]) -> bool {
    let wanted = replicas(deployment.value());
    let active: Vec<&&Object> = own.iter().filter(|set| replicas(set.value()) > 0).collect();
    let is_scaling = active.iter().any(|set| {
        let noted = set.annotation("deployment.kubernetes.io/desired-replicas");
        noted.is_some_and(|noted| noted != wanted.to_string())
    });
    let is_recreate = deployment.value()["spec"]["strategy"]["type"] == "Recreate";
    is_scaling
        && match active[..] {
            [set] => replicas(set.value()) == wanted,
            _ => is_recreate,
        }
}

/// Annotations that users set. What the controller notes depends on the number of rollouts, and on which of several
/// changes a sync found together.
fn annotations(object: &Object) -> Value {
    let mut all = object.value()["metadata"]["annotations"].clone();
    if let Value::Object(all) = &mut all {
        all.retain(|name, _| !name.starts_with("deployment.kubernetes.io/"));
    }
    if all.as_object().is_none_or(serde_json::Map::is_empty) { Value::Null } else { all }
}

fn set_effect(set: &Object, deployment: &Object) -> Value {
    let value = set.value();
    let mut annotations = annotations(set);
    if let Value::Object(annotations) = &mut annotations {
        // One that was adopted may have some of an earlier Deployment.
        annotations.retain(|name, _| deployment.annotation(name).is_some());
    }
    let annotations = annotations.as_object().filter(|annotations| !annotations.is_empty());
    json!({
        "replicas": value["spec"]["replicas"],
        "minReadySeconds": value["spec"]["minReadySeconds"],
        "annotations": annotations,
        "image": value.pointer("/spec/template/spec/containers/0/image"),
    })
}

/// Types and statuses. Reasons depend on who created what.
fn conditions(value: &Value) -> Value {
    let all = value["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let mut pairs: Vec<String> = all.iter().map(|one| format!("{}={}", one["type"], one["status"])).collect();
    pairs.sort();
    json!(pairs)
}

/// Returns a description of an object that its owner does not select, or that has none and is selected.
fn wrong_owner(objects: &[&Object], owners: &[&Object]) -> Option<String> {
    objects.iter().find_map(|object| {
        let selects = |owner: &Object| {
            let labels = &object.value()["metadata"]["labels"];
            owner.namespace() == object.namespace() && selects(&owner.value()["spec"]["selector"], labels)
        };
        let is_orphan = !object.owner_references().any(|reference| reference.controller);
        let is_wrong = |owner: &&&Object| match is_orphan {
            true => can_own(owner, object) && selects(owner),
            false => is_of(object, owner) && !selects(owner),
        };
        let owner = owners.iter().find(is_wrong)?;
        let what = if is_orphan { "is not adopted by" } else { "is not released by" };
        Some(format!("{} {what} {}", describe(object), describe(owner)))
    })
}

/// `true` if an owner is of a kind that owns objects of the kind of `object`.
fn can_own(owner: &Object, object: &Object) -> bool {
    (object.resource() == Resource::REPLICA_SETS) == (owner.resource() == Resource::DEPLOYMENTS)
        && object.resource() != Resource::REPLICATION_CONTROLLERS
}

fn describe(object: &Object) -> String {
    full_name(object.resource().plural(), object.namespace(), object.name())
}

/// Returns a description of the first of these numbers in the status that is not `spec.replicas`.
fn wrong_number(value: &Value, fields: [&str; 4]) -> Option<String> {
    let wanted = replicas(value);
    let numbers = fields.map(|field| (field, number(value, &format!("/status/{field}"))));
    let (field, number) = numbers.into_iter().find(|(_, number)| *number != wanted)?;
    Some(format!("has {field} {number} in its status, and spec.replicas is {wanted}"))
}

/// `true` if a status is of an earlier generation, or contains terminating pods when no pod is being deleted.
fn has_old_status(value: &Value) -> bool {
    number(value, "/status/observedGeneration") != number(value, "/metadata/generation")
        || number(value, "/status/terminatingReplicas") != 0
}

/// `true` if rollouts have a deadline. The largest number is none.
fn has_deadline(deployment: &Value) -> bool {
    let deadline = number(deployment, "/spec/progressDeadlineSeconds");
    (1..i64::from(i32::MAX)).contains(&deadline)
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn is_of(object: &Object, owner: &Object) -> bool {
    object.owner_references().any(|reference| reference.controller && reference.uid == owner.uid())
}

fn is_active(pod: &Object) -> bool {
    let phase = pod.value()["status"]["phase"].as_str().unwrap_or_default();
    !pod.is_deleting() && !matches!(phase, "Succeeded" | "Failed")
}

pub(crate) fn is_of_template(set: &Object, deployment: &Object) -> bool {
    let mut template = set.value()["spec"]["template"].clone();
    if let Some(Value::Object(labels)) = template.pointer_mut("/metadata/labels") {
        labels.remove("pod-template-hash");
    }
    template == deployment.value()["spec"]["template"]
}
