//! Changes of a Deployment, as kubectl sends them.

use kcm_api::PodTemplate;
use kcm_apiserver::PatchType;
use serde_json::{Map, Value, json};

use crate::{
    PreviewError, Snapshot,
    json::{list, members, remove, set, text},
};

/// Annotation of `kubectl apply` with the file that was applied last.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotation of `kubectl rollout restart`.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// Annotation with the revision of a ReplicaSet.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Annotations that `kubectl rollout undo` leaves as they are.
const KEPT_BY_UNDO: &[&str] = &[
    LAST_APPLIED,
    REVISION,
    "deployment.kubernetes.io/revision-history",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    "deprecated.deployment.rollback.to",
];

/// Requested change of a Deployment.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Applies a manifest, as `kubectl apply -f`. Creates the Deployment if it does not exist.
    Apply(Value),
    /// Sets the image of a container, as `kubectl set image`. Without a name, the Deployment must have one container.
    Image {
        /// Name of the container or init container. `*` is all of them.
        container: Option<String>,
        /// Image.
        image: String,
    },
    /// Sets the number of replicas, as `kubectl scale`.
    Replicas(i32),
    /// Restarts all pods, as `kubectl rollout restart`.
    Restart,
    /// Restores the template of an old revision, as `kubectl rollout undo`.
    Undo {
        /// Revision. `None` for the one before the current one.
        revision: Option<i64>,
    },
    /// Pauses the rollout, as `kubectl rollout pause`.
    Pause,
    /// Resumes the rollout, as `kubectl rollout resume`.
    Resume,
    /// Several images and numbers of replicas in one request.
    Several(Vec<Self>),
    /// Replaces spec, labels and annotations by those of this Deployment, which a server returned for a dry run.
    Desired(Value),
}

/// Request that makes a [`Change`].
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeRequest {
    /// Creates the Deployment.
    Create(Value),
    /// Patches the Deployment.
    Patch {
        /// Format of the patch.
        type_: PatchType,
        /// Patch.
        body: Value,
    },
    /// Replaces the Deployment.
    Replace(Value),
}

impl ChangeRequest {
    /// Object or patch.
    pub(crate) fn body(&self) -> &Value {
        match self {
            Self::Create(body) | Self::Patch { body, .. } | Self::Replace(body) => body,
        }
    }
}

impl Change {
    /// Returns the request that makes this change of the Deployment in `snapshot`.
    ///
    /// A client can send it to the API server as a dry run.
    ///
    /// # Errors
    ///
    /// If the Deployment, the container or the revision does not exist, or a manifest is of another object. If `kubectl`
    /// refuses the change of a paused Deployment, or of one that is not paused.
    pub fn request(&self, snapshot: &Snapshot) -> Result<ChangeRequest, PreviewError> {
        let Some(live) = &snapshot.deployment else {
            return match self {
                Self::Apply(manifest) | Self::Desired(manifest) => {
                    Ok(ChangeRequest::Create(checked(manifest, snapshot)?))
                }
                _ => Err(PreviewError::NotFound {
                    namespace: snapshot.namespace.clone(),
                    name: snapshot.name.clone(),
                }),
            };
        };
        let strategic = |body| Ok(ChangeRequest::Patch { type_: PatchType::Strategic, body });
        let is_paused = live["spec"]["paused"] == true;
        let refuse_if = |refused: bool, reason: &'static str| {
            let name = snapshot.name.clone();
            if refused { Err(PreviewError::Refused { name, reason }) } else { Ok(()) }
        };
        match self {
            Self::Apply(manifest) => strategic(apply_patch(live, checked(manifest, snapshot)?)),
            Self::Image { container, image } => strategic(image_patch(live, container.as_deref(), image)?),
            Self::Replicas(replicas) => strategic(json!({ "spec": { "replicas": replicas } })),
            Self::Restart => {
                refuse_if(is_paused, "can't restart paused deployment (run rollout resume first)")?;
                let annotations = json!({ RESTARTED_AT: snapshot.taken.to_string() });
                strategic(json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }))
            }
            Self::Undo { revision } => undo(snapshot, live, *revision),
            Self::Pause => {
                refuse_if(is_paused, "is already paused")?;
                strategic(json!({ "spec": { "paused": true } }))
            }
            Self::Resume => {
                refuse_if(!is_paused, "is not paused")?;
                strategic(json!({ "spec": { "paused": null } }))
            }
            Self::Several(changes) => {
                let images = || changes.iter().filter(|change| matches!(change, Self::Image { .. }));
                let is_all = |change: &Self| matches!(change, Self::Image { container: Some(name), .. } if name == "*");
                if images().any(is_all) && images().count() > 1 {
                    return Err(PreviewError::AllContainers);
                }
                let mut body = json!({});
                for change in changes {
                    match change.request(snapshot)? {
                        ChangeRequest::Patch { type_: PatchType::Strategic, body: part } => {
                            combine(&mut body, part);
                        }
                        _ => return Err(PreviewError::NotCombinable),
                    }
                }
                strategic(body)
            }
            Self::Desired(desired) => Ok(ChangeRequest::Replace(replacement(live, desired))),
        }
    }
}

/// Checks that a manifest is of the Deployment in `snapshot`, and removes the fields that the API server sets.
fn checked(manifest: &Value, snapshot: &Snapshot) -> Result<Value, PreviewError> {
    let (kind, name) = (text(manifest, "/kind"), text(manifest, "/metadata/name"));
    let namespace = text(manifest, "/metadata/namespace");
    if kind != "Deployment" || name != snapshot.name || !["", &*snapshot.namespace].contains(&namespace) {
        return Err(PreviewError::OtherObject {
            found: format!("{kind} {namespace}/{name}"),
            expected: format!("Deployment {}/{}", snapshot.namespace, snapshot.name),
        });
    }
    let version = text(manifest, "/apiVersion");
    if version != "apps/v1" {
        return Err(PreviewError::Version { version: version.to_owned() });
    }
    let mut manifest = manifest.clone();
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"] {
        remove(&mut manifest, "/metadata", field);
    }
    remove(&mut manifest, "", "status");
    // `kubectl` sets the namespace of the request.
    set(&mut manifest, &["metadata", "namespace"], snapshot.namespace.clone().into());
    Ok(manifest)
}

/// Patch that sets the image of the containers and init containers with this name.
fn image_patch(live: &Value, container: Option<&str>, image: &str) -> Result<Value, PreviewError> {
    let lists = ["containers", "initContainers"];
    let names = |list_name: &str| {
        let containers = list(live, &format!("/spec/template/spec/{list_name}")).iter();
        containers.map(|container| text(container, "/name").to_owned()).collect::<Vec<String>>()
    };
    let mut spec = Map::new();
    for list_name in lists {
        let all = names(list_name);
        let selected = all.iter().filter(|name| match container {
            Some("*") => true,
            Some(container) => *name == container,
            None => list_name == "containers" && all.len() == 1,
        });
        let patches: Vec<Value> = selected.map(|name| json!({ "name": name, "image": image })).collect();
        if !patches.is_empty() {
            spec.insert(list_name.to_owned(), patches.into());
        }
    }
    if spec.is_empty() {
        let containers = lists.map(names).concat().join(", ");
        return Err(PreviewError::Container {
            container: container.unwrap_or_default().to_owned(),
            containers,
        });
    }
    Ok(json!({ "spec": { "template": { "spec": spec } } }))
}

/// Adds the members of the patch `part` to `body`. Elements of lists have different keys.
fn combine(body: &mut Value, part: Value) {
    match (body, part) {
        (Value::Object(body), Value::Object(part)) => {
            for (name, part) in part {
                combine(body.entry(name).or_insert(Value::Null), part);
            }
        }
        (Value::Array(body), Value::Array(part)) => body.extend(part),
        (body, part) => *body = part,
    }
}

fn undo(snapshot: &Snapshot, live: &Value, revision: Option<i64>) -> Result<ChangeRequest, PreviewError> {
    let revision_of = |set: &Value| set["metadata"]["annotations"][REVISION].as_str()?.parse::<i64>().ok();
    let mut sets: Vec<(i64, &Value)> =
        snapshot.own_replica_sets().into_iter().filter_map(|set| Some((revision_of(set)?, set))).collect();
    sets.sort_by_key(|(revision, _)| *revision);
    let found = match revision.filter(|revision| *revision != 0) {
        Some(revision) => sets.iter().find(|(other, _)| *other == revision),
        None => sets.len().checked_sub(2).and_then(|at| sets.get(at)),
    };
    let (_, set) = found.ok_or(PreviewError::Revision { revision })?;
    if live["spec"]["paused"] == true {
        return Err(PreviewError::UndoPaused { name: snapshot.name.clone() });
    }
    let parsed = |object: &Value| serde_json::from_value::<PodTemplate>(object["spec"]["template"].clone());
    if let (Ok(old), Ok(current)) = (parsed(set), parsed(live))
        && old.equal_ignore_hash(&current)
    {
        // `kubectl` skips the rollback.
        return Ok(ChangeRequest::Patch { type_: PatchType::Strategic, body: json!({}) });
    }
    let mut template = set["spec"]["template"].clone();
    remove(&mut template, "/metadata/labels", kcm_api::POD_TEMPLATE_HASH_LABEL);
    let is_kept = |name: &str| KEPT_BY_UNDO.contains(&name);
    let kept = members(live, "/metadata/annotations").filter(|(name, _)| is_kept(name));
    let restored = members(set, "/metadata/annotations").filter(|(name, _)| !is_kept(name));
    let annotations: Map<String, Value> =
        kept.chain(restored).map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(ChangeRequest::Patch {
        type_: PatchType::Json,
        body: json!([
            { "op": "replace", "path": "/spec/template", "value": template },
            { "op": "add", "path": "/metadata/annotations", "value": annotations },
        ]),
    })
}

fn replacement(live: &Value, desired: &Value) -> Value {
    let mut replaced = live.clone();
    replaced["spec"] = desired["spec"].clone();
    for field in ["labels", "annotations"] {
        remove(&mut replaced, "/metadata", field);
        if let Some(value) = desired["metadata"].get(field) {
            set(&mut replaced, &["metadata", field], value.clone());
        }
    }
    remove(&mut replaced, "/metadata", "resourceVersion");
    replaced
}

/// Returns the strategic merge patch of `kubectl apply`: sets the fields of `manifest`, and deletes those that the last
/// applied manifest contains and this one does not.
///
/// Upstream counterpart: `strategicpatch.CreateThreeWayMergePatch`.
fn apply_patch(live: &Value, manifest: Value) -> Value {
    let last = live["metadata"]["annotations"][LAST_APPLIED].as_str();
    let last: Value = last.and_then(|last| serde_json::from_str(last).ok()).unwrap_or(Value::Null);
    let applied = manifest.to_string();
    let mut patch = manifest;
    remove(&mut patch, "", "status");
    add_deletions(&mut patch, &last, live);
    set(&mut patch, &["metadata", "annotations", LAST_APPLIED], applied.into());
    patch
}

/// Adds deletions of the fields of `last` to `patch` that it does not contain, the order of lists, and the keys that
/// changed unions retain.
fn add_deletions(patch: &mut Value, last: &Value, live: &Value) {
    let Value::Object(fields) = patch else { return };
    let mut orders = Vec::new();
    for (name, new) in fields.iter_mut() {
        let (last, live) = (&last[name], &live[name]);
        match (merge_key(name), &mut *new) {
            (Some(key), Value::Array(elements)) => {
                let order: Vec<Value> = elements.iter().map(|element| json!({ key: element[key] })).collect();
                orders.push((format!("$setElementOrder/{name}"), Value::Array(order)));
                let of = |list: &'_ Value| list.as_array().cloned().unwrap_or_default();
                merge_list(elements, &of(last), &of(live), key, name == "volumes");
            }
            _ => merge(new, last, live, name == "strategy"),
        }
    }
    for (name, _) in last.as_object().into_iter().flatten() {
        fields.entry(name).or_insert(Value::Null);
    }
    fields.extend(orders);
}

/// Completes the patch of a field. A union, of which only one member may be set, keeps only the keys of the manifest if it
/// changes.
fn merge(new: &mut Value, last: &Value, live: &Value, is_union: bool) {
    let is_removed = |(name, _): (&String, &Value)| new.get(name).is_none();
    let changes = || !is_part(new, live) || last.as_object().into_iter().flatten().any(is_removed);
    let retained: Option<Vec<&String>> =
        new.as_object().filter(|_| is_union && changes()).map(|members| members.keys().collect());
    let retained = retained.map(|keys| json!(keys));
    add_deletions(new, last, live);
    if let Some(keys) = retained {
        set(new, &["$retainKeys"], keys);
    }
}

/// `true` if `whole` contains all fields of `part`.
fn is_part(part: &Value, whole: &Value) -> bool {
    match part {
        Value::Object(members) if whole.is_object() => {
            members.iter().all(|(name, member)| is_part(member, &whole[name]))
        }
        _ => part == whole,
    }
}

/// Completes the elements of a list that is merged by `key`.
fn merge_list(elements: &mut Vec<Value>, last: &[Value], live: &[Value], key: &str, is_union: bool) {
    let find = |list: &'_ [Value], element: &Value| {
        list.iter().find(|other| other[key] == element[key]).cloned().unwrap_or(Value::Null)
    };
    for element in elements.iter_mut() {
        let (last, live) = (find(last, element), find(live, element));
        merge(element, &last, &live, is_union && live.is_object());
    }
    for last in last {
        if elements.iter().all(|element| element[key] != last[key]) {
            elements.push(json!({ "$patch": "delete", key: last[key] }));
        }
    }
}

/// Key by which the elements of a list in a pod template are merged.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" | "resourceClaims"
        | "schedulingGates" => Some("name"),
        "ports" => Some("containerPort"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "hostAliases" => Some("ip"),
        "topologySpreadConstraints" => Some("topologyKey"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
