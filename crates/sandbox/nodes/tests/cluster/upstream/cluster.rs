//! API server with both controllers, and helper functions for requests.

use std::{ffi::OsString, sync::Arc, time::Duration};

use kcm_apiserver::{
    ApiServer, ApiStatus, DeleteOptions, ListOptions, Object, Patch, Resource, Subresource, WriteOptions,
};
use kcm_client::RateLimit;
use kcm_clock::{Clock, Random};
use kcm_controller_manager::{Command, Controllers, ManagerConfig};
use serde_json::{Value, json};

use crate::test_server::{RunningSandbox, TestServer};

/// Namespace of all objects.
const NAMESPACE: &str = "default";

pub(crate) struct Cluster {
    pub(crate) server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    controllers: Option<Controllers>,
    _sandbox: Option<RunningSandbox>,
}

impl Cluster {
    /// Cluster without nodes: the tests set the status of pods.
    pub(crate) fn new() -> Self {
        Self::with(0)
    }

    /// Cluster with simulated components and this number of nodes; without components if zero.
    pub(crate) fn with(nodes: usize) -> Self {
        let test = TestServer::new();
        let sandbox = (nodes > 0).then(|| test.run_sandbox(nodes));
        let TestServer { server, clock, random } = test;
        let mut cluster = Self { server, clock, random, controllers: None, _sandbox: sandbox };
        cluster.run_with("");
        cluster
    }

    /// Cluster without nodes and with controllers that use this value of `--feature-gates`.
    pub(crate) fn with_gates(gates: &str) -> Self {
        let mut cluster = Self::new();
        cluster.run_with(gates);
        cluster
    }

    /// Restarts the controllers with this value of `--feature-gates`.
    pub(crate) fn run_with(&mut self, gates: &str) {
        let flags = ["--leader-elect=false".to_owned(), format!("--feature-gates={gates}")];
        let Command::Run(invocation) = Command::parse(flags.map(OsString::from)).unwrap() else {
            panic!("the flags start no controllers");
        };
        let config = ManagerConfig { rate_limit: RateLimit::UNLIMITED, ..invocation.manager };
        // The previous controllers are stopped first.
        self.controllers = None;
        let Self { server, clock, random, .. } = self;
        self.controllers =
            Some(kcm_controller_manager::start_in_process(&config, server.service(), clock, random));
    }

    /// Advances the clock.
    pub(crate) async fn advance(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    /// Advances the clock until the controllers have processed all changes, including retries.
    pub(crate) async fn settle(&self) {
        self.advance(2).await;
    }

    pub(crate) fn create(&self, resource: Resource, object: Value) -> Value {
        let created = self.server.create(resource, NAMESPACE, object, &WriteOptions::default()).unwrap();
        created.value().clone()
    }

    pub(crate) fn get(&self, resource: Resource, name: &str) -> Value {
        self.server.get(resource, NAMESPACE, name).unwrap().value().clone()
    }

    /// `true` if the object exists.
    pub(crate) fn has(&self, resource: Resource, name: &str) -> bool {
        self.server.get(resource, NAMESPACE, name).is_ok()
    }

    pub(crate) fn list(&self, resource: Resource) -> Vec<Value> {
        let list = self.server.list(resource, Some(NAMESPACE), &ListOptions::default()).unwrap();
        list.items.iter().map(|object| object.value().clone()).collect()
    }

    /// Objects of `resource` with the controller `owner`.
    pub(crate) fn owned(&self, resource: Resource, owner: &Value) -> Vec<Value> {
        let uid = &owner["metadata"]["uid"];
        self.list(resource)
            .into_iter()
            .filter(|object| controller(object).is_some_and(|reference| reference["uid"] == *uid))
            .collect()
    }

    /// Applies a JSON merge patch.
    pub(crate) fn try_patch(
        &self,
        resource: Resource,
        name: &str,
        part: Option<Subresource>,
        patch: Value,
    ) -> Result<Arc<Object>, ApiStatus> {
        let options = WriteOptions::default();
        self.server.patch(resource, NAMESPACE, name, part, Patch::merge(patch), &options)
    }

    pub(crate) fn patch(&self, resource: Resource, name: &str, patch: Value) -> Value {
        self.try_patch(resource, name, None, patch).unwrap().value().clone()
    }

    pub(crate) fn delete(&self, resource: Resource, name: &str) {
        self.server.delete(resource, NAMESPACE, name, &DeleteOptions::default()).unwrap();
    }

    pub(crate) fn report_phase(&self, pod: &str, phase: &str) {
        let patch = json!({ "status": { "phase": phase } });
        self.try_patch(Resource::PODS, pod, Some(Subresource::Status), patch).unwrap();
    }

    /// Sets the status of `pod` to running and ready for `seconds`.
    pub(crate) fn report_ready(&self, pod: &str, seconds: u64) {
        let since = kcm_api::Time::new(self.clock.now() - Duration::from_secs(seconds));
        let patch = json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": since }],
        }});
        self.try_patch(Resource::PODS, pod, Some(Subresource::Status), patch).unwrap();
    }

    /// Makes all pending pods ready. Returns `true` if there were any.
    pub(crate) fn start_pods(&self) -> bool {
        let waiting = |pod: &&Value| {
            pod["status"].get("conditions").is_none() && pod["metadata"].get("deletionTimestamp").is_none()
        };
        let pods = self.list(Resource::PODS);
        let waiting: Vec<_> = pods.iter().filter(waiting).collect();
        waiting.iter().for_each(|pod| self.report_ready(name(pod), 0));
        !waiting.is_empty()
    }

    /// Makes new pods ready until no more are created.
    pub(crate) async fn roll_out(&self) {
        // More iterations than any rollout of these tests needs.
        for _ in 0..100 {
            self.settle().await;
            if !self.start_pods() {
                return;
            }
        }
        panic!("the rollout does not end");
    }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The controller reference of `object`.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    let references = object["metadata"].get("ownerReferences")?.as_array().unwrap();
    references.iter().find(|reference| reference["controller"] == true)
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

/// A count in the status; zero if absent.
pub(crate) fn count(object: &Value, field: &str) -> i64 {
    object["status"].get(field).and_then(Value::as_i64).unwrap_or_default()
}

/// Status and reason of the condition of type `type_`.
pub(crate) fn condition(object: &Value, type_: &str) -> Option<(String, String)> {
    let conditions = object["status"].get("conditions")?.as_array().unwrap();
    let condition = conditions.iter().find(|condition| condition["type"] == type_)?;
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    Some((text("status"), text("reason")))
}

/// Pod template of all objects.
pub(crate) fn template(image: &str) -> Value {
    json!({
        "metadata": { "labels": { "name": "test" } },
        "spec": { "containers": [{ "name": "fake-name", "image": image }] },
    })
}

/// Pod without an owner, with the labels of [`template`].
pub(crate) fn pod(name: &str) -> Value {
    let mut pod = template("fakeimage");
    pod["metadata"]["name"] = json!(name);
    pod
}

/// Returns `object` with the JSON merge patch `change` applied.
pub(crate) fn changed(mut object: Value, change: Value) -> Value {
    fn merge(into: &mut Value, change: Value) {
        match (into, change) {
            (Value::Object(into), Value::Object(change)) => {
                for (name, value) in change {
                    merge(into.entry(name).or_insert(Value::Null), value);
                }
            }
            (into, change) => *into = change,
        }
    }
    merge(&mut object, change);
    object
}
