//! Course of a rollout, computed from the observed objects.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use kcm_api::{Deployment, ReplicaSet, condition_type::PROGRESSING};
use kcm_apiserver::{Object, Resource};
use kcm_clock::Timestamp;
use kcm_deployment_util::{replica_sets::ReplicaSetSplit, rollout, sort};
use serde_json::Value;

use crate::{
    cluster::{ControllerWrite, LIMIT, Run, RunEnd, is_complete},
    refusal::REPLICA_SET_CREATE_ERROR,
    report::{Peak, Step, StepReplicaSet, WriteGroup, WriteTotal},
    timings::{is_finished, ready_since},
    usage::{Amounts, PodResources, add, maximize},
};

/// Changes within this time of a step belong to it.
const STEP: Duration = Duration::from_secs(1);

/// Reason of the condition `Progressing` of a failed rollout.
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
/// Reasons of that condition with which the progress deadline does not apply: the rollout is complete or paused, or its
/// ReplicaSet cannot be created.
const WITHOUT_DEADLINE: [&str; 3] = ["NewReplicaSetAvailable", "DeploymentPaused", REPLICA_SET_CREATE_ERROR];

/// Course of a run.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) before: Totals,
    pub(crate) steps: Vec<Step>,
    pub(crate) writes: Vec<WriteGroup>,
    pub(crate) write_totals: Vec<WriteTotal>,
    pub(crate) most_pods: Peak,
    pub(crate) most_with_terminating: Peak,
    pub(crate) fewest_available: Peak,
    /// Number of available pods after each change of it.
    pub(crate) availability: Vec<(f64, i32)>,
    pub(crate) pods_created: usize,
    pub(crate) pods_deleted: usize,
    pub(crate) completed_at: Option<f64>,
    pub(crate) settled_at: f64,
    /// Time of the last change of the number of pods.
    pub(crate) last_pod_change: f64,
    pub(crate) deadline_exceeded_at: Option<f64>,
    /// Longest time without progress until completion.
    pub(crate) longest_wait: f64,
    /// Requests and limits of the pods before the change, and at their peak.
    pub(crate) resources_before: PodResources,
    pub(crate) resources_peak: PodResources,
    /// ReplicaSets and Deployment at the end.
    pub(crate) deployment: Deployment,
    pub(crate) replica_sets: Vec<Arc<ReplicaSet>>,
    pub(crate) end: RunEnd,
}

/// Numbers of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) pods: i32,
    pub(crate) ready: i32,
    pub(crate) available: i32,
    pub(crate) terminating: i32,
}

/// Pod at a time.
#[derive(Debug)]
struct PodState {
    /// Index of the ReplicaSet.
    set: usize,
    terminating: bool,
    finished: bool,
    /// Time of readiness in milliseconds.
    ready_since: Option<i64>,
    resources: Arc<PodResources>,
}

/// ReplicaSet at a time.
#[derive(Debug, Default)]
struct SetState {
    uid: String,
    /// Name, also after the deletion.
    name: String,
    /// `None` after the deletion.
    set: Option<Arc<ReplicaSet>>,
    /// Resources of a pod of the template.
    resources: PodResources,
}

/// State while the events are read.
struct Reader<'a> {
    deployment_name: &'a str,
    limit_ranges: &'a [Value],
    min_ready: i64,
    pods: HashMap<String, PodState>,
    /// Indexes of ReplicaSets by names of pods.
    owners: HashMap<String, usize>,
    sets: Vec<SetState>,
    deployment: Deployment,
    resources: PodResources,
}

impl History {
    /// Reads `run` of the Deployment `name`.
    pub(crate) fn read(run: &Run, name: &str, limit_ranges: &[Value]) -> Self {
        let mut reader = Reader::new(name, limit_ranges);
        for object in &run.initial {
            reader.apply(object, false);
        }
        let before = reader.sample(run.changed_at).totals;
        let resources_before = reader.resources.clone();
        let mut history = Self {
            before,
            steps: Vec::new(),
            writes: Vec::new(),
            write_totals: totals(&run.requests),
            most_pods: Peak { pods: before.pods, seconds: 0.0 },
            most_with_terminating: Peak { pods: before.pods + before.terminating, seconds: 0.0 },
            fewest_available: Peak { pods: before.available, seconds: 0.0 },
            availability: vec![(0.0, before.available)],
            pods_created: 0,
            pods_deleted: 0,
            completed_at: None,
            settled_at: 0.0,
            last_pod_change: 0.0,
            deadline_exceeded_at: None,
            longest_wait: 0.0,
            resources_peak: resources_before.clone(),
            resources_before,
            deployment: Deployment::default(),
            replica_sets: Vec::new(),
            end: run.end,
        };
        history.read_events(run, &mut reader);
        history.writes = writes(&run.requests, &reader);
        history.deployment = reader.deployment;
        history.replica_sets = reader.sets.into_iter().filter_map(|state| state.set).collect();
        sort::by_creation(&mut history.replica_sets);
        history.mark_new();
        if history.end == RunEnd::Stuck && history.deadline_exceeded_at.is_none() {
            history.deadline_exceeded_at = later_deadline(&history.deployment, run.changed_at);
        }
        history
    }

    fn read_events(&mut self, run: &Run, reader: &mut Reader<'_>) {
        let state = reader.sample(run.changed_at);
        let desired_before = desired(&state);
        let mut samples = vec![Sample { at: Duration::ZERO, state }];
        let mut last_progress = 0.0;
        let mut totals = self.before;
        for event in &run.events {
            let (object, at) = (&event.object, event.at.as_secs_f64());
            let resource = object.resource();
            if resource == Resource::EVENTS {
                continue;
            }
            let is_new_pod = resource == Resource::PODS && !reader.pods.contains_key(object.uid());
            let was_terminating = reader.pods.get(object.uid()).is_some_and(|pod| pod.terminating);
            let progress_before = progress_time(&reader.deployment);
            if !reader.apply(object, event.deleted) {
                continue;
            }
            self.settled_at = at;
            if resource == Resource::PODS {
                self.pods_created += usize::from(is_new_pod && !event.deleted);
                let is_terminating = event.deleted || object.is_deleting();
                self.pods_deleted += usize::from(is_terminating && !was_terminating);
            }
            if resource == Resource::DEPLOYMENTS {
                if progress_time(&reader.deployment) != progress_before && self.completed_at.is_none() {
                    let exceeded = progressing_reason(&reader.deployment) == TIMED_OUT;
                    if exceeded {
                        self.deadline_exceeded_at.get_or_insert(at);
                    }
                    self.longest_wait = self.longest_wait.max(at - last_progress);
                    last_progress = at;
                }
                if self.completed_at.is_none() && is_complete(&reader.deployment) {
                    self.completed_at = Some(at);
                }
            }
            let now = run.changed_at.saturating_add(jiff::SignedDuration::from_nanos(
                i64::try_from(event.at.as_nanos()).unwrap_or(i64::MAX),
            ));
            let now = now.unwrap_or(run.changed_at);
            let state = reader.sample(now);
            let new = state.totals;
            if new != totals {
                self.record(at, &new, &totals);
                totals = new;
            }
            // Pods that were missing before the change are no part of it.
            let is_scaled = desired(&state) != desired_before;
            let resources =
                if is_scaled { reader.requested_resources(&state) } else { reader.resources.clone() };
            maximize(&mut self.resources_peak.requests, &resources.requests);
            maximize(&mut self.resources_peak.limits, &resources.limits);
            // The first sample is the state before the change. It is a separate step.
            let is_first = samples.len() == 1;
            match samples.last_mut() {
                Some(last) if last.state == state => {}
                Some(last) if !is_first && event.at < last.at + STEP => last.state = state,
                _ => samples.push(Sample { at: event.at, state }),
            }
        }
        self.steps = samples.into_iter().map(Sample::into_step).collect();
    }

    fn record(&mut self, at: f64, new: &Totals, old: &Totals) {
        let with_terminating = new.pods + new.terminating;
        for (peak, pods) in
            [(&mut self.most_pods, new.pods), (&mut self.most_with_terminating, with_terminating)]
        {
            if pods > peak.pods {
                *peak = Peak { pods, seconds: at };
            }
        }
        if new.available < self.fewest_available.pods {
            self.fewest_available = Peak { pods: new.available, seconds: at };
        }
        if new.available != old.available {
            self.availability.push((at, new.available));
        }
        if new.pods != old.pods {
            self.last_pod_change = at;
        }
    }

    /// New ReplicaSet at the end.
    pub(crate) fn new_replica_set(&self) -> Option<Arc<ReplicaSet>> {
        ReplicaSetSplit::find(&self.deployment, &self.replica_sets).new
    }

    fn mark_new(&mut self) {
        let Some(new) = self.new_replica_set() else { return };
        let sets = self.steps.iter_mut().flat_map(|step| &mut step.replica_sets);
        for set in sets {
            set.is_new = *set.name == *new.metadata.name;
        }
    }
}

/// Numbers at a time.
struct Sample {
    at: Duration,
    state: State,
}

#[derive(PartialEq)]
struct State {
    totals: Totals,
    sets: Vec<StepReplicaSet>,
}

impl Sample {
    fn into_step(self) -> Step {
        let State { totals, sets } = self.state;
        Step {
            seconds: self.at.as_secs_f64(),
            pods: totals.pods,
            available: totals.available,
            terminating: totals.terminating,
            replica_sets: sets,
        }
    }
}

impl<'a> Reader<'a> {
    fn new(deployment_name: &'a str, limit_ranges: &'a [Value]) -> Self {
        Self {
            deployment_name,
            limit_ranges,
            min_ready: 0,
            pods: HashMap::new(),
            owners: HashMap::new(),
            sets: Vec::new(),
            deployment: Deployment::default(),
            resources: PodResources::default(),
        }
    }

    /// Applies an event. Returns `false` if it does not concern the Deployment.
    fn apply(&mut self, object: &Object, deleted: bool) -> bool {
        match object.resource() {
            Resource::DEPLOYMENTS if object.name() == self.deployment_name => {
                self.deployment = serde_json::from_value(object.value().clone()).unwrap_or_default();
                self.min_ready = i64::from(self.deployment.spec.min_ready_seconds);
                true
            }
            Resource::REPLICA_SETS => {
                let set = (!deleted).then(|| serde_json::from_value(object.value().clone()));
                let set = set.map(|set| Arc::new(set.unwrap_or_default()));
                let resources = PodResources::of(&object.value()["spec"]["template"], self.limit_ranges);
                let (uid, name) = (object.uid().to_owned(), object.name().to_owned());
                let index = self.set_index(&uid);
                self.sets.splice(index..=index, [SetState { uid, name, set, resources }]);
                true
            }
            Resource::PODS => self.apply_pod(object, deleted),
            _ => false,
        }
    }

    /// Index of the ReplicaSet with this UID.
    fn set_index(&mut self, uid: &str) -> usize {
        self.sets.iter().position(|state| state.uid == uid).unwrap_or_else(|| {
            self.sets.push(SetState { uid: uid.to_owned(), ..SetState::default() });
            self.sets.len() - 1
        })
    }

    fn apply_pod(&mut self, object: &Object, deleted: bool) -> bool {
        let pod = object.value();
        let Some(owner) = crate::json::controller(pod) else { return false };
        let set = self.set_index(owner);
        self.owners.insert(object.name().to_owned(), set);
        let old = self.pods.remove(object.uid());
        if let Some(old) = &old {
            self.count(old, -1.0);
        }
        if deleted {
            return true;
        }
        // Resources of a pod do not change.
        let resources = || Arc::new(PodResources::of(pod, self.limit_ranges));
        let state = PodState {
            set,
            terminating: object.is_deleting(),
            finished: is_finished(pod),
            ready_since: ready_since(pod).map(Timestamp::as_millisecond),
            resources: old.map_or_else(resources, |old| old.resources),
        };
        self.count(&state, 1.0);
        self.pods.insert(object.uid().to_owned(), state);
        true
    }

    /// Adds the resources of a pod to the sum. A finished pod uses none.
    fn count(&mut self, pod: &PodState, factor: f64) {
        if !pod.finished {
            add(&mut self.resources.requests, &pod.resources.requests, factor);
            add(&mut self.resources.requests, &one_pod(), factor);
            add(&mut self.resources.limits, &pod.resources.limits, factor);
        }
    }

    /// Adds a pod to `totals`. `now` is in milliseconds.
    fn add_pod(&self, totals: &mut Totals, pod: &PodState, now: i64) {
        if pod.finished {
            return;
        }
        if pod.terminating {
            totals.terminating += 1;
            return;
        }
        totals.pods += 1;
        if let Some(since) = pod.ready_since {
            totals.ready += 1;
            totals.available += i32::from(now - since >= self.min_ready * 1000);
        }
    }

    /// Resources of the pods, and of those that the ReplicaSets are to create. A quota may refuse the latter.
    fn requested_resources(&self, state: &State) -> PodResources {
        let mut resources = self.resources.clone();
        for set in &state.sets {
            let missing = set.desired - set.pods;
            if missing > 0
                && let Some(of) = self.sets.iter().find(|of| of.name == set.name)
            {
                let missing = f64::from(missing);
                add(&mut resources.requests, &of.resources.requests, missing);
                add(&mut resources.requests, &one_pod(), missing);
                add(&mut resources.limits, &of.resources.limits, missing);
            }
        }
        resources
    }

    fn sample(&self, now: Timestamp) -> State {
        let now = now.as_millisecond();
        let mut by_set = vec![Totals::default(); self.sets.len()];
        let mut totals = Totals::default();
        for pod in self.pods.values() {
            if let Some(of_set) = by_set.get_mut(pod.set) {
                self.add_pod(of_set, pod, now);
            }
            self.add_pod(&mut totals, pod, now);
        }
        let mut sets: Vec<(&Arc<ReplicaSet>, Totals)> = self
            .sets
            .iter()
            .zip(by_set)
            .filter_map(|(state, pods)| Some((state.set.as_ref()?, pods)))
            .collect();
        sets.sort_by(|(a, _), (b, _)| sort::creation_order(a, b));
        let sets = sets.into_iter().filter_map(|(set, pods)| {
            let step = StepReplicaSet {
                name: set.metadata.name.to_string(),
                is_new: false,
                desired: set.replicas(),
                pods: pods.pods,
                ready: pods.ready,
                available: pods.available,
            };
            (step.desired > 0 || step.pods > 0 || pods.terminating > 0).then_some(step)
        });
        State { totals, sets: sets.collect() }
    }
}

/// Desired number of pods of each ReplicaSet.
fn desired(state: &State) -> Vec<(String, i32)> {
    state.sets.iter().map(|set| (set.name.clone(), set.desired)).collect()
}

/// Number of pods, as an amount of a quota.
fn one_pod() -> Amounts {
    Amounts::from([("pods".to_owned(), 1.0)])
}

fn progressing_reason(deployment: &Deployment) -> &str {
    deployment.condition(PROGRESSING).map_or("", |condition| &condition.reason)
}

/// Time, in seconds after `changed_at`, at which a stuck rollout fails its deadline after the end of the run.
fn later_deadline(deployment: &Deployment, changed_at: Timestamp) -> Option<f64> {
    let seconds = f64::from(rollout::progress_deadline(deployment)?);
    let progressing = deployment.condition(PROGRESSING)?;
    let updated = progressing.last_update_time?.timestamp().duration_since(changed_at).as_secs_f64();
    // The controller compares whole seconds.
    let at = updated + seconds + 1.0;
    (at >= LIMIT.as_secs_f64() && !WITHOUT_DEADLINE.contains(&&*progressing.reason)).then_some(at)
}

/// Time of the last update of the condition `Progressing`, with its reason.
fn progress_time(deployment: &Deployment) -> Option<(Option<kcm_api::Time>, String)> {
    let condition = deployment.condition(PROGRESSING)?;
    Some((condition.last_update_time, condition.reason.clone()))
}

/// Counts all writes of the controllers.
fn totals(requests: &[ControllerWrite]) -> Vec<WriteTotal> {
    let mut totals: BTreeMap<(String, &str), (usize, usize)> = BTreeMap::new();
    for ControllerWrite { verb, resource, subresource, error, .. } in requests {
        let resource =
            if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
        let (count, refused) = totals.entry((resource, verb)).or_default();
        *count += 1;
        *refused += usize::from(error.is_some());
    }
    let total = |((resource, verb), (count, refused)): ((String, &str), _)| WriteTotal {
        verb: verb.to_owned(),
        resource,
        count,
        refused,
    };
    totals.into_iter().map(total).collect()
}

/// Groups consecutive writes of the controllers. Pods are named by their ReplicaSet.
fn writes(requests: &[ControllerWrite], reader: &Reader<'_>) -> Vec<WriteGroup> {
    let mut groups: Vec<WriteGroup> = Vec::new();
    let is_shown =
        |request: &&ControllerWrite| request.subresource.is_empty() && request.resource != "events";
    for request in requests.iter().filter(is_shown) {
        let is_pod = request.resource == "pods";
        let set = reader.owners.get(&request.name).and_then(|index| reader.sets.get(*index));
        let set = set.map(|state| state.name.clone());
        let name = match (is_pod, request.owner.is_empty()) {
            (true, false) => request.owner.clone(),
            (true, true) => set.unwrap_or_default(),
            (false, _) => request.name.clone(),
        };
        let group = WriteGroup {
            seconds: request.at.as_secs_f64(),
            verb: request.verb.to_owned(),
            resource: request.resource.clone(),
            name,
            replicas: request.replicas.filter(|_| request.resource == "replicasets"),
            count: 1,
            error: request.error.clone(),
        };
        match groups.last_mut() {
            Some(last) if is_pod && is_same(last, &group) => last.count += 1,
            _ => groups.push(group),
        }
    }
    groups
}

fn is_same(a: &WriteGroup, b: &WriteGroup) -> bool {
    a.verb == b.verb && a.resource == b.resource && a.name == b.name && a.error == b.error
}

/// Message of the condition that explains why a rollout is stuck.
pub(crate) fn stuck_message(deployment: &Deployment) -> Option<String> {
    let failure = deployment.condition(kcm_api::condition_type::REPLICA_FAILURE);
    // The message of a rollout with a longer deadline is that it progresses.
    let progressing = deployment.condition(PROGRESSING).filter(|condition| condition.status != "True");
    let condition = failure.or(progressing)?;
    Some(condition.message.clone()).filter(|message| !message.is_empty())
}
