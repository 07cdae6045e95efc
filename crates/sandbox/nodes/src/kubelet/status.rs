//! Pod status reported by the simulated kubelet.
//!
//! *Upstream counterpart:* `pkg/kubelet/status/generate.go` and `getPhase` in `pkg/kubelet/kubelet_pods.go`.

use kcm_api::Time;
use serde_json::{Value, json};

use super::container::{Container, Role, State};
use crate::api::{condition, field};

/// Address of the simulated nodes.
const HOST_IP: &str = "10.0.0.1";

/// Input of the reported status.
#[derive(Debug)]
pub(super) struct PodStatus<'a> {
    /// Init containers first.
    pub(super) containers: &'a [Container],
    /// Number of the pod's address.
    pub(super) address: u32,
    /// `true` once the pod sandbox and its network exist.
    pub(super) has_sandbox: bool,
    /// Reason and message of a pod that failed.
    pub(super) failure: Option<&'a Failure>,
    /// `true` if the pod was deleted, and its containers have stopped.
    pub(super) stopped: bool,
    pub(super) now: Time,
}

/// End of a pod by the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: String,
    pub(super) message: String,
    /// `true` if the pod has the condition `DisruptionTarget`.
    pub(super) disrupted: bool,
    /// `true` if the kubelet has not admitted the pod. Such a pod has no container statuses.
    pub(super) rejected: bool,
}

/// Status, reason and message of a condition.
struct Verdict {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    const TRUE: Self = Self { holds: true, reason: "", message: String::new() };

    const fn no(reason: &'static str, message: String) -> Self {
        Self { holds: false, reason, message }
    }
}

impl PodStatus<'_> {
    /// Status of `pod`, as a strategic merge patch.
    pub(super) fn of(&self, pod: &Value) -> Value {
        let phase = self.phase();
        let ready = self.containers_ready(phase);
        let mut conditions = vec![
            self.condition(pod, "PodReadyToStartContainers", &self.sandbox()),
            self.condition(pod, "Initialized", &self.initialized(phase)),
            self.condition(pod, "Ready", &self.ready(pod, &ready)),
            self.condition(pod, "ContainersReady", &ready),
        ];
        if let Some(failure) = self.failure.filter(|failure| failure.disrupted) {
            let verdict =
                Verdict { holds: true, reason: "TerminationByKubelet", message: failure.message.clone() };
            conditions.push(self.condition(pod, "DisruptionTarget", &verdict));
        }
        let mut status = json!({
            "observedGeneration": pod.pointer("/metadata/generation"),
            "phase": phase,
            "conditions": conditions,
            "hostIP": HOST_IP,
            "hostIPs": [{ "ip": HOST_IP }],
        });
        let address = if pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true)) {
            Some(HOST_IP.to_owned())
        } else {
            self.has_sandbox.then(|| self.pod_address())
        };
        if let Some(address) = address {
            status["podIPs"] = json!([{ "ip": address }]);
            status["podIP"] = json!(address);
        }
        let rejected = self.failure.is_some_and(|failure| failure.rejected);
        if !rejected {
            let (uid, initializing) = (field(pod, "/metadata/uid"), self.has_init_containers());
            let statuses = |init: bool| -> Value {
                let some = self.containers.iter().filter(|one| (one.role != Role::App) == init);
                let status = |container: &Container| {
                    let mut status = container.status(uid, initializing);
                    // The API server refuses to resize a pod whose kubelet does not report them.
                    if let Some(resources) = resources(pod, init, &container.name) {
                        status["resources"] = resources.clone();
                    }
                    status
                };
                some.map(status).collect()
            };
            status["containerStatuses"] = statuses(false);
            if initializing {
                status["initContainerStatuses"] = statuses(true);
            }
        }
        if let Some(failure) = self.failure {
            status["reason"] = json!(failure.reason);
            status["message"] = json!(failure.message);
        }
        if pod.pointer("/status/startTime").is_none() {
            status["startTime"] = json!(self.now);
        }
        status
    }

    /// `true` if the `Ready` condition of `pod` differs from its readiness gates and containers.
    pub(super) fn ready_differs(&self, pod: &Value) -> bool {
        let ready = self.ready(pod, &self.containers_ready(self.phase()));
        condition(pod, "Ready").is_some_and(|old| (old["status"] == "True") != ready.holds)
    }

    fn pod_address(&self) -> String {
        let number = self.address;
        format!("10.{}.{}.{}", 1 + (number >> 16) % 250, (number >> 8) % 256, number % 256)
    }

    fn has_init_containers(&self) -> bool {
        self.containers.iter().any(|one| one.role != Role::App)
    }

    fn phase(&self) -> &'static str {
        if self.failure.is_some() {
            return "Failed";
        }
        if self.stopped {
            let ended = |one: &Container| match &one.state {
                State::Terminated(end) => end.exit_code == 0,
                State::Waiting { .. } | State::Running { .. } => false,
            };
            let mut apps = self.containers.iter().filter(|one| one.role == Role::App);
            return if apps.all(ended) { "Succeeded" } else { "Failed" };
        }
        let waits = |one: &Container| match one.role {
            Role::Init | Role::Sidecar => !one.initialized,
            Role::App => matches!(one.state, State::Waiting { .. }) && one.last.is_none(),
        };
        if self.containers.iter().any(waits) { "Pending" } else { "Running" }
    }

    fn sandbox(&self) -> Verdict {
        if self.has_sandbox && self.failure.is_none() && !self.stopped {
            Verdict::TRUE
        } else {
            Verdict::no("", String::new())
        }
    }

    fn initialized(&self, phase: &str) -> Verdict {
        if phase == "Succeeded" {
            return Verdict { holds: true, reason: "PodCompleted", message: String::new() };
        }
        let names = self.names(|one| one.role != Role::App && !one.initialized);
        let app_started = self.containers.iter().any(|one| one.role == Role::App && one.run > 0);
        if names.is_empty() || app_started {
            Verdict::TRUE
        } else {
            Verdict::no("ContainersNotInitialized", format!("containers with incomplete status: [{names}]"))
        }
    }

    fn containers_ready(&self, phase: &str) -> Verdict {
        match phase {
            "Failed" => return Verdict::no("PodFailed", String::new()),
            "Succeeded" => return Verdict::no("PodCompleted", String::new()),
            _ => {}
        }
        let names = self.names(|one| one.role != Role::Init && !one.ready);
        if names.is_empty() {
            Verdict::TRUE
        } else {
            Verdict::no("ContainersNotReady", format!("containers with unready status: [{names}]"))
        }
    }

    fn ready(&self, pod: &Value, containers_ready: &Verdict) -> Verdict {
        if !containers_ready.holds {
            return Verdict::no(containers_ready.reason, containers_ready.message.clone());
        }
        let gates = pod.pointer("/spec/readinessGates").and_then(Value::as_array);
        let closed: Vec<String> = gates
            .into_iter()
            .flatten()
            .filter_map(|gate| {
                let gate = field(gate, "/conditionType");
                match condition(pod, gate).map(|one| field(one, "/status")) {
                    Some("True") => None,
                    Some(status) => Some(format!(
                        "the status of pod readiness gate {gate:?} is not \"True\", but {status}"
                    )),
                    None => Some(format!(
                        "corresponding condition of pod readiness gate {gate:?} does not exist."
                    )),
                }
            })
            .collect();
        if closed.is_empty() {
            Verdict::TRUE
        } else {
            Verdict::no("ReadinessGatesNotReady", closed.join(", "))
        }
    }

    /// Names of the containers for which `select` is `true`, as Go prints a slice.
    fn names(&self, select: impl Fn(&Container) -> bool) -> String {
        let names = self.containers.iter().filter(|one| select(one)).map(|one| one.name.as_str());
        names.collect::<Vec<_>>().join(" ")
    }

    /// Builds a condition. If its status has not changed, `lastTransitionTime` is kept.
    fn condition(&self, pod: &Value, type_: &str, verdict: &Verdict) -> Value {
        let status = if verdict.holds { "True" } else { "False" };
        let since = condition(pod, type_)
            .filter(|old| old["status"] == status)
            .map_or_else(|| json!(self.now), |old| old["lastTransitionTime"].clone());
        // A strategic merge patch deletes a field only if the field is null.
        let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        json!({
            "type": type_, "status": status, "reason": text(verdict.reason), "message": text(&verdict.message),
            "lastProbeTime": null, "lastTransitionTime": since,
        })
    }
}

/// Resources of a container, if it has any.
pub(super) fn resources<'a>(pod: &'a Value, init: bool, name: &str) -> Option<&'a Value> {
    let containers = pod.pointer(if init { "/spec/initContainers" } else { "/spec/containers" })?;
    let container = containers.as_array()?.iter().find(|container| container["name"] == name)?;
    container.get("resources").filter(|resources| resources.as_object().is_some_and(|map| !map.is_empty()))
}
