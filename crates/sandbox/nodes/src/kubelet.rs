//! Simulated kubelets: start the pods of the simulated nodes, make them ready, crash and stop them.
//!
//! The behaviour of a pod depends on the pod and on a few delays. Annotations on the pod template simulate failures,
//! and so do the image tags in [`MISSING_IMAGE_TAGS`]:
//!
//! | annotation | effect |
//! |---|---|
//! | `kube-sandbox/ready: never` | the pod runs and never becomes ready |
//! | `kube-sandbox/ready-delay: 5s` | time until the pod is ready, instead of the default |
//! | `kube-sandbox/stop-delay: 5s` | time from deletion to removal, instead of the default |
//! | `kube-sandbox/unready-after: 30s` | the pod becomes unready this long after it became ready |
//! | `kube-sandbox/crash-after: 10s` | the container crashes this long after each start |
//! | `kube-sandbox/image-pull: fail` | the image cannot be pulled, the container never starts |
//! | `kube-sandbox/behavior: JSON` | see below |
//!
//! Without `behavior`, a pod has a short course after KWOK's model: one status once its containers run, no intermediate
//! states, probes or normal events. With it, even with the value `{}`, the pod has the states, events, probes, restarts
//! and back-offs of a kubelet, in the kubelet's order and with its delays. All members are optional; durations have
//! Go's form, such as `1m30s`:
//!
//! | member | effect |
//! |---|---|
//! | `containers.NAME.pull` | `{"takes": "4m"}`, or `{"error": MESSAGE, "failures": 2}` without a limit by default |
//! | `containers.NAME.config`, `.create` | `CreateContainerConfigError` or `CreateContainerError` with this message |
//! | `containers.NAME.runs` | the container ends this long after each start, with `exitCode`, `reason` and `message` |
//! | `containers.NAME.crashes` | only this number of runs ends |
//! | `containers.NAME.ready`, `.unreadyAfter` | the readiness probe succeeds after this time, or `never`; fails again |
//! | `containers.NAME.startup` | the startup probe succeeds after this time, or `never` |
//! | `containers.NAME.liveness` | `{"failsAfter": "20s"}`: the liveness probe fails this long after each start |
//! | `mount`, `attach`, `sandbox`, `network` | the step fails with this message, until the time `recovers` |
//! | `reject` | `{"reason": "OutOfcpu", "message": MESSAGE}`: the kubelet does not admit the pod |
//! | `evict` | `{"after": "10s", "message": MESSAGE}`: the kubelet evicts the pod |
//! | `stop` | time from deletion to removal, or `never` |
//! | `node` | node to which the behaviour is limited |
//!
//! The kubelet of a node whose condition `Ready` is `Unknown` does nothing.
//!
//! A probe is simulated only if the container declares it. A container without a readiness probe is ready while it runs.

mod behavior;
mod container;
mod events;
mod pod;
mod status;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use kcm_api::{ObjectKey, Time};
use kcm_apiserver::{Object, Resource};
use kcm_clock::{Clock, Random};
use serde_json::{Value, json};
use tracing::{debug, warn};

use self::{
    events::Events,
    pod::{Context, Outcome, PodState, Work},
    status::{PodStatus, resources},
};
use crate::{
    api::{Api, Change, EventDraft, condition, field},
    timers::Timers,
};

pub use self::behavior::PodBehavior;

/// Image tags that cannot be pulled. Test suites use them for images that must not exist.
pub const MISSING_IMAGE_TAGS: [&str; 3] = ["broken", "404", "does-not-exist"];

/// Time after which a step is tried again whose node is lost.
const NODE_RETRY: Duration = Duration::from_secs(10);

/// Delays of the simulated kubelet.
#[derive(Debug, Clone, Copy)]
pub struct KubeletConfig {
    /// Time from binding to readiness.
    pub pod_ready_delay: Duration,
    /// Time from deletion to removal. A shorter grace period of the pod takes precedence.
    pub pod_stop_delay: Duration,
}

impl Default for KubeletConfig {
    fn default() -> Self {
        Self { pod_ready_delay: Duration::from_millis(500), pod_stop_delay: Duration::from_millis(500) }
    }
}

#[derive(Debug)]
pub(crate) struct Kubelet {
    config: KubeletConfig,
    /// Names of the simulated nodes. Pods of other nodes are ignored.
    nodes: BTreeSet<String>,
    missing_image_tags: Vec<String>,
    random: Arc<dyn Random>,
    /// State of each bound pod, by UID.
    pods: HashMap<String, PodState>,
    events: Events,
    timers: Timers<Timer>,
    /// Number of pod addresses assigned.
    addresses: u32,
}

#[derive(Debug)]
struct Timer {
    uid: String,
    work: Work,
}

impl Kubelet {
    pub(crate) fn new(
        config: KubeletConfig,
        nodes: BTreeSet<String>,
        missing_image_tags: Vec<String>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            config,
            nodes,
            missing_image_tags,
            random,
            pods: HashMap::new(),
            events: Events::default(),
            timers: Timers::new(clock),
            addresses: 0,
        }
    }

    /// Runs pods until the server has stopped.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(Some(Resource::PODS));
        loop {
            tokio::select! {
                // Changes take precedence over timers, so that a deleted pod is not started.
                biased;
                change = changes.next() => match change {
                    Some(change) => self.handle_change(&api, &change),
                    None => return,
                },
                timer = self.timers.next() => self.handle_timer(&api, &timer),
            }
        }
    }

    fn handle_change(&mut self, api: &Api, change: &Change) {
        let (pod, uid) = (&change.object, change.object.uid());
        if change.deleted {
            self.pods.remove(uid);
            self.events.forget(uid);
            return;
        }
        if !self.nodes.contains(field(pod.value(), "/spec/nodeName")) {
            return;
        }
        if !self.pods.contains_key(uid) {
            self.add_pod(api, pod);
        }
        let Some(state) = self.pods.get_mut(uid) else { return };
        if pod.is_deleting() && !std::mem::replace(&mut state.stopping, true) {
            self.stop(api, pod);
        } else {
            observe_generation(api, pod);
            let deadline = deadline_of(pod.value());
            if let Some(deadline) = deadline.filter(|deadline| state.deadline != Some(*deadline)) {
                state.deadline = Some(deadline);
                let left = deadline.saturating_sub(api.now().unix());
                let timer = Timer { uid: uid.to_owned(), work: Work::ExceedDeadline };
                self.timers.add(Duration::from_secs(u64::try_from(left).unwrap_or(0)), timer);
            }
            self.observe_gates(api, pod);
        }
    }

    fn add_pod(&mut self, api: &Api, pod: &Object) {
        self.addresses += 1;
        let state = PodState::new(pod, self.addresses, &self.missing_image_tags, api.timestamp());
        let uid = pod.uid().to_owned();
        let delay = state.annotations.ready_delay.unwrap_or(self.config.pod_ready_delay);
        self.pods.insert(uid.clone(), state);
        // A pod that is already running is left unchanged.
        if matches!(field(pod.value(), "/status/phase"), "" | "Pending") && !pod.is_deleting() {
            // A jitter of 20% separates the pods. More would change the course of a rollout.
            let delay = kcm_clock::jitter(&*self.random, delay, 0.2);
            let mut outcome = Outcome::default();
            if let Some(state) = self.pods.get_mut(&uid) {
                state.begin(delay, &mut outcome);
            }
            self.complete(api, pod, outcome);
        }
    }

    /// Starts the termination of a deleted pod.
    fn stop(&mut self, api: &Api, pod: &Object) {
        let Some(state) = self.pods.get(pod.uid()) else { return };
        let mut outcome = Outcome::default();
        if state.is_detailed() {
            let running = state.containers.iter().filter(|container| container.is_running());
            outcome.events.extend(running.map(|container| {
                let text = format!("Stopping container {}", container.name);
                EventDraft::normal("Killing", text).of_container(container)
            }));
        }
        if let Some(delay) = state.stop_delay(self.config.pod_stop_delay) {
            let grace = pod.value().pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
            let delay = delay.min(Duration::from_secs(grace.unwrap_or(0)));
            outcome.timers.push((delay, Work::Stop));
        }
        self.complete(api, pod, outcome);
    }

    fn handle_timer(&mut self, api: &Api, timer: &Timer) {
        // The pod may have been deleted.
        let (Some(state), Some(pod)) = (self.pods.get_mut(&timer.uid), api.by_uid(&timer.uid)) else {
            return;
        };
        if is_lost(api, field(pod.value(), "/spec/nodeName")) {
            self.timers.add(NODE_RETRY, Timer { uid: timer.uid.clone(), work: timer.work });
            return;
        }
        let (is_finished, is_stop) = (is_finished(pod.value()), timer.work == Work::Stop);
        let mut outcome = Outcome::default();
        let context =
            Context { now: api.timestamp(), random: &*self.random, stop_delay: self.config.pod_stop_delay };
        if is_stop {
            if state.is_detailed() && !is_finished {
                state.handle(timer.work, context, &mut outcome);
                self.complete(api, &pod, outcome);
            }
            if let Err(error) = api.remove(&pod) {
                debug!(?pod, %error, "Failed to remove pod");
            }
            return;
        }
        if state.stopping || pod.is_deleting() || is_finished {
            return;
        }
        // The deadline may have been changed since the timer was set.
        if timer.work == Work::ExceedDeadline
            && deadline_of(pod.value()).is_none_or(|end| end > api.now().unix())
        {
            return;
        }
        state.handle(timer.work, context, &mut outcome);
        self.complete(api, &pod, outcome);
    }

    /// Reports the results of a step.
    fn complete(&mut self, api: &Api, pod: &Object, outcome: Outcome) {
        if outcome.changed && !self.write_status(api, pod) {
            return;
        }
        for (delay, work) in outcome.timers {
            self.timers.add(delay, Timer { uid: pod.uid().to_owned(), work });
        }
        for event in outcome.events {
            self.events.record(api, pod, event);
        }
    }

    /// Writes the status of a pod. Returns `false` if the server refuses it.
    fn write_status(&self, api: &Api, pod: &Object) -> bool {
        let Some(state) = self.pods.get(pod.uid()) else { return false };
        let patch = json!({ "status": status_of(state, api.now()).of(pod.value()) });
        let written = api.patch_status(pod, &patch);
        if let Err(error) = &written {
            warn!(?pod, %error, "Failed to update pod status");
        }
        written.is_ok()
    }

    /// Updates the condition `Ready` if a readiness gate has changed.
    fn observe_gates(&self, api: &Api, pod: &Object) {
        let value = pod.value();
        let has_gates = value.pointer("/spec/readinessGates").is_some_and(Value::is_array);
        let Some(state) =
            self.pods.get(pod.uid()).filter(|_| has_gates && condition(value, "Ready").is_some())
        else {
            return;
        };
        let ran = state.containers.iter().any(|container| container.run > 0);
        if ran && !is_finished(value) && status_of(state, api.now()).ready_differs(value) {
            self.write_status(api, pod);
        }
    }
}

fn status_of(state: &PodState, now: Time) -> PodStatus<'_> {
    PodStatus {
        containers: &state.containers,
        address: state.address,
        has_sandbox: state.has_sandbox,
        failure: state.failure.as_ref(),
        stopped: state.stopped,
        now,
    }
}

/// `true` if the condition `Ready` of the node is `Unknown`: its kubelet has stopped.
fn is_lost(api: &Api, node: &str) -> bool {
    let node = api.get(Resource::NODES, &ObjectKey::new("", node));
    node.is_ok_and(|node| condition(node.value(), "Ready").is_some_and(|ready| ready["status"] == "Unknown"))
}

/// Reports the generation of a pod that has changed since its start, and the resources of its containers.
fn observe_generation(api: &Api, pod: &Object) {
    let generation = |path| pod.value().pointer(path).and_then(Value::as_i64);
    let (current, observed) = (generation("/metadata/generation"), generation("/status/observedGeneration"));
    if observed.is_some_and(|observed| Some(observed) < current) {
        let statuses = pod.value().pointer("/status/containerStatuses").and_then(Value::as_array);
        let resized = |status: &Value| {
            let name = field(status, "/name");
            Some(json!({ "name": name, "resources": resources(pod.value(), false, name)? }))
        };
        let statuses: Vec<Value> = statuses.into_iter().flatten().filter_map(resized).collect();
        let mut patch = json!({ "status": { "observedGeneration": current } });
        if !statuses.is_empty() {
            patch["status"]["containerStatuses"] = statuses.into();
        }
        if let Err(error) = api.patch_status(pod, &patch) {
            debug!(?pod, %error, "Failed to update pod status");
        }
    }
}

/// Time at which a started pod has been active for `activeDeadlineSeconds`, in seconds since 1970.
fn deadline_of(pod: &Value) -> Option<i64> {
    let seconds = pod.pointer("/spec/activeDeadlineSeconds")?.as_i64()?;
    let started: Time = serde_json::from_value(pod.pointer("/status/startTime")?.clone()).ok()?;
    started.unix().checked_add(seconds)
}

/// `true` if the pod has a terminal phase; such a pod never runs again.
fn is_finished(pod: &Value) -> bool {
    matches!(field(pod, "/status/phase"), "Succeeded" | "Failed")
}
