//! Simulated nodes: pods start, become ready, crash when asked to, and stop.
//!
//! After KWOK's model: what a pod does follows from the pod itself and a few delays. Ask for failures by annotation
//! on the pod template, so that a Deployment can be made to fail, or by the image tag `broken`:
//!
//! | annotation | effect |
//! |---|---|
//! | `kube-sandbox/ready: never` | runs, and never becomes ready |
//! | `kube-sandbox/ready-delay: 5s` | becomes ready after this instead of the usual delay |
//! | `kube-sandbox/unready-after: 30s` | loses readiness so long after it became ready |
//! | `kube-sandbox/crash-after: 10s` | crashes so long after it started, again and again |
//! | `kube-sandbox/image-pull: fail` | never starts |

mod status;

use std::{collections::HashMap, sync::Arc, time::Duration};

use kcm_apiserver::{Object, Resource};
use kcm_clock::{Clock, Random};
use serde_json::{Value, json};
use tracing::{debug, warn};

use self::status::{Container, PodStatus};
use crate::{
    api::{Api, Change, field},
    timers::Timers,
};

/// Restarts of a crashing container are put off by this, doubled each time.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
/// And by no more than this.
const LAST_BACK_OFF: Duration = Duration::from_secs(300);

/// How fast the simulated nodes are.
#[derive(Debug, Clone, Copy)]
pub struct KubeletConfig {
    /// From being bound to being ready.
    pub pod_ready_delay: Duration,
    /// From being asked to stop to being gone, if the pod's grace period is not shorter.
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
    random: Arc<dyn Random>,
    /// What each bound pod is up to, by UID.
    pods: HashMap<String, Known>,
    timers: Timers<Due>,
    /// How many addresses were handed out.
    addresses: u32,
}

#[derive(Debug, Default)]
struct Known {
    address: u32,
    restarts: i32,
    stopping: bool,
}

#[derive(Debug)]
struct Due {
    uid: String,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Start,
    LoseReadiness,
    Crash,
    Restart,
    Stop,
}

impl Kubelet {
    pub(crate) fn new(config: KubeletConfig, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { config, random, pods: HashMap::new(), timers: Timers::new(clock), addresses: 0 }
    }

    /// Runs pods until the server is gone.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(Some(Resource::PODS));
        loop {
            tokio::select! {
                // What is known is dealt with before what is due, so that a pod that is gone is not started.
                biased;
                change = changes.next() => match change {
                    Some(change) => self.see(&change),
                    None => return,
                },
                due = self.timers.next() => self.act(&api, &due),
            }
        }
    }

    fn see(&mut self, change: &Change) {
        let (pod, uid) = (&change.object, change.object.uid());
        if change.gone {
            self.pods.remove(uid);
            return;
        }
        if field(pod.value(), "/spec/nodeName").is_empty() {
            return;
        }
        if !self.pods.contains_key(uid) {
            self.take_on(pod);
        }
        let Some(known) = self.pods.get_mut(uid) else { return };
        if pod.is_deleting() && !std::mem::replace(&mut known.stopping, true) {
            let grace = pod.value().pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
            let delay = self.config.pod_stop_delay.min(Duration::from_secs(grace.unwrap_or(0)));
            self.timers.add(delay, Due { uid: uid.to_owned(), step: Step::Stop });
        }
    }

    fn take_on(&mut self, pod: &Object) {
        self.addresses += 1;
        let known = Known { address: self.addresses, ..Known::default() };
        self.pods.insert(pod.uid().to_owned(), known);
        // One that runs already was started before this kubelet was, and is left as it is.
        if matches!(field(pod.value(), "/status/phase"), "" | "Pending") {
            let delay = annotated_duration(pod, "ready-delay").unwrap_or(self.config.pod_ready_delay);
            // A little apart, as real pods are; half of the delay would change what a rollout looks like.
            let delay = kcm_clock::jitter(&*self.random, delay, 0.2);
            self.timers.add(delay, Due { uid: pod.uid().to_owned(), step: Step::Start });
        }
    }

    fn act(&mut self, api: &Api, due: &Due) {
        // Gone in the meantime: nothing to do.
        let (Some(known), Some(pod)) = (self.pods.get(&due.uid), api.by_uid(&due.uid)) else { return };
        if due.step == Step::Stop {
            if let Err(error) = api.remove(&pod) {
                debug!(?pod, %error, "pod not removed");
            }
        } else if !known.stopping && !pod.is_deleting() && !has_ended(pod.value()) {
            self.advance(api, &pod, due);
        }
    }

    fn advance(&mut self, api: &Api, pod: &Object, due: &Due) {
        let Some(known) = self.pods.get_mut(&due.uid) else { return };
        let mut next = None;
        let container = match due.step {
            Step::Start | Step::Restart
                if pull_fails(pod.value()) || annotation(pod, "image-pull") == Some("fail") =>
            {
                Container::ImagePullBackOff
            }
            Step::Start | Step::Restart => {
                next = annotated_duration(pod, "crash-after").map(|delay| (delay, Step::Crash));
                if annotation(pod, "ready") == Some("never") {
                    Container::Running
                } else {
                    next = next.or_else(|| {
                        annotated_duration(pod, "unready-after").map(|d| (d, Step::LoseReadiness))
                    });
                    Container::Ready
                }
            }
            Step::LoseReadiness => Container::Running,
            Step::Crash => {
                let doublings = u32::try_from(known.restarts).unwrap_or(0).min(8);
                next = Some(((FIRST_BACK_OFF * 2_u32.pow(doublings)).min(LAST_BACK_OFF), Step::Restart));
                known.restarts += 1;
                Container::CrashLoopBackOff
            }
            Step::Stop => return,
        };
        let status =
            PodStatus { container, restarts: known.restarts, address: known.address, now: api.now() };
        let patch = json!({ "status": status.of(pod.value()) });
        if let Err(error) = api.patch_status(pod, &patch) {
            warn!(?pod, %error, "cannot report the pod's status");
            return;
        }
        if let Some((delay, step)) = next {
            self.timers.add(delay, Due { uid: due.uid.clone(), step });
        }
        if let Some((reason, message)) = container.complaint(pod.value()) {
            api.event(pod, "Warning", reason, &message, "kubelet");
        }
    }
}

/// Whoever says so: a pod that has ended never runs again.
fn has_ended(pod: &Value) -> bool {
    matches!(field(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The value of annotation `kube-sandbox/<name>`.
fn annotation<'a>(pod: &'a Object, name: &str) -> Option<&'a str> {
    pod.annotation(&format!("kube-sandbox/{name}"))
}

/// The same as a duration in seconds or milliseconds: `5s`, `1.5s`, `200ms`. Others are as if not there.
fn annotated_duration(pod: &Object, name: &str) -> Option<Duration> {
    parse_duration(annotation(pod, name)?)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s')?, 1.0),
    };
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * unit).ok()
}

fn pull_fails(pod: &Value) -> bool {
    let broken = |container: &Value| field(container, "/image").ends_with(":broken");
    pod.pointer("/spec/containers").and_then(Value::as_array).is_some_and(|all| all.iter().any(broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_in_seconds_or_milliseconds_is_read_and_anything_else_is_not() {
        assert_eq!(parse_duration("5s"), Some(Duration::from_secs(5)));
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("200ms"), Some(Duration::from_millis(200)));
        for text in ["", "5", "s", "-1s", "1h", "NaNs"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn image_with_the_tag_broken_cannot_be_pulled() {
        let pod = |image: &str| json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
        assert!(pull_fails(&pod("nginx:broken")));
        assert!(!pull_fails(&pod("broken")));
        assert!(!pull_fails(&pod("broken:1")));
    }
}
