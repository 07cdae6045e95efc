//! Times that pods take to become ready and to stop.

use std::time::Duration;

use kcm_clock::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::json::{condition, list, number, text, time};

/// Time to readiness if no existing pod shows it.
const DEFAULT_READY_AFTER: Duration = Duration::from_secs(10);
/// Upstream's default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;

/// Pod timings requested by the caller. `None` takes them from the existing pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimingOptions {
    /// Time from the creation of a pod to its readiness.
    pub ready_after: Option<Duration>,
    /// Time from the deletion of a pod to its removal. A shorter grace period takes precedence.
    pub stop_after: Option<Duration>,
    /// Number of new pods that never become ready.
    pub unready: usize,
}

/// Pod timings of a preview.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timings {
    /// Time from the creation of a pod to its readiness.
    pub ready_after_seconds: f64,
    /// Source of that time.
    pub ready_after_source: ReadyAfterSource,
    /// Time from the deletion of a pod to its removal.
    pub stop_after_seconds: f64,
    /// Source of that time.
    pub stop_after_source: StopAfterSource,
    /// Number of new pods that never become ready.
    pub unready: usize,
}

/// Source of the time to readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReadyAfterSource {
    /// Given by the caller.
    Given,
    /// Median of the existing pods that are ready and have not restarted.
    ExistingPods,
    /// No existing pod shows it.
    Assumed,
}

/// Source of the time to removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StopAfterSource {
    /// Given by the caller.
    Given,
    /// Grace period of the pods, which is the longest time that they may take.
    GracePeriod,
}

impl Timings {
    /// Returns the timings that `options` gives, and the others from the existing `pods` of the Deployment.
    ///
    /// The time to stop is not visible in existing pods. The grace period of `template` is its upper bound.
    pub(crate) fn resolve(options: &TimingOptions, pods: &[&Value], template: Option<&Value>) -> Self {
        let observed = || median(pods.iter().filter_map(|pod| time_to_ready(pod)).collect());
        let (ready_after, ready_after_source) = match options.ready_after {
            Some(given) => (given, ReadyAfterSource::Given),
            None => observed().map_or((DEFAULT_READY_AFTER, ReadyAfterSource::Assumed), |t| {
                (t, ReadyAfterSource::ExistingPods)
            }),
        };
        let grace = || {
            let grace = template.and_then(|template| number(template, "/spec/terminationGracePeriodSeconds"));
            Duration::from_secs(u64::try_from(grace.unwrap_or(DEFAULT_GRACE)).unwrap_or(0))
        };
        let (stop_after, stop_after_source) = match options.stop_after {
            Some(given) => (given, StopAfterSource::Given),
            None => (grace(), StopAfterSource::GracePeriod),
        };
        Self {
            ready_after_seconds: ready_after.as_secs_f64(),
            ready_after_source,
            stop_after_seconds: stop_after.as_secs_f64(),
            stop_after_source,
            unready: options.unready,
        }
    }

    pub(crate) fn ready_after(&self) -> Duration {
        Duration::try_from_secs_f64(self.ready_after_seconds).unwrap_or_default()
    }

    pub(crate) fn stop_after(&self) -> Duration {
        Duration::try_from_secs_f64(self.stop_after_seconds).unwrap_or_default()
    }
}

/// Start of the readiness of a pod. `None` if it is not ready.
pub(crate) fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready["status"] == "True")?;
    time(ready, "/lastTransitionTime")
}

/// `true` if the pod has a terminal phase.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Time from creation to readiness of a pod that has not restarted.
fn time_to_ready(pod: &Value) -> Option<Duration> {
    if list(pod, "/status/containerStatuses").iter().any(|status| status["restartCount"] != 0) {
        return None;
    }
    let since = ready_since(pod)?;
    Duration::try_from(since.duration_since(time(pod, "/metadata/creationTimestamp")?)).ok()
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ready_after: u8, restarts: u8) -> Value {
        json!({
            "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" },
            "status": {
                "conditions": [{
                    "type": "Ready", "status": "True",
                    "lastTransitionTime": format!("2026-01-01T00:00:{ready_after:02}Z"),
                }],
                "containerStatuses": [{ "restartCount": restarts }],
            },
        })
    }

    #[test]
    fn median_of_pods_without_restarts() {
        let pods = [pod(4, 0), pod(20, 0), pod(6, 0), pod(59, 1)];
        let timings = Timings::resolve(&TimingOptions::default(), &pods.iter().collect::<Vec<_>>(), None);
        assert_eq!(
            (timings.ready_after(), timings.ready_after_source),
            (Duration::from_secs(6), ReadyAfterSource::ExistingPods)
        );
        assert_eq!(
            (timings.stop_after(), timings.stop_after_source),
            (Duration::from_secs(30), StopAfterSource::GracePeriod)
        );
    }

    #[test]
    fn given_timings_take_precedence() {
        let options = TimingOptions {
            ready_after: Some(Duration::from_secs(3)),
            stop_after: Some(Duration::from_secs(1)),
            unready: 2,
        };
        let timings = Timings::resolve(&options, &[&pod(4, 0)], None);
        assert_eq!((timings.ready_after_seconds, timings.stop_after_seconds, timings.unready), (3.0, 1.0, 2));
    }
}
