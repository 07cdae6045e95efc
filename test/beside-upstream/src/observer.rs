//! Observer and kubelet: reads the objects in an interval, makes pods ready and removes terminating ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kcm_client::{ApiClient, Request};
use kcm_clock::{Clock, RealClock};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    lease::Renewal,
    workload::{Goal, Scale, WEB},
};

/// Interval of the observations.
const INTERVAL: Duration = Duration::from_millis(200);
/// Timeout of an observation.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time from the first observation of a terminating pod to its removal.
const GONE_AFTER: Duration = Duration::from_millis(300);
/// Number of concurrent requests of the kubelet.
const REQUESTS: usize = 16;

/// Observations so far.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// States that the Deployments should reach. Availability is measured while it is not empty.
    pub(crate) goals: Vec<Goal>,
    /// Time of the first observation of the goals, if they are met now.
    pub(crate) met_at: Option<Duration>,
    /// Number of updated pods of the rollout, from the status of the Deployment.
    pub(crate) updated: usize,
    /// Pod-seconds below the minimum of available pods.
    pub(crate) below_minimum: f64,
    /// States of the Lease.
    pub(crate) renewals: Vec<Renewal>,
    /// UIDs of all pods, including deleted ones, and their number before the rollout.
    pub(crate) pods: BTreeSet<String>,
    pub(crate) before: usize,
    /// Pods with limits of resources, by UID.
    pub(crate) limited: BTreeSet<String>,
    measured_at: Option<Duration>,
}

/// Running observer. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Observer {
    observed: Arc<Mutex<Observed>>,
    _task: JoinSet<()>,
}

impl Observer {
    pub(crate) fn start(
        api: ApiClient,
        namespace: &str,
        lease: &str,
        scale: Scale,
        clock: RealClock,
    ) -> Self {
        let observed: Arc<Mutex<Observed>> = Arc::default();
        let mut task = JoinSet::new();
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}");
        let poll = Poll {
            api,
            pods: format!("/api/v1/namespaces/{namespace}/pods"),
            deployments: format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            lease,
            scale,
            clock,
            observed: Arc::clone(&observed),
            first: BTreeMap::new(),
        };
        task.spawn(poll.run());
        Self { observed, _task: task }
    }

    /// Calls `read` with the observations.
    pub(crate) fn with<R>(&self, read: impl FnOnce(&mut Observed) -> R) -> R {
        read(&mut self.observed.lock())
    }
}

struct Poll {
    api: ApiClient,
    pods: String,
    deployments: String,
    lease: String,
    scale: Scale,
    clock: RealClock,
    observed: Arc<Mutex<Observed>>,
    /// Time of the first observation of a pod, and of its termination.
    first: BTreeMap<(String, bool), Duration>,
}

impl Poll {
    async fn run(mut self) {
        let mut requests = JoinSet::new();
        let mut sent = BTreeSet::new();
        loop {
            let now = self.clock.monotonic();
            let (pods, deployments, lease) = tokio::join!(
                self.get::<List<Pod>>(&self.pods),
                self.get::<List<Deployment>>(&self.deployments),
                self.get::<Lease>(&self.lease),
            );
            if let Some(lease) = lease {
                self.record_lease(lease);
            }
            if let Some(pods) = &pods {
                self.record_pods(&pods.items);
                self.act(&pods.items, &mut sent, &mut requests).await;
            }
            if let (Some(pods), Some(deployments)) = (pods, deployments) {
                self.record_goals(&pods.items, &deployments.items);
            }
            let spent = self.clock.monotonic().saturating_sub(now);
            self.clock.sleep(INTERVAL.saturating_sub(spent)).await;
        }
    }

    /// Reads from the watch cache. The API server may be gone, or slow.
    async fn get<T: for<'de> Deserialize<'de>>(&self, path: &str) -> Option<T> {
        let request = Request::get(format!("{path}?resourceVersion=0"));
        let answer = tokio::time::timeout(TIMEOUT, self.api.send(&request)).await.ok()?.ok()?;
        serde_json::from_slice(&answer).ok()
    }

    fn record_lease(&self, lease: Lease) {
        let at = self.clock.monotonic();
        let mut observed = self.observed.lock();
        let LeaseSpec { holder_identity: holder, renew_time } = lease.spec;
        let last = observed.renewals.last();
        if last.is_none_or(|last| last.holder != holder || last.renew_time != renew_time) {
            observed.renewals.push(Renewal { at, holder, renew_time });
        }
    }

    fn record_pods(&self, pods: &[Pod]) {
        let now = self.clock.monotonic();
        let mut observed = self.observed.lock();
        observed.pods.extend(pods.iter().map(|pod| pod.metadata.uid.clone()));
        let limited = pods.iter().filter(|pod| pod.has_limits());
        observed.limited.extend(limited.map(|pod| pod.metadata.uid.clone()));
        if observed.goals.is_empty() {
            return;
        }
        let available = pods.iter().filter(|pod| pod.is_of(WEB) && pod.is_ready()).count();
        let since = observed.measured_at.replace(now).unwrap_or(now);
        let seconds = now.saturating_sub(since).as_secs_f64();
        observed.below_minimum += seconds * self.scale.min_available().saturating_sub(available) as f64;
    }

    fn record_goals(&self, pods: &[Pod], deployments: &[Deployment]) {
        let mut observed = self.observed.lock();
        let find = |name: &str| deployments.iter().find(|deployment| deployment.metadata.name == name);
        observed.updated = find(WEB).map_or(0, |web| web.status.updated_replicas);
        let is_met = |goal: &Goal| {
            let own: Vec<_> = pods.iter().filter(|pod| pod.is_of(&goal.name)).collect();
            find(&goal.name).is_some_and(|deployment| deployment.has_reached(goal.replicas))
                && own.len() == goal.replicas
                && own.iter().all(|pod| pod.is_ready() && pod.image() == Some(goal.image))
        };
        let met = !observed.goals.is_empty() && observed.goals.iter().all(is_met);
        observed.met_at = met.then(|| observed.met_at.unwrap_or_else(|| self.clock.monotonic()));
    }

    /// Sends the requests of the kubelet that are due.
    async fn act(&mut self, pods: &[Pod], sent: &mut BTreeSet<(String, bool)>, requests: &mut JoinSet<()>) {
        let now = self.clock.monotonic();
        for pod in pods {
            let key = (pod.metadata.uid.clone(), pod.is_terminating());
            let since = *self.first.entry(key.clone()).or_insert(now);
            let after = if pod.is_terminating() { GONE_AFTER } else { self.scale.ready_after };
            let done = !pod.is_terminating() && pod.is_ready();
            // An unanswered request is sent again.
            if done || now.saturating_sub(since) < after || sent.contains(&key) && now < since + 2 * after {
                continue;
            }
            self.first.insert(key.clone(), now);
            sent.insert(key);
            while requests.len() >= REQUESTS {
                requests.join_next().await;
            }
            let (api, request) = (self.api.clone(), self.request(pod));
            requests.spawn(async move {
                let _ = tokio::time::timeout(TIMEOUT, api.send(&request)).await;
            });
        }
    }

    fn request(&self, pod: &Pod) -> Request {
        let path = format!("{}/{}", self.pods, pod.metadata.name);
        if pod.is_terminating() && !pod.metadata.finalizers.is_empty() {
            return Request::strategic_merge_patch(
                path,
                json!({"metadata": {"finalizers": null}}).to_string(),
            );
        }
        if pod.is_terminating() {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}});
            return Request::delete(path, options.to_string());
        }
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
        let status = json!({"status": {"phase": "Running", "conditions": [condition]}});
        Request::strategic_merge_patch(format!("{path}/status"), status.to_string())
    }
}

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    uid: String,
    generation: u64,
    labels: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
    finalizers: Vec<String>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Container {
    image: String,
    resources: Resources,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resources {
    limits: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodStatus {
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Deserialize)]
struct Deployment {
    metadata: Metadata,
    #[serde(default)]
    status: DeploymentStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    observed_generation: u64,
    replicas: usize,
    updated_replicas: usize,
    available_replicas: usize,
}

#[derive(Deserialize)]
struct Lease {
    spec: LeaseSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: String,
    renew_time: String,
}

impl Pod {
    fn is_of(&self, name: &str) -> bool {
        self.metadata.labels.get("app").is_some_and(|app| app == name)
    }

    fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn is_ready(&self) -> bool {
        let ready = |condition: &Condition| condition.r#type == "Ready" && condition.status == "True";
        !self.is_terminating() && self.status.conditions.iter().any(ready)
    }

    fn image(&self) -> Option<&str> {
        self.spec.containers.first().map(|container| container.image.as_str())
    }

    fn has_limits(&self) -> bool {
        self.spec.containers.iter().any(|container| !container.resources.limits.is_empty())
    }
}

impl Deployment {
    fn has_reached(&self, wanted: usize) -> bool {
        let DeploymentStatus { observed_generation, replicas, updated_replicas, available_replicas } =
            self.status;
        observed_generation == self.metadata.generation
            && [replicas, updated_replicas, available_replicas].iter().all(|count| *count == wanted)
    }
}
