//! Summary of the final state of a story, without random values and independent of the order of writes.

use std::collections::{BTreeMap, HashSet};

use kcm_apiserver::{ApiServer, ApiStatus, ListOptions, Object, Resource, WatchEvent};
use kcm_invariants::Entry;
use serde::Serialize;
use serde_json::Value;

/// Final state, and the writes that led to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorySummary {
    /// Deployments, ReplicaSets and pods, in this order, one per line.
    pub objects: Vec<String>,
    /// Number of objects created, by kind.
    pub created: BTreeMap<&'static str, usize>,
    /// Number of objects deleted, by kind.
    pub deleted: BTreeMap<&'static str, usize>,
    /// Successful writes of the manager, except events. Creates and deletes are exact. The number of updates depends on how
    /// many changes a sync observes at once, so it is rounded up to a power of two.
    pub writes: BTreeMap<String, String>,
    /// Failed writes by status code, rounded up like updates. Conflicts are left out: their number depends on the scheduling
    /// of tasks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
    /// Number of events created by the manager, by reason, without updates of their count.
    pub events: BTreeMap<String, usize>,
}

/// Counts of objects and writes while a story is played.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WriteCounts {
    /// Number of objects created, by kind.
    pub created: BTreeMap<&'static str, usize>,
    /// Number of objects deleted, by kind.
    pub deleted: BTreeMap<&'static str, usize>,
    /// Successful writes of the manager, except events.
    pub writes: BTreeMap<String, usize>,
    /// Failed writes of the manager, by status code.
    pub refused: BTreeMap<String, usize>,
    /// Number of events created by the manager, by reason, without updates of their count.
    pub events: BTreeMap<String, usize>,
    /// UIDs of created objects.
    seen: HashSet<String>,
}

/// First HTTP status of failures.
const FIRST_FAILURE: u16 = 400;

impl WriteCounts {
    pub(crate) fn write(&mut self, write: &Entry) {
        let Entry { verb, resource, subresource, code, body, .. } = write;
        if resource == "events" {
            // An update of the count has no reason.
            if let Some(reason) = body.as_ref().and_then(|body| body["reason"].as_str()) {
                *self.events.entry(reason.to_owned()).or_default() += 1;
            }
            return;
        }
        let part = if subresource.is_empty() { "" } else { "/" };
        let what = format!("{verb} {resource}{part}{subresource}");
        if *code < FIRST_FAILURE {
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

impl StorySummary {
    /// Returns the summary of a namespace.
    pub fn new(server: &ApiServer, namespace: &str, counts: WriteCounts) -> Result<Self, ApiStatus> {
        let WriteCounts { created, deleted, writes, refused, events, seen: _ } = counts;
        let rounded = |(what, times): (String, usize)| {
            let exact = what.starts_with("create ") || what.starts_with("delete ");
            let times = if exact { times.to_string() } else { size(times) };
            (what, times)
        };
        let refused = refused.into_iter().filter(|(what, _)| !what.ends_with(CONFLICT));
        Ok(Self {
            objects: remaining_objects(server, namespace)?,
            created,
            deleted,
            writes: writes.into_iter().map(rounded).collect(),
            refused: refused.map(|(what, times)| (what, size(times))).collect(),
            events,
        })
    }
}

/// Suffix of writes that failed with a conflict.
const CONFLICT: &str = " 409";

fn size(number: usize) -> String {
    format!("at most {}", number.next_power_of_two())
}

/// Returns the Deployments, ReplicaSets and pods of a namespace without random values. Equal pods share a line with their
/// number.
fn remaining_objects(server: &ApiServer, namespace: &str) -> Result<Vec<String>, ApiStatus> {
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
        "deployment {}: revision {}, desired {}, current {}, updated {}, ready {}, available {}, observed {} of {}, \
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
        "replicaset {} of {}: {}, revision {}, desired {}, current {}, ready {}, available {}{}{}",
        object.name(),
        owner(object),
        image.unwrap_or_default(),
        revision(object),
        number(value, "/spec/replicas"),
        status("replicas"),
        status("readyReplicas"),
        status("availableReplicas"),
        // The number of status updates depends on the order of events.
        if status("observedGeneration") < object.generation() { ", status outdated" } else { "" },
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
        if object.is_deleting() { ", terminating" } else { "" },
    )
}

fn owner(object: &Object) -> &str {
    object.owner_references().find(|owner| owner.controller).map_or("none", |owner| owner.name)
}

/// Types, statuses and reasons of the conditions. Times and messages can differ between runs.
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
