//! Pod status reported by the simulated kubelet.

use kcm_api::Time;
use serde_json::{Value, json};

use crate::api::{condition, field};

/// Message of a pod that has exceeded its deadline, as upstream.
const DEADLINE_EXCEEDED: &str = "Pod was active on the node longer than the specified deadline";

/// State of the containers of a pod. All containers have the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerState {
    Ready,
    Running,
    CrashLoopBackOff,
    ImagePullBackOff,
    /// Stopped because the pod has exceeded `activeDeadlineSeconds`.
    DeadlineExceeded,
}

impl ContainerState {
    /// Reason and message of the warning event for this state, if any.
    pub(super) fn warning_event(self, pod: &Value) -> Option<(&'static str, String)> {
        let name = field(pod, "/spec/containers/0/name");
        match self {
            Self::Ready | Self::Running => None,
            Self::DeadlineExceeded => Some(("DeadlineExceeded", DEADLINE_EXCEEDED.to_owned())),
            Self::CrashLoopBackOff => {
                Some(("BackOff", format!("Back-off restarting failed container {name}")))
            }
            Self::ImagePullBackOff => {
                let image = field(pod, "/spec/containers/0/image");
                Some(("Failed", format!("Failed to pull image \"{image}\": there is no such image")))
            }
        }
    }
}

/// Input of the reported status.
#[derive(Debug)]
pub(super) struct PodStatus {
    pub(super) container: ContainerState,
    pub(super) restarts: i32,
    /// Number of the pod's address.
    pub(super) address: u32,
    /// Time of the last start of the containers.
    pub(super) started: Time,
    pub(super) now: Time,
}

impl PodStatus {
    /// Status of `pod`, as a strategic merge patch.
    pub(super) fn of(&self, pod: &Value) -> Value {
        let ready = self.container == ContainerState::Ready;
        let started = self.container != ContainerState::ImagePullBackOff;
        let address = format!(
            "10.{}.{}.{}",
            1 + (self.address >> 16) % 250,
            (self.address >> 8) % 256,
            self.address % 256
        );
        let unready = if started { "ContainersNotReady" } else { "ContainersNotInitialized" };
        let condition = |type_: &str, holds: bool| self.condition(pod, type_, holds, unready);
        let mut status = json!({
            "observedGeneration": pod.pointer("/metadata/generation"),
            "phase": if started { "Running" } else { "Pending" },
            "conditions": [
                condition("PodReadyToStartContainers", true),
                condition("Initialized", true),
                condition("Ready", ready),
                condition("ContainersReady", ready),
            ],
            "hostIP": "10.0.0.1",
            "hostIPs": [{ "ip": "10.0.0.1" }],
            "podIP": address,
            "podIPs": [{ "ip": address }],
            "containerStatuses": self.containers(pod, "/spec/containers"),
        });
        if self.container == ContainerState::DeadlineExceeded {
            status["phase"] = json!("Failed");
            status["reason"] = json!("DeadlineExceeded");
            status["message"] = json!(DEADLINE_EXCEEDED);
        }
        if pod.pointer("/status/startTime").is_none() {
            status["startTime"] = json!(self.now);
        }
        status
    }

    /// Builds a condition. If its status has not changed, `lastTransitionTime` is kept.
    fn condition(&self, pod: &Value, type_: &str, holds: bool, reason: &str) -> Value {
        let status = if holds { "True" } else { "False" };
        let since = condition(pod, type_)
            .filter(|old| old["status"] == status)
            .map_or_else(|| json!(self.now), |old| old["lastTransitionTime"].clone());
        let mut condition =
            json!({ "type": type_, "status": status, "lastProbeTime": null, "lastTransitionTime": since });
        // A strategic merge patch deletes a field only if the field is null.
        condition["reason"] = if holds { Value::Null } else { json!(reason) };
        condition["message"] =
            if holds { Value::Null } else { json!("containers with unready status: all of them") };
        condition
    }

    fn containers(&self, pod: &Value, path: &str) -> Value {
        let containers = pod.pointer(path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        containers.iter().map(|container| self.container(pod, container)).collect()
    }

    fn container(&self, pod: &Value, container: &Value) -> Value {
        let image = field(container, "/image");
        let ended = || {
            json!({ "terminated": {
                "exitCode": 1, "reason": "Error", "startedAt": self.started, "finishedAt": self.now,
            } })
        };
        let (state, last) = match self.container {
            ContainerState::Ready | ContainerState::Running => {
                (json!({ "running": { "startedAt": self.started } }), json!({}))
            }
            ContainerState::DeadlineExceeded => (ended(), json!({})),
            ContainerState::CrashLoopBackOff => (
                json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off restarting failed container" } }),
                ended(),
            ),
            ContainerState::ImagePullBackOff => (
                json!({ "waiting": {
                    "reason": "ImagePullBackOff", "message": format!("Back-off pulling image \"{image}\""),
                } }),
                json!({}),
            ),
        };
        let runs = matches!(self.container, ContainerState::Ready | ContainerState::Running);
        json!({
            "name": container["name"],
            "image": image,
            "imageID": if runs { format!("sandbox://{image}") } else { String::new() },
            "containerID": if runs { format!("sandbox://{}", field(pod, "/metadata/uid")) } else { String::new() },
            "ready": self.container == ContainerState::Ready,
            "started": runs,
            "restartCount": self.restarts,
            "state": state,
            "lastState": last,
        })
    }
}
