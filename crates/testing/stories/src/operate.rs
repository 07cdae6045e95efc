//! What takes people and clusters several requests.

use std::time::Duration;

use kcm_clock::Clock;
use serde_json::{Map, Value, json};

use crate::{
    look::Look,
    stage::{Stage, StageError},
    step::{Drain, Kind, Name, PatchForm, SetImage, Target, Undo},
};

/// How soon is looked whether something has come about, and then ever more rarely: after so many looks, each next one
/// comes when a share of the time has passed again. Time may be simulated, and servers far away: asking is what works
/// with all of them.
const FIRST_LOOKS: Duration = Duration::from_millis(100);
const LOOKS: u32 = 50;

/// How long an eviction that was refused rests before it is asked for again.
const EVICT_EVERY: Duration = Duration::from_secs(1);

/// From a node's last sign of life to its pods being written off.
const NODE_MISSED: Duration = Duration::from_secs(5);

const REVISION: &str = "/metadata/annotations/deployment.kubernetes.io~1revision";

/// The API server's word for "not now".
const TOO_MANY_REQUESTS: u16 = 429;

impl Stage<'_> {
    pub(crate) async fn set_image(&mut self, step: &SetImage) -> Result<(), StageError> {
        let object = self.get(&step.object).await?;
        let name = object.pointer("/spec/template/spec/containers/0/name").cloned().unwrap_or_default();
        let container = json!({"name": name, "image": step.image});
        let body = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        self.patch(&step.object, None, PatchForm::Strategic, &body).await
    }

    pub(crate) async fn set_paused(&mut self, deployment: &Target, paused: bool) -> Result<(), StageError> {
        let body = json!({"spec": {"paused": if paused { json!(true) } else { Value::Null }}});
        self.patch(deployment, None, PatchForm::Merge, &body).await
    }

    /// Puts the template of an old ReplicaSet back, as `kubectl` does.
    pub(crate) async fn undo(&mut self, step: &Undo) -> Result<(), StageError> {
        let uid = self.get(&step.object).await?["metadata"]["uid"].clone();
        let revision =
            |set: &Value| set.pointer(REVISION).and_then(Value::as_str).and_then(|text| text.parse().ok());
        let mut owned: Vec<(i64, Value)> = Vec::new();
        for set in self.list(Kind::ReplicaSet).await? {
            let owners = set.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            if owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid)) {
                owned.push((revision(&set).unwrap_or(0), set));
            }
        }
        owned.sort_by_key(|(revision, _)| std::cmp::Reverse(*revision));
        let found = match step.to_revision {
            Some(wanted) => owned.iter().find(|(revision, _)| *revision == wanted),
            None => owned.get(1),
        };
        let (_, set) = found.ok_or_else(|| StageError::NoSuchRevision(step.object.clone()))?;
        let mut template = set["spec"]["template"].clone();
        if let Some(Value::Object(labels)) = template.pointer_mut("/metadata/labels") {
            labels.remove("pod-template-hash");
        }
        let body = json!([{"op": "replace", "path": "/spec/template", "value": template}]);
        self.patch(&step.object, None, PatchForm::Json, &body).await
    }

    pub(crate) async fn evict(&mut self, pod: &Target) -> Result<(), StageError> {
        let name = self.name(pod).await?;
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        self.post_below(pod, "eviction", &body).await
    }

    pub(crate) async fn cordon(&mut self, node: &str, cordoned: bool) -> Result<(), StageError> {
        let body = json!({"spec": {"unschedulable": if cordoned { json!(true) } else { Value::Null }}});
        self.patch(&named(Kind::Node, node), None, PatchForm::Merge, &body).await
    }

    pub(crate) async fn drain(&mut self, step: &Drain, clock: &dyn Clock) -> Result<(), StageError> {
        self.cordon(&step.node, true).await?;
        let deadline = clock.monotonic().saturating_add(step.limit);
        loop {
            let pods = self.pods_on(&step.node).await?;
            if pods.is_empty() {
                return Ok(());
            }
            if clock.monotonic() >= deadline {
                let what = format!("{} pods are still on {}", pods.len(), step.node);
                return Err(StageError::NotSo { what, waited: step.limit });
            }
            for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
                let pod = named(Kind::Pod, pod["metadata"]["name"].as_str().unwrap_or_default());
                match self.evict(&pod).await {
                    Err(StageError::Api(error)) if error.code() == Some(TOO_MANY_REQUESTS) => {}
                    Err(StageError::Api(error)) if error.is_not_found() => {}
                    other => other?,
                }
            }
            clock.sleep(EVICT_EVERY).await;
        }
    }

    /// The parts of the node lifecycle controller and of the pod garbage collector.
    pub(crate) async fn lose_node(&mut self, node: &str, clock: &dyn Clock) -> Result<(), StageError> {
        self.cordon(node, true).await?;
        let now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
        for pod in self.pods_on(node).await? {
            let pod = named(Kind::Pod, pod["metadata"]["name"].as_str().unwrap_or_default());
            let body = json!({"status": {"conditions": [unready]}});
            self.patch(&pod, Some("status"), PatchForm::Strategic, &body).await?;
        }
        clock.sleep(NODE_MISSED).await;
        self.delete(&named(Kind::Node, node), &Map::new()).await?;
        let at_once = Map::from_iter([("gracePeriodSeconds".to_owned(), json!(0))]);
        for pod in self.pods_on(node).await? {
            let pod = named(Kind::Pod, pod["metadata"]["name"].as_str().unwrap_or_default());
            match self.delete(&pod, &at_once).await {
                Err(StageError::Api(error)) if error.is_not_found() => {}
                other => other?,
            }
        }
        Ok(())
    }

    async fn pods_on(&self, node: &str) -> Result<Vec<Value>, StageError> {
        let mut pods = self.list(Kind::Pod).await?;
        pods.retain(|pod| pod["spec"]["nodeName"] == node);
        Ok(pods)
    }

    /// Things are as they should be, or it is an error.
    pub(crate) async fn expect(&mut self, look: &Look) -> Result<(), StageError> {
        match look.wrong(self).await? {
            None => Ok(()),
            Some(what) => Err(StageError::NotSo { what, waited: Duration::ZERO }),
        }
    }

    /// Waits until things are as they should be.
    pub(crate) async fn until(&mut self, look: &Look, clock: &dyn Clock) -> Result<(), StageError> {
        let waited = look.patience();
        let begun = clock.monotonic();
        let deadline = begun.saturating_add(waited);
        loop {
            match look.wrong(self).await? {
                None => return Ok(()),
                Some(what) if clock.monotonic() >= deadline => {
                    return Err(StageError::NotSo { what, waited });
                }
                Some(_) => {
                    let so_far = clock.monotonic().saturating_sub(begun);
                    clock.sleep(FIRST_LOOKS.max(so_far / LOOKS)).await;
                }
            }
        }
    }
}

fn named(kind: Kind, name: &str) -> Target {
    Target { kind, name: Name::Given(name.to_owned()) }
}
