//! Decisions: pure functions from the cached objects to operations and status.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kcm_clock::Timestamp;
use kube_core::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::website::{Website, WebsiteStatus};

/// Finalizer of websites whose host may be published.
pub const FINALIZER: &str = "example.org/dns";

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

/// Operation of a plan. They are performed in order.
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
    /// Creates the DNS record of a host.
    PublishHost(String),
    /// Removes the finalizer, so that the website can be deleted. The garbage collector deletes the owned objects.
    RemoveFinalizer,
}

/// Returns the operations that lead to the specified state.
pub fn plan(view: &View<'_>) -> Vec<Operation> {
    let website = view.website;
    let has_finalizer = website.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    let published = website.status.as_ref().and_then(|status| status.published_host.as_deref());
    if website.metadata.deletion_timestamp.is_some() {
        if !has_finalizer {
            return Vec::new();
        }
        // A host that was published by an interrupted reconciliation is not in the status.
        let specified = Some(website.spec.host.as_str()).filter(|host| published != Some(*host));
        let hosts = published.into_iter().chain(specified);
        let withdraw = hosts.map(|host| Operation::WithdrawHost(host.to_owned()));
        return withdraw.chain([Operation::RemoveFinalizer]).collect();
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
    if published != Some(website.spec.host.as_str()) {
        operations.extend(published.map(|host| Operation::WithdrawHost(host.to_owned())));
        operations.push(Operation::PublishHost(website.spec.host.clone()));
    }
    operations
}

/// Returns the status. `host` is the host that is published now, or the reason for which it is not.
pub fn status(view: &View<'_>, host: Result<&str, &str>, now: Timestamp) -> WebsiteStatus {
    let website = view.website;
    let generation = website.metadata.generation;
    let old = website.status.as_ref();
    let rollout = view.deployment.and_then(|deployment| deployment.status.as_ref());
    let ready_replicas = rollout.and_then(|status| status.ready_replicas).unwrap_or(0);
    let available = rollout.and_then(|status| status.available_replicas).unwrap_or(0);
    let condition = |type_: &str, is_true: bool, reason: &str, message: String| {
        let status = if is_true { "True" } else { "False" };
        let mut known = old.into_iter().flat_map(|old| &old.conditions);
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
    let specified = website.spec.replicas;
    let is_available = view.deployment.is_some() && available >= specified;
    let message = format!("{available} of {specified} pods are available");
    WebsiteStatus {
        observed_generation: generation,
        ready_replicas,
        published_host: match host {
            Ok(host) => Some(host.to_owned()),
            // The record of the last host was deleted.
            Err(_) => None,
        },
        conditions: vec![
            condition("Available", is_available, if is_available { "Available" } else { "Waiting" }, message),
            match host {
                Ok(host) => condition("HostPublished", true, "Published", format!("{host} is published")),
                Err(error) => condition("HostPublished", false, "ProviderFailed", error.to_owned()),
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
