//! State of one container of a simulated pod.

use std::time::Duration;

use kcm_clock::Timestamp;
use serde_json::{Value, json};

use super::behavior::ContainerBehavior;
use crate::api::{EventDraft, field};

/// Role of a container in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Init,
    /// Init container with `restartPolicy: Always`.
    Sidecar,
    App,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Not created. Without a reason it waits for the pod: `PodInitializing` or `ContainerCreating`.
    Waiting {
        reason: Option<&'static str>,
        message: String,
    },
    Running {
        since: Timestamp,
    },
    Terminated(Termination),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Termination {
    pub(super) exit_code: i32,
    pub(super) reason: String,
    pub(super) message: Option<String>,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) role: Role,
    pub(super) name: String,
    pub(super) image: String,
    pub(super) behavior: ContainerBehavior,
    /// Probes of the specification: startup, readiness, liveness.
    pub(super) probes: [Option<Probe>; 3],
    pub(super) state: State,
    pub(super) last: Option<Termination>,
    /// Restarts, as reported.
    pub(super) restarts: i32,
    pub(super) started: bool,
    pub(super) ready: bool,
    /// `true` once the kubelet has begun to start the container.
    pub(super) launched: bool,
    /// `true` once a sidecar has started, or an init container has succeeded.
    pub(super) initialized: bool,
    /// Number of the current run, from 1. Timers of earlier runs are ignored.
    pub(super) run: u32,
    /// Runs that ended since the back-off was last reset.
    pub(super) crashes: u32,
    /// Failed pulls.
    pub(super) pulls: u32,
}

/// Probe of a container, with defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) initial_delay: Duration,
    pub(super) period: Duration,
    pub(super) failure_threshold: u32,
    pub(super) success_threshold: u32,
    /// Output of a failed probe.
    pub(super) failure: String,
    /// Consecutive results: positive successes, negative failures.
    pub(super) streak: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeKind {
    Startup = 0,
    Readiness = 1,
    Liveness = 2,
}

impl ProbeKind {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Startup, "startupProbe"),
        (Self::Readiness, "readinessProbe"),
        (Self::Liveness, "livenessProbe"),
    ];

    /// Name in events.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

impl Probe {
    fn new(spec: &Value) -> Option<Self> {
        let members = spec.as_object()?;
        let number = |name: &str, default: u64| members.get(name).and_then(Value::as_u64).unwrap_or(default);
        let port = |handler: &str| spec[handler]["port"].as_u64().unwrap_or(80);
        let failure = if spec.get("exec").is_some() {
            "exit status 1".to_owned()
        } else if spec.get("tcpSocket").is_some() {
            format!("dial tcp 10.1.0.1:{}: connect: connection refused", port("tcpSocket"))
        } else if spec.get("grpc").is_some() {
            "service unhealthy (responded with \"NOT_SERVING\")".to_owned()
        } else {
            "HTTP probe failed with statuscode: 503".to_owned()
        };
        let count =
            |name: &str, default: u64| u32::try_from(number(name, default)).unwrap_or(u32::MAX).max(1);
        Some(Self {
            initial_delay: Duration::from_secs(number("initialDelaySeconds", 0)),
            period: Duration::from_secs(number("periodSeconds", 10).max(1)),
            failure_threshold: count("failureThreshold", 3),
            success_threshold: count("successThreshold", 1),
            failure,
            streak: 0,
        })
    }
}

impl Container {
    pub(super) fn new(role: Role, spec: &Value, behavior: ContainerBehavior) -> Self {
        Self {
            role,
            name: field(spec, "/name").to_owned(),
            image: field(spec, "/image").to_owned(),
            behavior,
            probes: ProbeKind::ALL.map(|(_, probe)| Probe::new(&spec[probe])),
            state: State::Waiting { reason: None, message: String::new() },
            last: None,
            restarts: 0,
            started: false,
            ready: false,
            launched: false,
            initialized: false,
            run: 0,
            crashes: 0,
            pulls: 0,
        }
    }

    pub(super) fn waits(&mut self, reason: &'static str, message: String) {
        self.state = State::Waiting { reason: Some(reason), message };
    }

    /// Ends the current run.
    pub(super) fn terminate(
        &mut self,
        exit_code: i32,
        reason: Option<&str>,
        message: Option<&str>,
        now: Timestamp,
    ) {
        let State::Running { since } = self.state else { return };
        let default = if exit_code == 0 { "Completed" } else { "Error" };
        self.state = State::Terminated(Termination {
            exit_code,
            reason: reason.unwrap_or(default).to_owned(),
            message: message.map(str::to_owned),
            started: since,
            finished: now,
        });
        self.started = false;
        self.ready = self.role == Role::Init && exit_code == 0;
        self.initialized |= self.ready;
    }

    /// Moves the termination to `lastState`.
    pub(super) fn archive(&mut self) {
        if let State::Terminated(end) = &self.state {
            self.last = Some(end.clone());
        }
    }

    pub(super) const fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Status in the pod with the UID `uid`. `initializing` is `true` if the pod has init containers.
    pub(super) fn status(&self, uid: &str, initializing: bool) -> Value {
        let id = format!("sandbox://{uid}-{}-{}", self.name, self.run);
        let terminated = |end: &Termination| {
            json!({ "terminated": {
                "exitCode": end.exit_code, "reason": end.reason, "message": end.message,
                "startedAt": time(end.started), "finishedAt": time(end.finished),
            } })
        };
        let mut state = match &self.state {
            State::Waiting { reason, message } => {
                let default = if initializing { "PodInitializing" } else { "ContainerCreating" };
                let mut waiting = json!({ "reason": reason.unwrap_or(default) });
                if !message.is_empty() {
                    waiting["message"] = json!(message);
                }
                json!({ "waiting": waiting })
            }
            State::Running { since } => json!({ "running": { "startedAt": time(*since) } }),
            State::Terminated(end) => terminated(end),
        };
        let mut last = self.last.as_ref().map_or_else(|| json!({}), terminated);
        for state in [&mut state, &mut last] {
            if let Some(end) = state.get_mut("terminated").and_then(Value::as_object_mut) {
                end.retain(|_, value| !value.is_null());
            }
        }
        let created = !matches!(self.state, State::Waiting { .. });
        json!({
            "name": self.name,
            "image": self.image,
            "imageID": if created { format!("sandbox://{}", self.image) } else { String::new() },
            "containerID": if created { id } else { String::new() },
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": state,
            "lastState": last,
        })
    }
}

impl EventDraft {
    /// Sets the container as the object of the event.
    pub(super) fn of_container(self, container: &Container) -> Self {
        let list = if container.role == Role::App { "containers" } else { "initContainers" };
        self.in_field(format!("spec.{list}{{{}}}", container.name))
    }
}

fn time(at: Timestamp) -> kcm_api::Time {
    kcm_api::Time::new(at)
}
