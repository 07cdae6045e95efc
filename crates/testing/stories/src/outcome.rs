//! What a story came to in the end: free from chance, and from the order in which things happened.

use std::collections::{BTreeMap, HashSet};

use kcm_apiserver::{ApiServer, ApiStatus, ListOptions, Object, Resource, WatchEvent};
use serde::Serialize;
use serde_json::Value;

use crate::trail::Entry;

/// What is there at the end, and what it took.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// What there is: Deployments, ReplicaSets and pods, in this order, each on a line.
    pub left: Vec<String>,
    /// How many objects came to be, by kind.
    pub created: BTreeMap<&'static str, usize>,
    /// How many went.
    pub deleted: BTreeMap<&'static str, usize>,
    /// The manager's writes that took effect, events apart. Of what is created and deleted the number is told; of what
    /// is updated, which depends on how many changes a sync has found together, no more than how large it is: the next
    /// power of two.
    pub writes: BTreeMap<String, String>,
    /// Those that the server refused, by its answers, told as large as updates are; but for conflicts, which come and go
    /// with the order in which tasks happen to run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
    /// The events that the manager wrote, by reason; those counted up apart.
    pub events: BTreeMap<String, usize>,
}

/// What was counted while a story was played.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// How many objects came to be, by kind.
    pub created: BTreeMap<&'static str, usize>,
    /// How many went.
    pub deleted: BTreeMap<&'static str, usize>,
    /// The manager's writes that took effect, events apart.
    pub writes: BTreeMap<String, usize>,
    /// Those that the server refused, by its answers.
    pub refused: BTreeMap<String, usize>,
    /// The events that the manager wrote, by reason; those counted up apart.
    pub events: BTreeMap<String, usize>,
    /// UIDs of what was created.
    seen: HashSet<String>,
}

/// The first answer that is a refusal.
const REFUSAL: u16 = 400;

impl Tally {
    pub(crate) fn write(&mut self, write: &Entry) {
        let Entry { verb, resource, subresource, code, body, .. } = write;
        if resource == "events" {
            // One that is counted up does not say what it is about.
            if let Some(reason) = body.as_ref().and_then(|body| body["reason"].as_str()) {
                *self.events.entry(reason.to_owned()).or_default() += 1;
            }
            return;
        }
        let part = if subresource.is_empty() { "" } else { "/" };
        let what = format!("{verb} {resource}{part}{subresource}");
        if *code < REFUSAL {
            *self.writes.entry(what).or_default() += 1;
        } else {
            *self.refused.entry(format!("{what} {code}")).or_default() += 1;
        }
    }

    pub(crate) fn event(&mut self, event: &WatchEvent) {
        let Some(object) = event.object() else { return };
        let kind = object.resource().kind();
        if !matches!(object.resource(), Resource::DEPLOYMENTS | Resource::REPLICA_SETS | Resource::PODS) {
            return;
        }
        match event {
            WatchEvent::Deleted(_) => *self.deleted.entry(kind).or_default() += 1,
            _ if self.seen.insert(object.uid().to_owned()) => *self.created.entry(kind).or_default() += 1,
            _ => {}
        }
    }
}

impl Outcome {
    /// What there is in a namespace, and what it took.
    ///
    /// # Errors
    ///
    /// When the server does not list what it has, which would be a defect.
    pub fn of(server: &ApiServer, namespace: &str, tally: Tally) -> Result<Self, ApiStatus> {
        let Tally { created, deleted, writes, refused, events, seen: _ } = tally;
        let told = |(what, times): (String, usize)| {
            let exact = what.starts_with("create ") || what.starts_with("delete ");
            let times = if exact { times.to_string() } else { size(times) };
            (what, times)
        };
        let refused = refused.into_iter().filter(|(what, _)| !what.ends_with(CONFLICT));
        Ok(Self {
            left: left(server, namespace)?,
            created,
            deleted,
            writes: writes.into_iter().map(told).collect(),
            refused: refused.map(|(what, times)| (what, size(times))).collect(),
            events,
        })
    }
}

/// The ending of what was refused as out of date.
const CONFLICT: &str = " 409";

fn size(number: usize) -> String {
    format!("at most {}", number.next_power_of_two())
}

/// The objects in a namespace that stories are about, free from chance. Pods that are alike are on one line, with how
/// many they are.
///
/// # Errors
///
/// When the server does not list what it has, which would be a defect.
pub fn left(server: &ApiServer, namespace: &str) -> Result<Vec<String>, ApiStatus> {
    let list = |resource| server.list(resource, Some(namespace), &ListOptions::default());
    let mut lines: Vec<String> = list(Resource::DEPLOYMENTS)?.items.iter().map(|d| deployment(d)).collect();
    let sets = list(Resource::REPLICA_SETS)?.items;
    lines.extend(sets.iter().map(|set| replica_set(set)));
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for one in list(Resource::PODS)?.items {
        *pods.entry(pod(&one)).or_default() += 1;
    }
    lines.extend(pods.into_iter().map(|(pod, times)| format!("{times} x {pod}")));
    Ok(lines)
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn revision(object: &Object) -> &str {
    object.annotation("deployment.kubernetes.io/revision").unwrap_or("-")
}

fn deployment(object: &Object) -> String {
    let value = object.value();
    let status = |field: &str| number(value, &format!("/status/{field}"));
    format!(
        "deployment {}: revision {}, wants {}, has {}, updated {}, ready {}, available {}, observed {} of {}, \
         collisions {}, {}",
        object.name(),
        revision(object),
        number(value, "/spec/replicas"),
        status("replicas"),
        status("updatedReplicas"),
        status("readyReplicas"),
        status("availableReplicas"),
        status("observedGeneration"),
        object.generation(),
        status("collisionCount"),
        conditions(value),
    )
}

fn replica_set(object: &Object) -> String {
    let value = object.value();
    let status = |field: &str| number(value, &format!("/status/{field}"));
    let image = value.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
    format!(
        "replicaset {} of {}: {}, revision {}, wants {}, has {}, ready {}, available {}{}{}",
        object.name(),
        owner(object),
        image.unwrap_or_default(),
        revision(object),
        number(value, "/spec/replicas"),
        status("replicas"),
        status("readyReplicas"),
        status("availableReplicas"),
        // In how many steps it came there depends on how fast pods were.
        if status("observedGeneration") < object.generation() { ", out of date" } else { "" },
        Some(conditions(value))
            .filter(|all| !all.is_empty())
            .map_or_else(String::new, |all| format!(", {all}")),
    )
}

fn pod(object: &Object) -> String {
    let value = object.value();
    let ready = value["status"]["conditions"].as_array().is_some_and(|conditions| {
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    });
    let image = value.pointer("/spec/containers/0/image").and_then(Value::as_str).unwrap_or_default();
    format!(
        "pod of {}: {image}, {}{}{}",
        owner(object),
        value["status"]["phase"].as_str().unwrap_or("-"),
        if ready { ", ready" } else { "" },
        if object.is_deleting() { ", on its way out" } else { "" },
    )
}

fn owner(object: &Object) -> &str {
    object.owner_references().find(|owner| owner.controller).map_or("nobody", |owner| owner.name)
}

/// Types, statuses and reasons. When a condition came about and in which words may differ from run to run.
fn conditions(value: &Value) -> String {
    let all = value["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let mut texts: Vec<String> = all
        .iter()
        .map(|one| {
            let text = |field: &str| one[field].as_str().unwrap_or_default();
            format!("{}={} {}", text("type"), text("status"), text("reason"))
        })
        .collect();
    texts.sort();
    texts.join(", ")
}
