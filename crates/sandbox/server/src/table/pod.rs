//! Pods and their status.

use std::cmp::Ordering;

use kcm_apiserver::json::{at, bool_at, i64_at, list_at, str_at};
use serde_json::Value;

use super::{
    AGE, Column, NAME, Printer,
    age::{age, since},
    or_none,
    workload::name,
};

pub(super) const POD: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Ready", "Number of ready containers and of all containers."),
        Column::text("Status", "Summary of the pod's phase and container states."),
        Column::text("Restarts", "Number of container restarts, and time since the last restart."),
        AGE,
        Column::text("IP", "IP address of the pod.").wide(),
        Column::text("Node", "Node of the pod.").wide(),
        Column::text("Nominated Node", "Node on which the pod will run after preemption.").wide(),
        Column::text("Readiness Gates", "Number of met readiness gates and of all readiness gates.").wide(),
    ],
    row: |pod, now| {
        let summary = Summary::of(pod);
        let address =
            list_at(pod, &["status", "podIPs"]).first().map_or("", |address| str_at(address, &["ip"]));
        vec![
            name(pod),
            Value::from(format!("{}/{}", summary.ready, summary.containers)),
            Value::from(summary.reason),
            Value::from(match (summary.restarts, summary.last_restart) {
                (restarts @ 1.., Some(time)) => format!("{restarts} ({} ago)", since(time, now)),
                (restarts, _) => restarts.to_string(),
            }),
            age(pod, now),
            or_none(if address.is_empty() { str_at(pod, &["status", "podIP"]) } else { address }),
            or_none(str_at(pod, &["spec", "nodeName"])),
            or_none(str_at(pod, &["status", "nominatedNodeName"])),
            or_none(&readiness_gates(pod)),
        ]
    },
};

/// Summary of container states.
struct Summary<'a> {
    reason: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<&'a str>,
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Self {
        let init_containers = list_at(pod, &["spec", "initContainers"]);
        let sidecars = init_containers.iter().filter(|container| is_sidecar(container)).count();
        let mut summary = Self {
            reason: first_reason(pod),
            ready: 0,
            containers: list_at(pod, &["spec", "containers"]).len() + sidecars,
            restarts: 0,
            last_restart: None,
        };
        let initializing = summary.init_containers(pod, init_containers);
        if !initializing || has_condition(pod, "Initialized") {
            summary.containers(pod, init_containers);
        }
        let is_terminal = matches!(str_at(pod, &["status", "phase"]), "Succeeded" | "Failed");
        if at(pod, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null()) {
            if str_at(pod, &["status", "reason"]) == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !is_terminal {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Evaluates init containers up to the first incomplete one. Returns `true` if there is one.
    fn init_containers(&mut self, pod: &'a Value, declared: &[Value]) -> bool {
        for (index, status) in list_at(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
            self.count_restarts(status);
            let terminated = at(status, &["state", "terminated"]);
            let waiting = str_at(status, &["state", "waiting", "reason"]);
            let is_sidecar = declared_as_sidecar(declared, status);
            match terminated {
                Some(terminated) if i64_at(terminated, &["exitCode"]).unwrap_or(0) == 0 => continue,
                _ if is_sidecar && bool_at(status, &["started"]) => {
                    self.ready += usize::from(bool_at(status, &["ready"]));
                    continue;
                }
                Some(terminated) => self.reason = format!("Init:{}", exit(terminated)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => {
                    self.reason = format!("Init:{waiting}");
                }
                None => self.reason = format!("Init:{index}/{}", declared.len()),
            }
            return true;
        }
        false
    }

    fn containers(&mut self, pod: &'a Value, init_containers: &[Value]) {
        // From here on, completed init containers do not count.
        (self.restarts, self.last_restart) = (0, None);
        for status in list_at(pod, &["status", "initContainerStatuses"]) {
            if declared_as_sidecar(init_containers, status) {
                self.count_restarts(status);
            }
        }
        let mut is_running = false;
        for status in list_at(pod, &["status", "containerStatuses"]).iter().rev() {
            self.count_restarts(status);
            let waiting = str_at(status, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = at(status, &["state", "terminated"]) {
                self.reason = exit(terminated);
            } else if bool_at(status, &["ready"]) && at(status, &["state", "running"]).is_some() {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && is_running {
            let reason = if has_condition(pod, "Ready") { "Running" } else { "NotReady" };
            self.reason = reason.to_owned();
        }
    }

    fn count_restarts(&mut self, status: &'a Value) {
        self.restarts += i64_at(status, &["restartCount"]).unwrap_or(0);
        let finished = str_at(status, &["lastState", "terminated", "finishedAt"]);
        // Times of this format sort as strings.
        if !finished.is_empty() && self.last_restart.map_or(Ordering::Less, |last| last.cmp(finished)).is_lt()
        {
            self.last_restart = Some(finished);
        }
    }
}

/// Returns the status before containers are considered.
fn first_reason(pod: &Value) -> String {
    let gated = list_at(pod, &["status", "conditions"]).iter().any(|condition| {
        str_at(condition, &["type"]) == "PodScheduled" && str_at(condition, &["reason"]) == "SchedulingGated"
    });
    let reason = match str_at(pod, &["status", "reason"]) {
        _ if gated => "SchedulingGated",
        "" => str_at(pod, &["status", "phase"]),
        reason => reason,
    };
    reason.to_owned()
}

/// Returns the reason, signal or exit code of a terminated container.
fn exit(terminated: &Value) -> String {
    let (reason, signal) = (str_at(terminated, &["reason"]), i64_at(terminated, &["signal"]).unwrap_or(0));
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", i64_at(terminated, &["exitCode"]).unwrap_or(0))
    }
}

/// `true` for a sidecar: an init container with restart policy `Always`.
fn is_sidecar(container: &Value) -> bool {
    str_at(container, &["restartPolicy"]) == "Always"
}

fn declared_as_sidecar(declared: &[Value], status: &Value) -> bool {
    let name = str_at(status, &["name"]);
    declared.iter().any(|container| str_at(container, &["name"]) == name && is_sidecar(container))
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    list_at(pod, &["status", "conditions"])
        .iter()
        .any(|condition| str_at(condition, &["type"]) == kind && str_at(condition, &["status"]) == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list_at(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return String::new();
    }
    let open = gates.iter().filter(|gate| has_condition(pod, str_at(gate, &["conditionType"]))).count();
    format!("{open}/{}", gates.len())
}
