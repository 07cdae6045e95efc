//! Scheduler and kubelets in real time, and the record of all pods.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader},
    process::Child,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use kcm_client::{ApiClient, Request};
use kcm_clock::{Clock, RealClock, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    measure::Interval,
    nodes::{NODE, Timing, is_ready},
};

/// Objects of all namespaces, as of the last events of the watches.
pub(crate) struct World {
    namespaces: Arc<Mutex<HashMap<String, Arc<Namespace>>>>,
    watches: Vec<Child>,
}

/// Objects of a namespace.
pub(crate) struct Namespace {
    name: String,
    objects: Mutex<Objects>,
    changed: watch::Sender<()>,
    clock: RealClock,
}

/// Objects, and the settings of the simulated kubelet.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) deployment: Value,
    /// ReplicaSets by name.
    pub(crate) replica_sets: BTreeMap<String, Value>,
    /// All pods by UID, also removed ones.
    pub(crate) pods: BTreeMap<String, Pod>,
    /// Time of the last event.
    pub(crate) last_event: Duration,
    pub(crate) timing: Option<Timing>,
    pub(crate) min_ready: u64,
    /// Number of new pods that never become ready. The pods are those that are created after the time.
    pub(crate) failing: Option<(u64, Duration)>,
    /// Generation of the Deployment before the change, the time of the change, and that of completion.
    pub(crate) change: Option<ChangeTimes>,
    /// Longest time from an action of the kubelet being due to its event.
    pub(crate) lag: Duration,
    /// Time since which the kubelet does nothing.
    frozen: Option<Duration>,
}

/// Times of a change and its completion.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ChangeTimes {
    pub(crate) started: Option<Duration>,
    pub(crate) completed: Option<Duration>,
}

/// Pod with the times of its events.
#[derive(Debug, Default)]
pub(crate) struct Pod {
    name: String,
    /// ReplicaSet.
    pub(crate) owner: String,
    pub(crate) created: Duration,
    /// Order of creation.
    number: usize,
    /// Time of the event of the readiness, and the readiness at that time.
    ready: Option<(Duration, Duration)>,
    pub(crate) deleted: Option<Duration>,
    pub(crate) removed: Option<Duration>,
    /// Starts of the times to readiness and removal for the kubelet.
    ready_from: Duration,
    stop_from: Duration,
    bound: bool,
    started: bool,
    stopped: bool,
}

impl Pod {
    /// `true` if the pod exists and is not terminating.
    pub(crate) fn is_active(&self) -> bool {
        self.deleted.is_none() && self.removed.is_none()
    }

    fn end(&self) -> Option<Duration> {
        self.deleted.or(self.removed)
    }

    fn available_from(&self, min_ready: u64) -> Option<Duration> {
        let (seen, age) = self.ready?;
        Some(seen + Duration::from_secs(min_ready).saturating_sub(age))
    }
}

/// Action of the kubelet or the scheduler.
#[derive(Debug, Clone, Copy)]
enum Action {
    Bind,
    SetReady,
    Remove,
}

impl World {
    /// Reads the events of `watches`, which are of the resources pods, ReplicaSets and Deployments.
    pub(crate) fn new(mut watches: Vec<Child>) -> Self {
        let namespaces: Arc<Mutex<HashMap<String, Arc<Namespace>>>> = Arc::default();
        for watch in &mut watches {
            let output = BufReader::new(watch.stdout.take().unwrap());
            let namespaces = Arc::clone(&namespaces);
            std::thread::spawn(move || {
                // `kubectl` prints an event per line. The lines end when it is killed.
                for line in output.lines().map_while(Result::ok) {
                    let event: Value = serde_json::from_str(&line).unwrap();
                    let name = event["object"]["metadata"]["namespace"].as_str().unwrap_or_default();
                    let namespace = namespaces.lock().unwrap().get(name).cloned();
                    if let Some(namespace) = namespace {
                        namespace.apply(&event["type"], &event["object"]);
                    }
                }
            });
        }
        Self { namespaces, watches }
    }

    /// Records the objects of a namespace from now on.
    pub(crate) fn namespace(&self, name: &str) -> Arc<Namespace> {
        let namespace = Arc::new(Namespace {
            name: name.to_owned(),
            objects: Mutex::default(),
            changed: watch::Sender::new(()),
            clock: RealClock::new(),
        });
        self.namespaces.lock().unwrap().insert(name.to_owned(), Arc::clone(&namespace));
        namespace
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for watch in &mut self.watches {
            let _ = watch.kill();
            let _ = watch.wait();
        }
    }
}

impl Namespace {
    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap()
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Waits until something changes, for at most `limit`.
    pub(crate) async fn wait(&self, limit: Duration) {
        let mut changes = self.changed.subscribe();
        tokio::select! {
            _ = changes.changed() => {}
            () = self.clock.sleep(limit) => {}
        }
    }

    /// Changes the settings of the kubelet.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Objects)) {
        change(&mut self.objects());
        self.changed.send_replace(());
    }

    /// Stops the time of the kubelet.
    pub(crate) fn freeze(&self) {
        let now = self.now();
        self.set(|objects| objects.frozen = Some(now));
    }

    /// Continues the time of the kubelet where it was stopped.
    pub(crate) fn unfreeze(&self) {
        let now = self.now();
        self.set(|objects| {
            let Some(frozen) = objects.frozen.take() else { return };
            for pod in objects.pods.values_mut() {
                for time in [&mut pod.ready_from, &mut pod.stop_from] {
                    *time += if *time < frozen { now - frozen } else { Duration::ZERO };
                }
            }
        });
    }

    fn apply(&self, kind: &Value, object: &Value) {
        let (now, wall) = (self.now(), self.clock.now());
        self.set(|objects| {
            objects.last_event = now;
            objects.apply(kind == "DELETED", object, now, wall);
        });
    }

    /// Runs the scheduler and the kubelet. Never returns.
    pub(crate) async fn run_kubelet(&self, api: ApiClient) {
        let mut changes = self.changed.subscribe();
        loop {
            let now = self.now();
            let (actions, next) = self.objects().due(now);
            for (action, name) in actions {
                let (api, path) = (api.clone(), format!("/api/v1/namespaces/{}/pods/{name}", self.name));
                let request = request(action, &path, &name, self.clock.now());
                tokio::spawn(async move {
                    if let Err(error) = api.send(&request).await {
                        // A pod may have been removed, and a pod that is terminating cannot be bound.
                        assert!(error.is_not_found() || error.is_conflict(), "{error}");
                    }
                });
            }
            let wait = next.map_or(Duration::from_secs(3600), |next| next.saturating_sub(now));
            tokio::select! {
                _ = changes.changed() => {}
                () = self.clock.sleep(wait) => {}
            }
        }
    }
}

fn request(action: Action, path: &str, name: &str, now: Timestamp) -> Request {
    match action {
        Action::Bind => {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
                "target": { "kind": "Node", "name": NODE },
            });
            Request::post(format!("{path}/binding"), binding.to_string())
        }
        Action::SetReady => {
            let status = json!({ "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": kcm_api::Time::new(now) }],
            } });
            Request::strategic_merge_patch(format!("{path}/status"), status.to_string())
        }
        Action::Remove => Request::delete(path, json!({ "gracePeriodSeconds": 0 }).to_string()),
    }
}

impl Objects {
    fn apply(&mut self, is_deleted: bool, object: &Value, now: Duration, wall: Timestamp) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        match object["kind"].as_str().unwrap_or_default() {
            "Pod" => self.apply_pod(is_deleted, object, now, wall),
            "ReplicaSet" if is_deleted => {
                self.replica_sets.remove(&text(&metadata["name"]));
            }
            "ReplicaSet" => {
                self.replica_sets.insert(text(&metadata["name"]), object.clone());
            }
            "Deployment" => {
                self.deployment = object.clone();
                let is_complete = self.is_complete();
                if let Some(change) = &mut self.change {
                    change.started.get_or_insert(now);
                    if is_complete {
                        change.completed.get_or_insert(now);
                    }
                }
            }
            _ => {}
        }
    }

    fn apply_pod(&mut self, is_deleted: bool, object: &Value, now: Duration, wall: Timestamp) {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = self.pods.len();
        let pod = self.pods.entry(text(&metadata["uid"])).or_insert_with(|| Pod {
            name: text(&metadata["name"]),
            owner: text(&metadata["ownerReferences"][0]["name"]),
            created: now,
            ready_from: now,
            number,
            ..Pod::default()
        });
        pod.bound |= object["spec"]["nodeName"].is_string();
        if pod.ready.is_none() && is_ready(object) {
            let conditions = object["status"]["conditions"].as_array().unwrap();
            let ready = conditions.iter().find(|one| one["type"] == "Ready").unwrap();
            let since: Timestamp = ready["lastTransitionTime"].as_str().unwrap().parse().unwrap();
            let age = wall.duration_since(since).unsigned_abs();
            pod.ready = Some((now, age));
            if let Some(timing) = self.timing {
                self.lag =
                    self.lag.max(now.saturating_sub(pod.ready_from + Duration::from_secs(timing.ready)));
            }
        }
        if pod.deleted.is_none() && metadata.get("deletionTimestamp").is_some() {
            (pod.deleted, pod.stop_from) = (Some(now), now);
        }
        if is_deleted {
            pod.removed = Some(now);
        }
    }

    /// Actions that are due, with the names of the pods, and the time of the next one.
    fn due(&mut self, now: Duration) -> (Vec<(Action, String)>, Option<Duration>) {
        let (mut actions, mut next) = (Vec::new(), None::<Duration>);
        let Some(timing) = self.timing else { return (actions, next) };
        let failing = self.failing_pods();
        let is_frozen = self.frozen.is_some();
        for (uid, pod) in self.pods.iter_mut().filter(|(_, pod)| pod.removed.is_none()) {
            if !pod.bound && pod.is_active() {
                pod.bound = true;
                actions.push((Action::Bind, pod.name.clone()));
            }
            if is_frozen {
                continue;
            }
            let (done, due, action) = match pod.deleted {
                Some(_) => {
                    let due = pod.stop_from + Duration::from_secs(timing.stop);
                    (&mut pod.stopped, due, Action::Remove)
                }
                None if failing.contains(uid) => continue,
                None => {
                    let due = pod.ready_from + Duration::from_secs(timing.ready);
                    (&mut pod.started, due, Action::SetReady)
                }
            };
            match (*done, due <= now) {
                (true, _) => {}
                (false, true) => {
                    *done = true;
                    actions.push((action, pod.name.clone()));
                }
                (false, false) => next = Some(next.map_or(due, |next| next.min(due))),
            }
        }
        (actions, next)
    }

    /// UIDs of the pods that never become ready.
    fn failing_pods(&self) -> Vec<String> {
        let Some((count, since)) = self.failing else { return Vec::new() };
        let newest = self.newest_replica_set();
        let is_new = |pod: &Pod| pod.created > since && Some(&*pod.owner) == newest;
        let mut pods: Vec<_> = self.pods.iter().filter(|(_, pod)| is_new(pod)).collect();
        pods.sort_by_key(|(_, pod)| pod.number);
        pods.into_iter().take(usize::try_from(count).unwrap()).map(|(uid, _)| uid.clone()).collect()
    }

    /// Name of the ReplicaSet with the highest revision.
    pub(crate) fn newest_replica_set(&self) -> Option<&str> {
        let revision = |set: &Value| {
            let revision = set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
            revision.and_then(|revision| revision.parse::<u64>().ok())
        };
        let newest = self.replica_sets.iter().max_by_key(|(_, set)| revision(set));
        newest.map(|(name, _)| &**name)
    }

    /// `true` if the controller has completed the rollout of the current generation.
    pub(crate) fn is_complete(&self) -> bool {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let Value::Object(_) = &self.deployment else { return false };
        let (metadata, status) = (&self.deployment["metadata"], &self.deployment["status"]);
        let replicas = number(&self.deployment["spec"]["replicas"]);
        number(&status["observedGeneration"]) >= number(&metadata["generation"])
            && ["updatedReplicas", "replicas", "availableReplicas"]
                .iter()
                .all(|field| number(&status[*field]) == replicas)
    }

    /// `true` if no event of a pod is to come: no pod is terminating, becomes ready or becomes available.
    pub(crate) fn is_idle(&self, now: Duration) -> bool {
        let failing = self.failing_pods();
        self.pods.iter().filter(|(_, pod)| pod.removed.is_none()).all(|(uid, pod)| {
            pod.is_active()
                && (failing.contains(uid)
                    || pod.available_from(self.min_ready).is_some_and(|from| from <= now))
        })
    }

    /// `true` if no pod is ready and waits for `minReadySeconds`.
    pub(crate) fn has_no_waiting_pods(&self, now: Duration) -> bool {
        let mut active = self.pods.values().filter(|pod| pod.is_active());
        active.all(|pod| pod.available_from(self.min_ready).is_none_or(|from| from <= now))
    }

    /// `true` if a ReplicaSet has too few pods.
    pub(crate) fn misses_pods(&self) -> bool {
        self.replica_sets.iter().any(|(name, set)| {
            set["spec"]["replicas"].as_u64().unwrap_or(0)
                > self.count(|pod| pod.is_active() && pod.owner == *name)
        })
    }

    pub(crate) fn count(&self, includes: impl Fn(&Pod) -> bool) -> u64 {
        u64::try_from(self.pods.values().filter(|pod| includes(pod)).count()).unwrap()
    }

    /// Number of active pods of a ReplicaSet that are available.
    pub(crate) fn available(&self, set: &str, now: Duration) -> u64 {
        let is_available = |pod: &Pod| pod.available_from(self.min_ready).is_some_and(|from| from <= now);
        self.count(|pod| pod.is_active() && pod.owner == set && is_available(pod))
    }

    /// Times of the pods without terminating ones, with terminating ones, and of their availability.
    pub(crate) fn intervals(&self) -> [Vec<Interval>; 3] {
        let pods = || self.pods.values();
        let available = |pod: &Pod| {
            let (from, to) = (pod.available_from(self.min_ready)?, pod.end());
            to.is_none_or(|to| from < to).then_some(Interval { from, to })
        };
        [
            pods().map(|pod| Interval { from: pod.created, to: pod.end() }).collect(),
            pods().map(|pod| Interval { from: pod.created, to: pod.removed }).collect(),
            pods().filter_map(available).collect(),
        ]
    }
}
