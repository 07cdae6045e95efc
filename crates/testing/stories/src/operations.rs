//! Steps that need several requests.

use std::time::Duration;

use kcm_clock::Clock;
use serde_json::{Map, Value, json};

use crate::{
    client::{StepError, StoryClient},
    expectation::Expectation,
    step::{Drain, PatchForm, SetImage, Undo},
    target::{ObjectKind, Target, TargetName},
};

/// Initial interval of checks for an expected state.
///
/// Intervals grow with the time waited, `max(100 ms, waited / 50)`, because waits can last hours of simulated time.
/// Example: after 10 s, the next check is 200 ms later.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);
const CHECKS: u32 = 50;

/// Interval between two attempts to evict the pods of a node.
const EVICT_EVERY: Duration = Duration::from_secs(1);

/// Time from the loss of a node to the deletion of its pods.
const NODE_MISSED: Duration = Duration::from_secs(5);

const REVISION: &str = "/metadata/annotations/deployment.kubernetes.io~1revision";

/// HTTP status of an eviction that a disruption budget forbids.
const TOO_MANY_REQUESTS: u16 = 429;

impl StoryClient<'_> {
    pub(crate) async fn set_image(&mut self, step: &SetImage) -> Result<(), StepError> {
        let object = self.get(&step.object).await?;
        let name = object.pointer("/spec/template/spec/containers/0/name").cloned().unwrap_or_default();
        let container = json!({"name": name, "image": step.image});
        let body = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        self.patch(&step.object, None, PatchForm::Strategic, &body).await
    }

    pub(crate) async fn set_paused(&mut self, deployment: &Target, paused: bool) -> Result<(), StepError> {
        let body = json!({"spec": {"paused": if paused { json!(true) } else { Value::Null }}});
        self.patch(deployment, None, PatchForm::Merge, &body).await
    }

    /// Restores the template of an old ReplicaSet, as `kubectl rollout undo`.
    pub(crate) async fn undo(&mut self, step: &Undo) -> Result<(), StepError> {
        let uid = self.get(&step.object).await?["metadata"]["uid"].clone();
        let revision =
            |set: &Value| set.pointer(REVISION).and_then(Value::as_str).and_then(|text| text.parse().ok());
        let mut owned: Vec<(i64, Value)> = Vec::new();
        for set in self.list(ObjectKind::ReplicaSet).await? {
            let owners = set.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            if owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid)) {
                owned.push((revision(&set).unwrap_or(0), set));
            }
        }
        owned.sort_by_key(|(revision, _)| std::cmp::Reverse(*revision));
        let found = match step.to_revision {
            Some(expected) => owned.iter().find(|(revision, _)| *revision == expected),
            None => owned.get(1),
        };
        let (_, set) = found.ok_or_else(|| StepError::NoSuchRevision(step.object.clone()))?;
        let mut template = set["spec"]["template"].clone();
        if let Some(Value::Object(labels)) = template.pointer_mut("/metadata/labels") {
            labels.remove("pod-template-hash");
        }
        let body = json!([{"op": "replace", "path": "/spec/template", "value": template}]);
        self.patch(&step.object, None, PatchForm::Json, &body).await
    }

    pub(crate) async fn evict(&mut self, pod: &Target) -> Result<(), StepError> {
        let name = self.name(pod).await?;
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        self.post_below(pod, "eviction", &body).await
    }

    pub(crate) async fn cordon(&mut self, node: &str, cordoned: bool) -> Result<(), StepError> {
        let body = json!({"spec": {"unschedulable": if cordoned { json!(true) } else { Value::Null }}});
        self.patch(&named(ObjectKind::Node, node), None, PatchForm::Merge, &body).await
    }

    pub(crate) async fn drain(&mut self, step: &Drain, clock: &dyn Clock) -> Result<(), StepError> {
        self.cordon(&step.node, true).await?;
        let deadline = clock.monotonic().saturating_add(step.limit);
        loop {
            let pods = self.pods_on(&step.node).await?;
            if pods.is_empty() {
                return Ok(());
            }
            if clock.monotonic() >= deadline {
                let what = format!("{} pods are still on {}", pods.len(), step.node);
                return Err(StepError::Mismatch { what, waited: step.limit });
            }
            for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
                let pod = named(ObjectKind::Pod, pod["metadata"]["name"].as_str().unwrap_or_default());
                match self.evict(&pod).await {
                    Err(StepError::Api(error)) if error.code() == Some(TOO_MANY_REQUESTS) => {}
                    Err(StepError::Api(error)) if error.is_not_found() => {}
                    other => other?,
                }
            }
            clock.sleep(EVICT_EVERY).await;
        }
    }

    /// Simulates the node lifecycle controller and the pod garbage collector.
    pub(crate) async fn lose_node(&mut self, node: &str, clock: &dyn Clock) -> Result<(), StepError> {
        self.cordon(node, true).await?;
        let now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
        for pod in self.pods_on(node).await? {
            let pod = named(ObjectKind::Pod, pod["metadata"]["name"].as_str().unwrap_or_default());
            let body = json!({"status": {"conditions": [unready]}});
            self.patch(&pod, Some("status"), PatchForm::Strategic, &body).await?;
        }
        clock.sleep(NODE_MISSED).await;
        self.delete(&named(ObjectKind::Node, node), &Map::new()).await?;
        let at_once = Map::from_iter([("gracePeriodSeconds".to_owned(), json!(0))]);
        for pod in self.pods_on(node).await? {
            let pod = named(ObjectKind::Pod, pod["metadata"]["name"].as_str().unwrap_or_default());
            match self.delete(&pod, &at_once).await {
                Err(StepError::Api(error)) if error.is_not_found() => {}
                other => other?,
            }
        }
        Ok(())
    }

    async fn pods_on(&self, node: &str) -> Result<Vec<Value>, StepError> {
        let mut pods = self.list(ObjectKind::Pod).await?;
        pods.retain(|pod| pod["spec"]["nodeName"] == node);
        Ok(pods)
    }

    /// Checks that the state is as expected.
    pub(crate) async fn expect(&mut self, expectation: &Expectation) -> Result<(), StepError> {
        match self.mismatch(expectation).await? {
            None => Ok(()),
            Some(what) => Err(StepError::Mismatch { what, waited: Duration::ZERO }),
        }
    }

    /// Waits until the state is as expected.
    pub(crate) async fn until(
        &mut self,
        expectation: &Expectation,
        clock: &dyn Clock,
    ) -> Result<(), StepError> {
        let timeout = expectation.timeout();
        let start = clock.monotonic();
        let deadline = start.saturating_add(timeout);
        loop {
            match self.mismatch(expectation).await? {
                None => return Ok(()),
                Some(what) if clock.monotonic() >= deadline => {
                    return Err(StepError::Mismatch { what, waited: timeout });
                }
                Some(_) => {
                    let waited = clock.monotonic().saturating_sub(start);
                    clock.sleep(MIN_CHECK_INTERVAL.max(waited / CHECKS)).await;
                }
            }
        }
    }

    /// Returns the first mismatch, or `None` if the state is as expected.
    async fn mismatch(&mut self, expectation: &Expectation) -> Result<Option<String>, StepError> {
        if let Some(target) = &expectation.object {
            let object = self.get(target).await?;
            if let Some(mismatch) = expectation.mismatch(&object) {
                return Ok(Some(format!("{target}: {mismatch}")));
            }
        }
        for (kind, expected) in &expectation.count {
            let found = self.list(*kind).await?.len();
            if found != *expected {
                return Ok(Some(format!("{found} {} exist, expected {expected}", kind.resource())));
            }
        }
        Ok(None)
    }
}

fn named(kind: ObjectKind, name: &str) -> Target {
    Target { kind, name: TargetName::Given(name.to_owned()) }
}
