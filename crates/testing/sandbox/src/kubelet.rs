//! Simulated kubelets: start the pods of the simulated nodes, make them ready, crash and stop them.
//!
//! The model follows KWOK: the behaviour of a pod depends on the pod and on a few delays. Annotations on the pod
//! template simulate failures, and so do the image tags in [`MISSING_IMAGE_TAGS`]:
//!
//! | annotation | effect |
//! |---|---|
//! | `kube-sandbox/ready: never` | the pod runs and never becomes ready |
//! | `kube-sandbox/ready-delay: 5s` | time until the pod is ready, instead of the default |
//! | `kube-sandbox/stop-delay: 5s` | time from deletion to removal, instead of the default |
//! | `kube-sandbox/unready-after: 30s` | the pod becomes unready this long after it became ready |
//! | `kube-sandbox/crash-after: 10s` | the container crashes this long after each start |
//! | `kube-sandbox/image-pull: fail` | the image cannot be pulled, the container never starts |

mod status;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use kcm_api::{GoDuration, Time};
use kcm_apiserver::{Object, Resource};
use kcm_clock::{Clock, Random};
use serde_json::{Value, json};
use tracing::{debug, warn};

use self::status::{ContainerState, PodStatus};
use crate::{
    api::{Api, Change, field},
    timers::Timers,
};

/// First delay before a crashed container is restarted; doubled after each crash.
const INITIAL_BACK_OFF: Duration = Duration::from_secs(10);
/// Maximum delay before a crashed container is restarted.
const MAX_BACK_OFF: Duration = Duration::from_secs(300);

/// Image tags that cannot be pulled. Test suites use them for images that must not exist.
pub const MISSING_IMAGE_TAGS: [&str; 3] = ["broken", "404", "does-not-exist"];

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
    timers: Timers<Timer>,
    /// Number of pod addresses assigned.
    addresses: u32,
}

#[derive(Debug, Default)]
struct PodState {
    address: u32,
    restarts: i32,
    stopping: bool,
    /// End of the pod's active deadline for which a timer exists, in seconds since 1970.
    deadline: Option<i64>,
    /// Time of the last start of the containers.
    started: Option<Time>,
}

#[derive(Debug)]
struct Timer {
    uid: String,
    transition: Transition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transition {
    Start,
    LoseReadiness,
    Crash,
    Restart,
    ExceedDeadline,
    Stop,
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
            return;
        }
        if !self.nodes.contains(field(pod.value(), "/spec/nodeName")) {
            return;
        }
        if !self.pods.contains_key(uid) {
            self.add_pod(pod);
        }
        let Some(state) = self.pods.get_mut(uid) else { return };
        if pod.is_deleting() && !std::mem::replace(&mut state.stopping, true) {
            let grace = pod.value().pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
            let delay = annotated_duration(pod, "stop-delay").unwrap_or(self.config.pod_stop_delay);
            let delay = delay.min(Duration::from_secs(grace.unwrap_or(0)));
            self.timers.add(delay, Timer { uid: uid.to_owned(), transition: Transition::Stop });
        } else {
            observe_generation(api, pod);
            let deadline = deadline_of(pod.value());
            if let Some(deadline) = deadline.filter(|deadline| state.deadline != Some(*deadline)) {
                state.deadline = Some(deadline);
                let left = deadline.saturating_sub(api.now().unix());
                let timer = Timer { uid: uid.to_owned(), transition: Transition::ExceedDeadline };
                self.timers.add(Duration::from_secs(u64::try_from(left).unwrap_or(0)), timer);
            }
        }
    }

    fn add_pod(&mut self, pod: &Object) {
        self.addresses += 1;
        let state = PodState { address: self.addresses, ..PodState::default() };
        self.pods.insert(pod.uid().to_owned(), state);
        // A pod that is already running is left unchanged.
        if matches!(field(pod.value(), "/status/phase"), "" | "Pending") {
            let delay = annotated_duration(pod, "ready-delay").unwrap_or(self.config.pod_ready_delay);
            // A jitter of 20% separates the pods. More would change the course of a rollout.
            let delay = kcm_clock::jitter(&*self.random, delay, 0.2);
            self.timers.add(delay, Timer { uid: pod.uid().to_owned(), transition: Transition::Start });
        }
    }

    fn handle_timer(&mut self, api: &Api, timer: &Timer) {
        // The pod may have been deleted.
        let (Some(state), Some(pod)) = (self.pods.get(&timer.uid), api.by_uid(&timer.uid)) else { return };
        if timer.transition == Transition::Stop {
            if let Err(error) = api.remove(&pod) {
                debug!(?pod, %error, "Failed to remove pod");
            }
        } else if !state.stopping && !pod.is_deleting() && !is_finished(pod.value()) {
            self.advance(api, &pod, timer);
        }
    }

    fn advance(&mut self, api: &Api, pod: &Object, timer: &Timer) {
        let Some(state) = self.pods.get_mut(&timer.uid) else { return };
        let mut next = None;
        let container = match timer.transition {
            Transition::Start | Transition::Restart
                if pull_fails(pod.value(), &self.missing_image_tags)
                    || annotation(pod, "image-pull") == Some("fail") =>
            {
                ContainerState::ImagePullBackOff
            }
            Transition::Start | Transition::Restart => {
                state.started = Some(api.now());
                next = annotated_duration(pod, "crash-after").map(|delay| (delay, Transition::Crash));
                if annotation(pod, "ready") == Some("never") {
                    ContainerState::Running
                } else {
                    next = next.or_else(|| {
                        annotated_duration(pod, "unready-after").map(|d| (d, Transition::LoseReadiness))
                    });
                    ContainerState::Ready
                }
            }
            Transition::LoseReadiness => ContainerState::Running,
            // The deadline may have been changed since the timer was set.
            Transition::ExceedDeadline
                if deadline_of(pod.value()).is_some_and(|end| end <= api.now().unix()) =>
            {
                ContainerState::DeadlineExceeded
            }
            Transition::ExceedDeadline => return,
            Transition::Crash => {
                let doublings = u32::try_from(state.restarts).unwrap_or(0).min(8);
                next =
                    Some(((INITIAL_BACK_OFF * 2_u32.pow(doublings)).min(MAX_BACK_OFF), Transition::Restart));
                state.restarts += 1;
                ContainerState::CrashLoopBackOff
            }
            Transition::Stop => return,
        };
        let now = api.now();
        let status = PodStatus {
            container,
            restarts: state.restarts,
            address: state.address,
            started: state.started.unwrap_or(now),
            now,
        };
        let patch = json!({ "status": status.of(pod.value()) });
        if let Err(error) = api.patch_status(pod, &patch) {
            warn!(?pod, %error, "Failed to update pod status");
            return;
        }
        if let Some((delay, transition)) = next {
            self.timers.add(delay, Timer { uid: timer.uid.clone(), transition });
        }
        if let Some((reason, message)) = container.warning_event(pod.value()) {
            api.event(pod, "Warning", reason, &message, "kubelet");
        }
    }
}

/// Reports the generation of a pod that has changed since its start.
fn observe_generation(api: &Api, pod: &Object) {
    let generation = |path| pod.value().pointer(path).and_then(Value::as_i64);
    let (current, observed) = (generation("/metadata/generation"), generation("/status/observedGeneration"));
    if observed.is_some_and(|observed| Some(observed) < current) {
        let patch = json!({ "status": { "observedGeneration": current } });
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

/// Value of the annotation `kube-sandbox/<name>`.
fn annotation<'a>(pod: &'a Object, name: &str) -> Option<&'a str> {
    pod.annotation(&format!("kube-sandbox/{name}"))
}

/// Value of the annotation as a duration such as `5s`, `1.5s` or `200ms`. Invalid and negative values are ignored.
fn annotated_duration(pod: &Object, name: &str) -> Option<Duration> {
    GoDuration::parse(annotation(pod, name)?).ok()?.to_std()
}

/// `true` if a container's image has one of `missing_tags`.
fn pull_fails(pod: &Value, missing_tags: &[String]) -> bool {
    let broken = |container: &Value| {
        let tag = field(container, "/image").rsplit_once(':').map(|(_, tag)| tag);
        tag.is_some_and(|tag| missing_tags.iter().any(|missing| missing == tag))
    };
    pod.pointer("/spec/containers").and_then(Value::as_array).is_some_and(|all| all.iter().any(broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_image_tags_fail_to_pull() {
        let tags = MISSING_IMAGE_TAGS.map(str::to_owned);
        let fails = |image: &str| {
            let pod = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
            pull_fails(&pod, &tags)
        };
        for image in ["nginx:broken", "webserver:404", "localhost:5000/a/b:does-not-exist"] {
            assert!(fails(image), "{image}");
        }
        for image in ["broken", "broken:1", "nginx:1.404", "localhost:404/nginx"] {
            assert!(!fails(image), "{image}");
        }
    }
}
