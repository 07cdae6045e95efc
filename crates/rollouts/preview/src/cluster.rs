//! Runs a change in the embedded cluster, in simulated time.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use kcm_api::{Deployment, condition_type::REPLICA_FAILURE};
use kcm_apiserver::{
    AdmissionHook, ApiServer, ApiServerConfig, ApiStatus, AuditEvent, DeleteOptions, Faults, HistoryLimits,
    ListOptions, Object, Patch, Resource, WatchEvent, WatchStart, WriteOptions,
};
use kcm_client::{ClientFactory, ClientOptions};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock, Timestamp};
use kcm_controller_manager::{Dependencies, KUBERNETES_VERSION, ManagerConfig};
use kcm_deployment_util::{annotations::REVISION, rollout};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    PreviewError, Snapshot,
    change::ChangeRequest,
    import::{import, placeholder, without_sandbox_annotations},
    json::{list, number, text},
    refusal::Refusal,
    timings::Timings,
};

/// Time for the controllers to fill their caches before the change.
pub(crate) const WARM_UP: Duration = Duration::from_millis(200);
/// Time without writes after which a complete rollout has ended.
const QUIET_COMPLETE: Duration = Duration::from_secs(5);
/// Time without writes, in addition to all delays of the rollout, after which it is stuck.
const QUIET_STUCK: Duration = Duration::from_secs(60);
/// Longest time that the ReplicaSet controller waits after a refused creation, as upstream's rate limiter.
pub(crate) const MAX_BACK_OFF: Duration = Duration::from_secs(1000);
/// Longest simulated time. A day in which nothing happens takes up to a second, because the watches continue.
pub(crate) const LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Seed of UIDs and names, so that equal previews have equal results. Objects of the cluster must not have UIDs from
/// the same seed.
const SEED: u64 = 0x7072_6576_6965_7773;

/// New pods that never become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unready {
    /// The first ones that are created.
    First(usize),
    /// All.
    All,
}

/// Receives the share of new pods that exist, between 0 and 1.
pub(crate) type ProgressSink<'a> = &'a (dyn Fn(f64) + Sync);

/// Input of a run.
#[derive(Clone, Copy)]
pub(crate) struct RunConfig<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) request: &'a ChangeRequest,
    pub(crate) timings: &'a Timings,
    pub(crate) unready: Unready,
    /// Requests that the API server of the cluster refuses.
    pub(crate) refusals: &'a [Refusal],
    /// Time from the removal of a pod until the quotas release its resources.
    pub(crate) quota_delay: Duration,
    pub(crate) progress: ProgressSink<'a>,
}

/// Everything that happened in a run.
#[derive(Debug)]
pub(crate) struct Run {
    /// Wall-clock time of the change.
    pub(crate) changed_at: Timestamp,
    /// Objects before the change.
    pub(crate) initial: Vec<Arc<Object>>,
    /// Writes of the API server, in order.
    pub(crate) events: Vec<Observed>,
    /// Writes that the controllers requested, in order.
    pub(crate) requests: Vec<ControllerWrite>,
    /// End of the run.
    pub(crate) end: RunEnd,
}

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The rollout is complete. A pod that a finalizer holds may be terminating.
    Complete,
    /// Nothing happens any more.
    Stuck,
    /// The longest simulated time has passed.
    Unfinished,
}

/// State of an object after a write.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Time since the change.
    pub(crate) at: Duration,
    pub(crate) object: Arc<Object>,
    pub(crate) deleted: bool,
}

/// Write that a controller requested.
#[derive(Debug, Clone)]
pub(crate) struct ControllerWrite {
    /// Time since the change.
    pub(crate) at: Duration,
    pub(crate) verb: &'static str,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) name: String,
    /// Name of the first owner in the request body.
    pub(crate) owner: String,
    /// `spec.replicas` in the request body.
    pub(crate) replicas: Option<i64>,
    /// Error of the API server, if any.
    pub(crate) error: Option<String>,
}

/// Runs the change on a separate thread until the rollout is complete or stuck.
pub(crate) fn run(config: RunConfig<'_>) -> Result<Run, PreviewError> {
    let runtime = || {
        let builder = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        builder.map_err(PreviewError::Runtime)?.block_on(simulate(config))
    };
    // A runtime cannot be entered on a thread of another runtime.
    std::thread::scope(|scope| scope.spawn(runtime).join()).unwrap_or(Err(PreviewError::Panicked))
}

/// Random numbers of the simulated kubelet: no jitter.
#[derive(Debug)]
struct NoJitter;

impl Random for NoJitter {
    fn next_u64(&self) -> u64 {
        0
    }
}

/// Returns the Deployment as it is after `request`, before the controllers act.
pub(crate) fn plan(snapshot: &Snapshot, request: &ChangeRequest) -> Result<Deployment, PreviewError> {
    let server = ApiServer::new(ApiServerConfig {
        clock: Arc::new(SimulatedClock::new(snapshot.taken)),
        random: Arc::new(SeededRandom::new(SEED)),
        managed_fields: false,
        ..ApiServerConfig::default()
    });
    let deployment = Snapshot {
        namespace: snapshot.namespace.clone(),
        deployment: snapshot.deployment.clone(),
        ..Snapshot::default()
    };
    import(&server, &deployment, request, &Timings::default(), snapshot.taken)
        .map_err(PreviewError::Import)?;
    let planned = perform(&server, snapshot, request).map_err(PreviewError::Rejected)?;
    Ok(serde_json::from_value(planned.value().clone()).unwrap_or_default())
}

/// Webhook of the creations of the controllers: refuses what the API server of the cluster refuses, and removes the
/// annotations of the sandbox, which mean nothing in a real cluster.
fn admission(refusals: &[Refusal], is_sandbox: bool) -> AdmissionHook {
    let refusals = refusals.to_vec();
    Arc::new(move |resource, object| {
        if let Some(refusal) = refusals.iter().find(|refusal| refusal.stands && refusal.creates(resource)) {
            let status = ApiStatus::forbidden(resource, "", "");
            return Err(ApiStatus { message: refusal.message.clone(), ..status });
        }
        if resource == Resource::PODS && !is_sandbox {
            without_sandbox_annotations(object);
        }
        Ok(())
    })
}

/// Delay of the creation of pods if quotas release resources late. Without it, the controllers may create pods in the
/// moment between the removal of a pod and its replacement by a placeholder.
const DELAYED_CREATION: &str = "POST /api/v1/namespaces/*/pods delay=20ms";

/// Faults and delays of the requests that an [`admission`] webhook does not receive.
fn faults(refusals: &[Refusal], quota_delay: Duration) -> Faults {
    let is_refused = refusals.iter().any(|refusal| refusal.stands && refusal.deletes_pods());
    let rules = [
        is_refused.then_some("DELETE /api/v1/namespaces/*/pods/* 403"),
        (!quota_delay.is_zero()).then_some(DELAYED_CREATION),
    ];
    // The rules are valid.
    Faults::new(rules.into_iter().flatten().filter_map(|rule| rule.parse().ok()))
}

async fn simulate(config: RunConfig<'_>) -> Result<Run, PreviewError> {
    let RunConfig { snapshot, request, timings, unready, refusals, quota_delay, progress: sink } = config;
    // The change is made at the time of the snapshot.
    let begin = snapshot.taken.saturating_sub(WARM_UP).unwrap_or(snapshot.taken);
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(begin));
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(SEED));
    let recorder = Arc::new(Recorder::new(Arc::clone(&clock), unready));
    let audit = Arc::clone(&recorder);
    let server = ApiServer::new(ApiServerConfig {
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        advertise_version: KUBERNETES_VERSION.to_owned(),
        audit: Some(Arc::new(move |event| audit.handle(event))),
        history: HistoryLimits { events: usize::MAX, bytes: usize::MAX },
        admission: Some(admission(refusals, snapshot.is_sandbox)),
        faults: faults(refusals, quota_delay),
        managed_fields: false,
        ..ApiServerConfig::default()
    });
    // Set once, here.
    let _ = recorder.server.set(Arc::downgrade(&server));
    import(&server, snapshot, request, timings, begin).map_err(PreviewError::Import)?;
    let sandbox = Sandbox::new(SandboxConfig {
        server: Arc::clone(&server),
        clock: Arc::clone(&clock),
        random: Arc::new(NoJitter),
        nodes: 0,
        kubelet: KubeletConfig {
            pod_ready_delay: timings.ready_after(),
            pod_stop_delay: timings.stop_after(),
        },
    })
    .map_err(PreviewError::Import)?
    .with_existing_nodes(all(&server, Resource::NODES).iter().map(|node| node.name().to_owned()));
    let sandbox = if snapshot.is_sandbox { sandbox } else { sandbox.without_missing_image_tags() };
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    tokio::spawn(async move { sandbox.run(stop).await });
    let options = ClientOptions::new(kcm_controller_manager::user_agent(), Arc::clone(&clock));
    let clients = ClientFactory::in_process(server.service(), options);
    let dependencies = Dependencies::new(&clients, &clock, &random);
    let _controllers = kcm_controller_manager::start(&ManagerConfig::default(), &dependencies);

    clock.sleep(WARM_UP).await;
    let (changed_at, started) = (clock.now(), clock.monotonic());
    *recorder.started.lock() = started;
    // At their start, controllers may write statuses, which is no part of the change.
    recorder.requests.lock().clear();
    let initial = [Resource::DEPLOYMENTS, Resource::REPLICA_SETS, Resource::PODS].map(|r| all(&server, r));
    let initial: Vec<Arc<Object>> = initial.into_iter().flatten().collect();
    let mut watcher = server.watch_everything(WatchStart::Now);
    perform(&server, snapshot, request).map_err(PreviewError::Rejected)?;

    let mut events = Vec::new();
    let mut progress = Progress::default();
    initial.iter().for_each(|object| progress.observe(snapshot, object, false));
    let mut last_change = started;
    let limit = started.saturating_add(LIMIT);
    let end = loop {
        let quiet = last_change.saturating_add(progress.quiet(timings));
        let until = quiet.max(last_change.saturating_add(progress.deadline())).min(limit);
        let event = tokio::select! {
            biased;
            event = watcher.next() => event.map_err(PreviewError::Import)?,
            () = clock.sleep(until.saturating_sub(clock.monotonic())) => {
                break match progress.is_rolled_out() {
                    true => RunEnd::Complete,
                    false if quiet < limit => RunEnd::Stuck,
                    false => RunEnd::Unfinished,
                };
            }
        };
        let (object, deleted) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::InitialEventsEnd(_) => continue,
        };
        // Refused creations are retried for ever, with an event each.
        if object.resource() == Resource::EVENTS {
            continue;
        }
        last_change = clock.monotonic();
        let at = last_change.saturating_sub(started);
        if deleted && object.resource() == Resource::PODS && !quota_delay.is_zero() {
            tokio::spawn(occupy(Arc::clone(&server), Arc::clone(&clock), Arc::clone(&object), quota_delay));
        }
        progress.observe(snapshot, &object, deleted);
        if object.resource() == Resource::DEPLOYMENTS {
            sink(progress.share());
        }
        events.push(Observed { at, object, deleted });
    };
    let requests = std::mem::take(&mut *recorder.requests.lock());
    Ok(Run { changed_at, initial, events, requests, end })
}

/// Keeps the resources of a removed pod in use for `delay`, because upstream's quota controller releases them late.
async fn occupy(server: Arc<ApiServer>, clock: Arc<dyn Clock>, pod: Arc<Object>, delay: Duration) {
    let mut placeholder = placeholder(pod.value());
    // The placeholder of a placeholder would occupy them for ever.
    if crate::json::controller(pod.value()).is_none() {
        return;
    }
    placeholder["metadata"]["uid"] = format!("released-{}", pod.uid()).into();
    // The name is free: the pod was removed.
    if let Ok(placeholder) = server.restore(Resource::PODS, placeholder) {
        clock.sleep(delay).await;
        let options = DeleteOptions::now(placeholder.uid());
        let _ = server.delete(Resource::PODS, pod.namespace(), pod.name(), &options);
    }
}

fn all(server: &ApiServer, resource: Resource) -> Vec<Arc<Object>> {
    // A list of the newest state cannot expire.
    server.list(resource, None, &ListOptions::default()).map_or_else(|_| Vec::new(), |list| list.items)
}

/// Makes the change, as the API server does for a client's request.
fn perform(
    server: &ApiServer,
    snapshot: &Snapshot,
    request: &ChangeRequest,
) -> Result<Arc<Object>, ApiStatus> {
    let (resource, options) = (Resource::DEPLOYMENTS, WriteOptions::default());
    let (namespace, name) = (&snapshot.namespace, &snapshot.name);
    match request {
        ChangeRequest::Create(object) => server.create(resource, namespace, object.clone(), &options),
        ChangeRequest::Patch { type_, body } => server.patch(
            resource,
            namespace,
            name,
            None,
            Patch { form: *type_, body: body.clone() },
            &options,
        ),
        ChangeRequest::Replace(object) => server.update(resource, namespace, object.clone(), &options),
    }
}

/// Progress of the rollout, from the observed objects.
#[derive(Debug, Default)]
struct Progress {
    deployment: Option<Deployment>,
    /// UIDs of terminating pods.
    terminating: HashSet<String>,
}

impl Progress {
    fn observe(&mut self, snapshot: &Snapshot, object: &Object, deleted: bool) {
        match object.resource() {
            Resource::DEPLOYMENTS if object.name() == snapshot.name => {
                self.deployment = serde_json::from_value(object.value().clone()).ok();
            }
            Resource::PODS if deleted => {
                self.terminating.remove(object.uid());
            }
            Resource::PODS if object.is_deleting() => {
                self.terminating.insert(object.uid().to_owned());
            }
            _ => {}
        }
    }

    fn is_rolled_out(&self) -> bool {
        self.deployment.as_ref().is_some_and(is_complete)
    }

    /// Share of the new pods that exist.
    fn share(&self) -> f64 {
        let Some(deployment) = &self.deployment else { return 0.0 };
        if deployment.status.observed_generation < deployment.metadata.generation {
            return 0.0;
        }
        let (updated, replicas) = (deployment.status.updated_replicas, deployment.replicas());
        if replicas > 0 { f64::from(updated.min(replicas)) / f64::from(replicas) } else { 1.0 }
    }

    /// Time without events after which the progress deadline has failed. 0 if it does not fail during the run: `History`
    /// computes the time of a later failure.
    fn deadline(&self) -> Duration {
        let deadline = self.deployment.as_ref().filter(|_| !self.is_rolled_out());
        let seconds = deadline.and_then(rollout::progress_deadline);
        let deadline = seconds
            .map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds.max(0).unsigned_abs().into()));
        if deadline < LIMIT { deadline + QUIET_STUCK } else { Duration::ZERO }
    }

    /// Time without events after which nothing more happens, except for the failure of the deadline.
    fn quiet(&self, timings: &Timings) -> Duration {
        if self.terminating.is_empty() && self.is_rolled_out() {
            return QUIET_COMPLETE;
        }
        let min_ready = self.deployment.as_ref().map_or(0, |deployment| deployment.spec.min_ready_seconds);
        let min_ready = Duration::from_secs(u64::try_from(min_ready).unwrap_or(0));
        let failure = self.deployment.as_ref().and_then(|deployment| deployment.condition(REPLICA_FAILURE));
        let back_off = failure.map_or(Duration::ZERO, |_| MAX_BACK_OFF);
        let pods = timings.ready_after().max(timings.stop_after());
        pods.max(min_ready).max(back_off).saturating_add(QUIET_STUCK)
    }
}

/// `true` if the controller has finished the rollout of the current generation.
pub(crate) fn is_complete(deployment: &Deployment) -> bool {
    deployment.status.observed_generation >= deployment.metadata.generation
        && rollout::is_complete(deployment, &deployment.status)
}

/// Records the writes of the controllers, and chooses the pods that never become ready.
struct Recorder {
    clock: Arc<dyn Clock>,
    unready: Unready,
    /// Set after the server is created. Weak, because the server owns the recorder.
    server: OnceLock<Weak<ApiServer>>,
    /// Monotonic time of the change.
    started: Mutex<Duration>,
    requests: Mutex<Vec<ControllerWrite>>,
    state: Mutex<RecorderState>,
}

#[derive(Default)]
struct RecorderState {
    /// Number of pods that were chosen.
    chosen: usize,
    /// `true` for the UIDs of ReplicaSets with the new template.
    is_new: HashMap<String, bool>,
}

impl Recorder {
    fn new(clock: Arc<dyn Clock>, unready: Unready) -> Self {
        Self {
            clock,
            unready,
            server: OnceLock::new(),
            started: Mutex::default(),
            requests: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// All HTTP requests are those of the controllers.
    fn handle(&self, event: &AuditEvent) {
        let Some(object) = &event.object else { return };
        if !matches!(event.verb, "create" | "update" | "patch" | "delete") {
            return;
        }
        let body = event.request_object.as_ref().unwrap_or(&Value::Null);
        let owner = list(body, "/metadata/ownerReferences").first();
        let name = if object.name.is_empty() { text(body, "/metadata/name") } else { &object.name };
        self.requests.lock().push(ControllerWrite {
            at: self.clock.monotonic().saturating_sub(*self.started.lock()),
            verb: event.verb,
            resource: object.resource.clone(),
            subresource: object.subresource.clone(),
            name: name.to_owned(),
            owner: owner.map(|owner| text(owner, "/name").to_owned()).unwrap_or_default(),
            replicas: number(body, "/spec/replicas"),
            error: event.failure.as_ref().map(|failure| failure.message.clone()),
        });
        let created_pod = event.verb == "create" && object.resource == "pods" && event.failure.is_none();
        if let (true, Some(owner)) = (created_pod, owner)
            && let Some(server) = self.server.get().and_then(Weak::upgrade)
            && self.chooses(&server, text(owner, "/uid"))
        {
            let never = json!({ "metadata": { "annotations": { "kube-sandbox/ready": "never" } } });
            let (resource, namespace) = (Resource::PODS, &object.namespace);
            let options = WriteOptions::default();
            // The pod exists, and annotations are valid.
            let _ = server.patch(resource, namespace, name, None, Patch::strategic(never), &options);
        }
    }

    /// Returns `true` if a pod that the ReplicaSet `uid` has created must never become ready.
    fn chooses(&self, server: &ApiServer, uid: &str) -> bool {
        let mut state = self.state.lock();
        if let Unready::First(count) = self.unready
            && state.chosen >= count
        {
            return false;
        }
        let is_new = match state.is_new.get(uid) {
            Some(is_new) => *is_new,
            None => {
                let is_new = is_newest(server, uid);
                state.is_new.insert(uid.to_owned(), is_new);
                is_new
            }
        };
        state.chosen += usize::from(is_new);
        is_new
    }
}

/// Returns `true` if no ReplicaSet has a higher revision than `uid`. The controller sets the revision of the new
/// ReplicaSet before it scales it.
fn is_newest(server: &ApiServer, uid: &str) -> bool {
    let revision = |set: &Object| set.annotation(REVISION).and_then(|text| text.parse::<i64>().ok());
    let sets = all(server, Resource::REPLICA_SETS);
    let own = sets.iter().find(|set| set.uid() == uid).and_then(|set| revision(set));
    sets.iter().all(|set| revision(set) <= own)
}
