//! Decisions: pure functions from the cached objects to operations and status.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kcm::clock::Timestamp;
use kube_core::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::website::{Website, WebsiteStatus};

/// Finalizer of websites whose host may be published.
pub const FINALIZER: &str = "example.org/dns";

/// Condition: the specified number of pods is available.
const AVAILABLE: &str = "Available";
/// Condition: the host has a DNS record.
const HOST_PUBLISHED: &str = "HostPublished";

/// Cached objects of one website.
#[derive(Debug)]
pub struct View<'a> {
    /// Website.
    pub website: &'a Website,
    /// Deployment, if it exists.
    pub deployment: Option<&'a Deployment>,
    /// Service, if it exists.
    pub service: Option<&'a Service>,
    /// PodDisruptionBudget, if it exists.
    pub budget: Option<&'a PodDisruptionBudget>,
}

/// Operation of a plan. They are performed in order, up to the first that fails.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Adds the finalizer. Nothing is published before.
    AddFinalizer,
    /// Applies the Deployment.
    ApplyDeployment(Value),
    /// Applies the Service.
    ApplyService(Value),
    /// Applies the PodDisruptionBudget.
    ApplyBudget(Value),
    /// Deletes the DNS record of a host.
    WithdrawHost(String),
    /// Writes the host to the status, before it is published.
    RecordHost(WebsiteStatus),
    /// Creates the DNS record of a host.
    PublishHost(String),
    /// Removes the finalizer, so that the website can be deleted. The garbage collector deletes the owned objects.
    RemoveFinalizer,
}

/// State of the DNS record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostState<'a> {
    /// Host that may have a record.
    pub recorded: Option<&'a str>,
    /// Reason for which the specified host has no record. `None` if it has one.
    pub unpublished: Option<&'a str>,
}

/// Returns the operations that lead to the specified state.
pub fn plan(view: &View<'_>, now: Timestamp) -> Vec<Operation> {
    let website = view.website;
    let has_finalizer = website.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    let recorded = website.status.as_ref().and_then(|status| status.host.as_deref());
    let withdraw = |host: &str| Operation::WithdrawHost(host.to_owned());
    if website.metadata.deletion_timestamp.is_some() {
        let finish = has_finalizer.then_some(Operation::RemoveFinalizer);
        return recorded.filter(|_| has_finalizer).map(withdraw).into_iter().chain(finish).collect();
    }
    if !has_finalizer {
        return vec![Operation::AddFinalizer];
    }
    let mut operations = Vec::new();
    let mut apply = |current: Option<Value>, specified: Value, operation: fn(Value) -> Operation| {
        if !current.is_some_and(|current| contains(&current, &specified)) {
            operations.push(operation(specified));
        }
    };
    apply(view.deployment.and_then(to_json), deployment(website), Operation::ApplyDeployment);
    apply(view.service.and_then(to_json), service(website), Operation::ApplyService);
    apply(view.budget.and_then(to_json), budget(website), Operation::ApplyBudget);
    let host = website.spec.host.as_str();
    if recorded != Some(host) {
        operations.extend(recorded.map(withdraw));
        let pending = HostState { recorded: Some(host), unpublished: Some("waiting for the provider") };
        operations.push(Operation::RecordHost(status(view, pending, now)));
    }
    if recorded != Some(host) || !has_condition(website, HOST_PUBLISHED) {
        operations.push(Operation::PublishHost(host.to_owned()));
    }
    operations
}

/// Returns `true` if the condition is `True`.
fn has_condition(website: &Website, type_: &str) -> bool {
    let mut conditions = website.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// Returns the status.
pub fn status(view: &View<'_>, host: HostState<'_>, now: Timestamp) -> WebsiteStatus {
    let website = view.website;
    let generation = website.metadata.generation;
    let condition = |type_: &str, is_true: bool, reason: &str, message: String| {
        let status = if is_true { "True" } else { "False" };
        let mut known = website.status.iter().flat_map(|old| &old.conditions);
        let same = known.find(|known| known.type_ == type_ && known.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            observed_generation: generation,
            last_transition_time: same.map_or(Time(now), |same| same.last_transition_time.clone()),
            reason: reason.to_owned(),
            message,
        }
    };
    let rollout = view.deployment.and_then(|deployment| deployment.status.as_ref());
    let available = rollout.and_then(|status| status.available_replicas).unwrap_or(0);
    let specified = website.spec.replicas;
    let is_available = view.deployment.is_some() && available >= specified;
    let reason = if is_available { "Available" } else { "Waiting" };
    let message = format!("{available} of {specified} pods are available");
    WebsiteStatus {
        observed_generation: generation,
        ready_replicas: rollout.and_then(|status| status.ready_replicas).unwrap_or(0),
        host: host.recorded.map(str::to_owned),
        conditions: vec![
            condition(AVAILABLE, is_available, reason, message),
            match host.unpublished {
                None => condition(HOST_PUBLISHED, true, "Published", "the DNS record exists".to_owned()),
                Some(reason) => condition(HOST_PUBLISHED, false, "Unpublished", reason.to_owned()),
            },
        ],
    }
}

fn labels(website: &Website) -> Value {
    json!({"app.kubernetes.io/name": "website", "app.kubernetes.io/instance": website.name_any()})
}

/// Returns the JSON of an owned object, for server-side apply.
fn owned(website: &Website, api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "namespace": website.namespace(),
            "name": website.name_any(),
            "labels": labels(website),
            "ownerReferences": [website.controller_owner_ref(&())],
        },
        "spec": spec,
    })
}

fn deployment(website: &Website) -> Value {
    let spec = json!({
        "replicas": website.spec.replicas,
        "selector": {"matchLabels": labels(website)},
        "template": {
            "metadata": {"labels": labels(website)},
            "spec": {"containers": [{
                "name": "web",
                "image": website.spec.image,
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
            }]},
        },
    });
    owned(website, "apps/v1", "Deployment", &spec)
}

fn service(website: &Website) -> Value {
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    owned(website, "v1", "Service", &json!({"selector": labels(website), "ports": ports}))
}

fn budget(website: &Website) -> Value {
    let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": labels(website)}});
    owned(website, "policy/v1", "PodDisruptionBudget", &spec)
}

/// Returns the JSON of an object of the cache, with the kind that lists omit.
fn to_json<K: Serialize + Resource<DynamicType = ()>>(object: &K) -> Option<Value> {
    let mut json = serde_json::to_value(object).ok()?;
    json["apiVersion"] = K::api_version(&()).into();
    json["kind"] = K::kind(&()).into();
    Some(json)
}

/// Returns `true` if `current` has all values of `specified`. Fields that others set are ignored.
fn contains(current: &Value, specified: &Value) -> bool {
    match (current, specified) {
        (Value::Object(current), Value::Object(specified)) => specified
            .iter()
            .all(|(name, value)| current.get(name).is_some_and(|current| contains(current, value))),
        (Value::Array(current), Value::Array(specified)) => {
            current.len() == specified.len()
                && current.iter().zip(specified).all(|(current, specified)| contains(current, specified))
        }
        _ => current == specified,
    }
}

#[cfg(test)]
mod tests;
