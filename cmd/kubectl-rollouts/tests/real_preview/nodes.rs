//! Scheduler and kubelets in virtual time.
//!
//! Virtual time advances to the next event of a pod when the controllers have nothing to do. Load of the machine therefore
//! does not change the course of a rollout.

use std::collections::{BTreeMap, BTreeSet};

use kcm_api::Time;
use kcm_client::{ApiClient, Request};
use kcm_clock::{Clock, RealClock};
use serde_json::{Value, json};

/// Seconds from creation to readiness, and from deletion to removal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) ready: u64,
    pub(crate) stop: u64,
}

/// Node of all pods.
pub(crate) const NODE: &str = "node-1";

/// Event of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    BecomeReady,
    Remove,
}

/// Nodes of a namespace.
#[derive(Debug)]
pub(crate) struct Nodes {
    api: ApiClient,
    namespace: String,
    timing: Timing,
    /// Virtual time in seconds.
    pub(crate) now: u64,
    /// Names of pods by time of their next events.
    events: BTreeMap<u64, BTreeSet<(Event, String)>>,
    /// Events that were planned, by UID of the pod.
    planned: BTreeSet<(Event, String)>,
}

impl Nodes {
    pub(crate) fn new(api: ApiClient, namespace: &str, timing: Timing) -> Self {
        let (events, planned) = (BTreeMap::new(), BTreeSet::new());
        Self { api, namespace: namespace.to_owned(), timing, now: 0, events, planned }
    }

    /// Binds new pods, and plans the events of new and of terminating pods. Returns `false` if there were none.
    pub(crate) async fn observe(&mut self, pods: &[Value]) -> bool {
        let mut found = false;
        for pod in pods {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let is_terminating = pod["metadata"].get("deletionTimestamp").is_some();
            let (event, delay) = match is_terminating {
                true => (Event::Remove, self.timing.stop),
                false if is_ready(pod) => continue,
                false => (Event::BecomeReady, self.timing.ready),
            };
            if self.planned.insert((event, pod["metadata"]["uid"].as_str().unwrap().to_owned())) {
                found = true;
                self.events.entry(self.now + delay).or_default().insert((event, name.to_owned()));
                if event == Event::BecomeReady {
                    self.bind(name).await;
                }
            }
        }
        found
    }

    /// Advances to the next event, and performs all events of that time. Returns `false` if there is none.
    pub(crate) async fn advance(&mut self) -> bool {
        let Some((at, events)) = self.events.pop_first() else { return false };
        self.now = at;
        for (event, name) in events {
            match event {
                Event::BecomeReady => self.set_ready(&name).await,
                Event::Remove => self.remove(&name).await,
            }
        }
        true
    }

    fn path(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{name}", self.namespace)
    }

    /// Sends a request. A pod may have been removed.
    async fn send(&self, request: Request) {
        if let Err(error) = self.api.send(&request).await {
            assert!(error.is_not_found(), "{error}");
        }
    }

    async fn bind(&self, name: &str) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "kind": "Node", "name": NODE },
        });
        self.send(Request::post(format!("{}/binding", self.path(name)), binding.to_string())).await;
    }

    async fn set_ready(&self, name: &str) {
        let now = Time::new(RealClock::new().now());
        let status = json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": now }],
        } });
        let path = format!("{}/status", self.path(name));
        self.send(Request::strategic_merge_patch(path, status.to_string())).await;
    }

    async fn remove(&self, name: &str) {
        let options = json!({ "gracePeriodSeconds": 0 });
        self.send(Request::delete(self.path(name), options.to_string())).await;
    }
}

/// `true` if the pod is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
