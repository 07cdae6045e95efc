//! Times that pods take to become ready and to stop.

use std::{collections::HashMap, time::Duration};

use kcm_api::{Deployment, PodTemplate, condition_type::PROGRESSING};
use kcm_clock::Timestamp;
use kcm_deployment_util::annotations::REVISION;
use serde::Serialize;
use serde_json::Value;

use crate::{
    Snapshot,
    json::{condition, controller, list, number, text, time},
};

/// Time to readiness if no existing pod shows it.
const DEFAULT_READY_AFTER: Duration = Duration::from_secs(10);
/// Upstream's default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;
/// Resolution of the times in API objects, in seconds, for both ends of a span.
const RESOLUTION: f64 = 2.0;
/// Times above this multiple of the lower quartile, plus [`OUTLIER_OFFSET`] seconds, are no first readiness.
const OUTLIER_FACTOR: f64 = 3.0;
const OUTLIER_OFFSET: f64 = 30.0;

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
    /// Part of that time until all containers have started. `None` if no pod shows it.
    pub start_after_seconds: Option<f64>,
    /// Source of that time.
    pub ready_after_source: ReadyAfterSource,
    /// Template of the pods that the time was taken from.
    pub ready_after_template: Option<TemplateAge>,
    /// Number of pods that the time was taken from.
    pub ready_after_pods: usize,
    /// Number of ready pods that were not used: they have restarted, or were not ready for the first time.
    pub ready_after_ignored: usize,
    /// Time from the deletion of a pod to its removal.
    pub stop_after_seconds: f64,
    /// Source of that time.
    pub stop_after_source: StopAfterSource,
    /// Number of new pods that never become ready.
    pub unready: usize,
}

/// Source of the time to readiness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReadyAfterSource {
    /// Given by the caller.
    Given,
    /// Median of the existing pods that are ready for the first time and have not restarted.
    ExistingPods,
    /// Time from the creation of the newest pod to the end of the last rollout. An upper bound.
    LastRollout,
    /// No existing pod shows it.
    #[default]
    Assumed,
}

/// Template of the pods that the time to readiness was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TemplateAge {
    /// Template with the change.
    Same,
    /// Template before the change.
    Current,
    /// Template of an earlier revision.
    Older,
}

/// Source of the time to removal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StopAfterSource {
    /// Given by the caller.
    Given,
    /// Grace period of the pods, which is the longest time that they may take.
    #[default]
    GracePeriod,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            ready_after_seconds: DEFAULT_READY_AFTER.as_secs_f64(),
            start_after_seconds: None,
            ready_after_source: ReadyAfterSource::Assumed,
            ready_after_template: None,
            ready_after_pods: 0,
            ready_after_ignored: 0,
            stop_after_seconds: DEFAULT_GRACE as f64,
            stop_after_source: StopAfterSource::GracePeriod,
            unready: 0,
        }
    }
}

impl Timings {
    /// Returns the timings that `options` gives, and the others from the existing pods of the Deployment. `after` is the
    /// Deployment with the change.
    ///
    /// The time to stop is not visible in existing pods. The grace period is its upper bound.
    pub(crate) fn resolve(options: &TimingOptions, snapshot: &Snapshot, after: &Deployment) -> Self {
        let mut timings = match options.ready_after {
            Some(given) => Self {
                ready_after_seconds: given.as_secs_f64(),
                ready_after_source: ReadyAfterSource::Given,
                ..Self::default()
            },
            None => observed(snapshot, &after.spec.template),
        };
        let template = after.spec.template.to_value();
        let grace = number(&template, "/spec/terminationGracePeriodSeconds").unwrap_or(DEFAULT_GRACE);
        (timings.stop_after_seconds, timings.stop_after_source) = match options.stop_after {
            Some(given) => (given.as_secs_f64(), StopAfterSource::Given),
            None => (grace.max(0) as f64, StopAfterSource::GracePeriod),
        };
        timings.unready = options.unready;
        timings
    }

    pub(crate) fn ready_after(&self) -> Duration {
        Duration::try_from_secs_f64(self.ready_after_seconds).unwrap_or_default()
    }

    pub(crate) fn stop_after(&self) -> Duration {
        Duration::try_from_secs_f64(self.stop_after_seconds).unwrap_or_default()
    }

    /// Remaining time until a pod that is not ready becomes ready. `None` if it has been ready or has restarted, or takes
    /// longer than the time to readiness and the resolution of the times in objects. 0 within that resolution.
    pub(crate) fn remaining(&self, pod: &Value, now: Timestamp) -> Option<f64> {
        let since = |time: Timestamp| now.duration_since(time).as_secs_f64();
        let started = containers_started(pod);
        let lost = condition(pod, "Ready").and_then(|ready| time(ready, "/lastTransitionTime"));
        let was_ready = started.zip(lost).is_some_and(|(started, lost)| lost > started);
        if was_ready || has_restarted(pod) {
            return None;
        }
        let left = match (started, self.start_after_seconds) {
            (Some(started), Some(start_after)) => self.ready_after_seconds - start_after - since(started),
            _ => self.ready_after_seconds - placed(pod).map_or(0.0, since),
        };
        (left > -RESOLUTION).then_some(left.max(0.0))
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

fn has_restarted(pod: &Value) -> bool {
    let statuses = ["/status/containerStatuses", "/status/initContainerStatuses"];
    let mut statuses = statuses.iter().flat_map(|pointer| list(pod, pointer));
    statuses.any(|status| number(status, "/restartCount").is_some_and(|count| count > 0))
}

/// Time at which the last container has started. `None` if one does not run.
fn containers_started(pod: &Value) -> Option<Timestamp> {
    let statuses = list(pod, "/status/containerStatuses").iter();
    let started: Option<Vec<Timestamp>> =
        statuses.map(|status| time(status, "/state/running/startedAt")).collect();
    started?.into_iter().max()
}

/// Time at which the pod was bound to its node. New pods do not wait for that in a preview.
fn placed(pod: &Value) -> Option<Timestamp> {
    let scheduled = condition(pod, "PodScheduled").filter(|scheduled| scheduled["status"] == "True");
    let scheduled = scheduled.and_then(|scheduled| time(scheduled, "/lastTransitionTime"));
    time(pod, "/metadata/creationTimestamp").max(scheduled)
}

/// `true` if a pod is ready as soon as its containers run.
fn has_no_probes(pod: &Value) -> bool {
    let probed = |container: &Value| {
        ["readinessProbe", "startupProbe"].iter().any(|probe| container.get(probe).is_some())
    };
    let sidecars = list(pod, "/spec/initContainers").iter();
    let sidecars = sidecars.filter(|container| container["restartPolicy"] == "Always");
    let containers = list(pod, "/spec/containers");
    let is_known = containers.iter().any(|container| container["image"].is_string());
    is_known && list(pod, "/spec/readinessGates").is_empty() && !containers.iter().chain(sidecars).any(probed)
}

/// First readiness of a pod, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    /// Time until the containers have started.
    start: Option<f64>,
    /// Further time until the pod is ready.
    ready: f64,
}

/// Returns the first readiness of a ready pod. `None` if its times do not show it: a container has restarted, or the pod was
/// available before, at `completed`, the end of the last rollout.
fn sample(pod: &Value, completed: Option<Timestamp>) -> Option<Sample> {
    let (placed, ready) = (placed(pod)?, ready_since(pod)?);
    let created = time(pod, "/metadata/creationTimestamp")?;
    let was_available = completed.is_some_and(|completed| {
        created <= completed && ready.duration_since(completed).as_secs_f64() > RESOLUTION / 2.0
    });
    if has_restarted(pod) || was_available || ready < placed {
        return None;
    }
    let Some(started) = containers_started(pod).filter(|started| *started <= ready) else {
        return Some(Sample { start: None, ready: ready.duration_since(placed).as_secs_f64() });
    };
    let start = started.duration_since(placed).as_secs_f64().max(0.0);
    let after = ready.duration_since(started).as_secs_f64();
    let ready = if has_no_probes(pod) && after > RESOLUTION { 0.0 } else { after };
    Some(Sample { start: Some(start), ready })
}

/// Timings of the existing pods.
fn observed(snapshot: &Snapshot, template: &PodTemplate) -> Timings {
    let sets = snapshot.own_replica_sets();
    let revision = |set: &Value| {
        set["metadata"]["annotations"][REVISION].as_str().and_then(|revision| revision.parse::<i64>().ok())
    };
    let newest = sets.iter().filter_map(|set| revision(set)).max();
    let has_template = |set: &Value| {
        serde_json::from_value::<PodTemplate>(set["spec"]["template"].clone())
            .is_ok_and(|other| other.equal_ignore_hash(template))
    };
    // Newest ReplicaSet, and resulting template.
    let kinds: HashMap<&str, (bool, bool)> = sets
        .iter()
        .map(|set| (text(set, "/metadata/uid"), (revision(set) == newest, has_template(set))))
        .collect();
    let deployment = snapshot.deployment.as_ref();
    let completed = deployment.and_then(last_completed);
    let mut samples: [Vec<Sample>; 3] = Default::default();
    let (mut ignored, mut last_created) = (0, None);
    for pod in snapshot.split_pods().0 {
        let (is_newest, is_same) =
            controller(pod).and_then(|uid| kinds.get(uid)).copied().unwrap_or_default();
        let created = time(pod, "/metadata/creationTimestamp");
        if is_newest && created <= completed {
            last_created = last_created.max(created);
        }
        let kind = if is_same { 0 } else { usize::from(!is_newest) + 1 };
        match sample(pod, completed.filter(|_| is_newest)) {
            Some(sample) => samples.get_mut(kind).into_iter().for_each(|samples| samples.push(sample)),
            None => ignored += usize::from(ready_since(pod).is_some()),
        }
    }
    let min_ready =
        deployment.and_then(|deployment| number(deployment, "/spec/minReadySeconds")).unwrap_or(0) as f64;
    let last_rollout = completed
        .zip(last_created)
        .map(|(completed, created)| (completed.duration_since(created).as_secs_f64() - min_ready).max(0.0));
    let [same, current, older] = samples.map(|samples| Observed::of(&samples));
    let of = |observed: Option<Observed>, age| observed.map(|observed| observed.timings(age));
    let timings = of(same, TemplateAge::Same)
        .or_else(|| of(current, TemplateAge::Current))
        .or_else(|| {
            Some(Timings {
                ready_after_seconds: last_rollout?,
                ready_after_source: ReadyAfterSource::LastRollout,
                ..Timings::default()
            })
        })
        .or_else(|| of(older, TemplateAge::Older))
        .unwrap_or_default();
    Timings { ready_after_ignored: timings.ready_after_ignored + ignored, ..timings }
}

/// End of the last rollout, if none is in progress. All of its pods were available then.
fn last_completed(deployment: &Value) -> Option<Timestamp> {
    let progressing = condition(deployment, PROGRESSING)?;
    time(progressing, "/lastUpdateTime").filter(|_| progressing["reason"] == "NewReplicaSetAvailable")
}

/// Medians of samples.
#[derive(Debug, Clone, Copy)]
struct Observed {
    start: Option<f64>,
    ready: f64,
    pods: usize,
    ignored: usize,
}

impl Observed {
    /// Medians without the outliers: a pod that became ready far later than its siblings was ready before.
    fn of(samples: &[Sample]) -> Option<Self> {
        let mut ready: Vec<f64> = samples.iter().map(|sample| sample.ready).collect();
        ready.sort_unstable_by(f64::total_cmp);
        let quartile = ready.get(ready.len().checked_sub(1)? / 4)?;
        let longest = quartile * OUTLIER_FACTOR + OUTLIER_OFFSET;
        let used: Vec<&Sample> = samples.iter().filter(|sample| sample.ready <= longest).collect();
        let start = median(used.iter().filter_map(|sample| sample.start).collect());
        let ready = median(used.iter().map(|sample| sample.ready).collect())?;
        Some(Self { start, ready, pods: used.len(), ignored: samples.len() - used.len() })
    }

    fn timings(self, age: TemplateAge) -> Timings {
        Timings {
            ready_after_seconds: self.start.unwrap_or(0.0) + self.ready,
            start_after_seconds: self.start,
            ready_after_source: ReadyAfterSource::ExistingPods,
            ready_after_template: Some(age),
            ready_after_pods: self.pods,
            ready_after_ignored: self.ignored,
            ..Timings::default()
        }
    }
}

fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests;
