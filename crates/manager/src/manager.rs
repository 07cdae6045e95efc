//! Lifecycle of a manager: standby, leader, shutdown.

use std::{fmt, future::pending, pin::pin, sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_client::{ApiClient, Decode, Kind, ListParams, RateLimit};
use kcm_informer::{
    Deleted, EventHandler, Indexers, InformerConfig, InformerOptions, ListWatch, SharedInformer,
    SharedInformerFactory,
};
use kcm_leader_election::{ElectionConfigError, ElectionOutcome, HEALTH_CHECK_NAME, HEALTH_TOLERANCE};
use kcm_meta::{ApiResource, Object};
use kcm_runtime::{Controller, Reconciler};
use kcm_serving::HealthChecks;
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Context, ControllerError, Controllers, Dependencies, Metrics, Port, RunError, Runner, Settings, Standby,
    controllers::Constructor, election::Election, informers::Informers, liveness::liveness,
};

/// Name of the client that lists and watches (US-1.3).
const SHARED_INFORMERS: &str = "shared-informers";

/// Time after which a worker counts as stuck.
const STUCK: Duration = Duration::from_secs(300);

/// Time for the API server to become healthy (US-1.1).
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between health checks of the API server.
const API_SERVER_INTERVAL: Duration = Duration::from_secs(1);

/// Controllers of a process with what they share: clients, informers, event recorders, metrics, and leader election if the
/// settings contain it.
///
/// Informers and controllers are added before the manager runs. The manager runs them in the order that is safe: informers as
/// soon as it runs, controllers after the election and a refresh of the caches.
///
/// Upstream counterpart: the body of `Run`, and `ControllerContext`.
pub struct Manager {
    settings: Settings,
    context: Context,
    election: Option<Election>,
    health: HealthChecks,
    reader: ApiClient,
    informers: SharedInformerFactory,
    controllers: Vec<(String, Constructor)>,
    restored: Arc<watch::Sender<bool>>,
    port: Option<Port>,
}

impl Manager {
    /// Manager with `settings`.
    ///
    /// With leader election, all clients of its [context](Self::context) write only while this process leads.
    ///
    /// # Errors
    ///
    /// If the settings of leader election are invalid.
    ///
    /// # Panics
    ///
    /// With leader election, outside of a Tokio runtime.
    pub fn new(settings: Settings, dependencies: Dependencies) -> Result<Self, ElectionConfigError> {
        let Some(election) = &settings.leader_election else {
            return Ok(Self::without_election(settings, dependencies));
        };
        let election = Election::new(election, &settings, &dependencies)?;
        let gate = election.gate();
        let clients = dependencies.clients.gated(move || gate.remaining());
        let dependencies = Dependencies { clients, ..dependencies };
        Ok(Self::in_election(Some(election), settings, dependencies))
    }

    /// Manager that ignores the settings of leader election. No other process may run the same controllers.
    pub fn without_election(settings: Settings, dependencies: Dependencies) -> Self {
        Self::in_election(None, settings, dependencies)
    }

    fn in_election(election: Option<Election>, settings: Settings, dependencies: Dependencies) -> Self {
        let reader = dependencies.clients.client(SHARED_INFORMERS, settings.rate_limit);
        let context = Context::new(dependencies, &settings);
        Self {
            settings,
            context,
            election,
            health: HealthChecks::new(),
            reader,
            informers: SharedInformerFactory::new(),
            controllers: Vec::new(),
            restored: Arc::default(),
            port: None,
        }
    }

    /// Sets the health checks that the manager adds its checks to: leader election and controllers. Required before controllers
    /// are [added](Self::add).
    #[must_use]
    pub fn with_health(self, health: HealthChecks) -> Self {
        Self { health, ..self }
    }

    /// Sets the secure port, which is served while the manager runs, also by a standby.
    #[must_use]
    pub fn with_port(self, port: Port) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Clients, recorders and metrics of the manager.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Client that informers list and watch with.
    pub fn reader(&self) -> &ApiClient {
        &self.reader
    }

    /// Informer of the objects of a type that `params` selects. Further calls for the same objects return it, so controllers
    /// share its cache. [`add_indexers`](SharedInformer::add_indexers) adds indexes.
    pub fn informer<K: Kind<Decoder: Decode<K>>>(&self, params: ListParams) -> SharedInformer<K> {
        let ApiResource { group, version, plural, .. } = K::resource();
        let mut name =
            if group.is_empty() { plural.into_owned() } else { format!("{plural}.{version}.{group}") };
        if params.metadata_only {
            name.push_str("/metadata");
        }
        let options = InformerOptions::new(name).labels(&*params.labels).fields(&*params.fields);
        self.informer_of(&options, Indexers::new(), || self.reader.api::<K>().list_watch(params))
    }

    /// Informer of the objects of `source`. Further calls with the same type and options return it, with their `indexers` added.
    ///
    /// `source` must not request an informer: the call would deadlock.
    pub fn informer_of<K: Object>(
        &self,
        options: &InformerOptions,
        indexers: Indexers<K>,
        source: impl FnOnce() -> Arc<dyn ListWatch<K>>,
    ) -> SharedInformer<K> {
        let informer = self.informers.informer(options, || {
            let Dependencies { clock, random, metrics, .. } = self.context.dependencies();
            let new =
                InformerConfig::new(&*options.resource, source(), Arc::clone(clock), Arc::clone(random));
            let informer = SharedInformer::new(InformerConfig {
                resync: Some(self.settings.min_resync_period),
                streaming_lists: self.settings.streaming_lists,
                metrics: metrics.as_ref().map_or(new.metrics, Metrics::informers),
                ..new
            });
            informer.add_handler(Arc::new(RestoreHandler(Arc::clone(&self.restored))));
            informer
        });
        informer.add_indexers(indexers);
        informer
    }

    /// Adds a controller that was built by [`Context::controller`]. Its workers run while this process leads.
    ///
    /// A health check with its name fails while a worker is busy for five minutes with one key.
    pub fn add<R: Reconciler>(&mut self, controller: Controller<R>) -> &mut Self {
        let health = controller.health();
        let check = move || health.responsive(STUCK).map_err(|error| error.to_string());
        self.health.add(format!("{}-workers", controller.name()), Arc::new(check));
        self.add_constructor(controller.name(), move |_| {
            Box::new(move |stop| Box::pin(async move { _ = controller.run(stop).await }))
        })
    }

    /// Adds a controller that `constructor` constructs when this process starts to lead. Until then it takes no memory, and its
    /// handlers receive no events.
    pub fn add_constructor(
        &mut self,
        name: impl Into<String>,
        constructor: impl FnOnce(&Context) -> Runner + Send + Sync + 'static,
    ) -> &mut Self {
        self.controllers.push((name.into(), Box::new(constructor)));
        self
    }

    /// Starts the informers and the controllers, without leader election. No other process may run the same controllers.
    ///
    /// Workers start when the caches have synced. Requests are retried while the API server is unreachable. The secure port is
    /// not served.
    ///
    /// For a manager [without election](Self::without_election): the clients of another one write only in [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn start(self) -> Controllers {
        if self.election.is_some() {
            tracing::error!("Controllers are started without the election, so all their writes are refused");
        }
        // Controllers are constructed before the informers run, so that no handler is added to a filled store.
        self.idle().run()
    }

    /// Starts the informers, without leader election.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn stand_by(self) -> Standby {
        let mut standby = self.idle();
        standby.run_idle_informers();
        standby
    }

    fn idle(self) -> Standby {
        let idle = self.informers.informers();
        self.context.dependencies().informer_sync.set(&idle);
        Standby {
            context: self.context,
            constructors: self.controllers,
            idle,
            informers: Informers::default(),
            restored: self.restored,
            start_interval: self.settings.controller_start_interval,
            shutdown_timeout: self.settings.controller_shutdown_timeout,
        }
    }

    /// Runs the controllers until `shutdown`, then stops them gracefully.
    ///
    /// With leader election, the controllers run only while this process is the leader. Before, it is a [`Standby`],
    /// which retries without a limit while the API server is unreachable. Writes of a former leader are blocked
    /// ([`ClientFactory::gated`](kcm_client::ClientFactory::gated)).
    ///
    /// After shutdown, and after a restore of the API server's storage, the lease is released. If the outcome of a write is
    /// unknown, the lease is left to expire instead: the API server may still perform the write.
    ///
    /// # Errors
    ///
    /// If the port cannot be served, the API server is not healthy within ten seconds of the start (with leader election, of
    /// becoming the leader), a controller fails or does not stop in time, the lease is lost, or the API server returns an older
    /// Lease (to the leader) or an older list than before, because its storage was restored from a backup.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), RunError> {
        match self.port.take() {
            Some(port) => {
                let placement = self.context.dependencies().placement;
                port.serve_while(placement, self.run_controllers(shutdown)).await
            }
            None => self.run_controllers(shutdown).await,
        }
    }

    async fn run_controllers(mut self, shutdown: CancellationToken) -> Result<(), RunError> {
        let supervisor = Supervisor {
            name: self.settings.name,
            dependencies: self.context.dependencies().clone(),
            health: self.health.clone(),
        };
        let (Some(election), Some(settings)) = (self.election.take(), &self.settings.leader_election) else {
            return supervisor.run_alone(self, shutdown).await;
        };
        let unserved = &self.settings.unserved;
        if !unserved.is_empty() {
            let (lease, controllers) = (&*settings.resource_name, unserved.join(","));
            tracing::error!(lease, controllers, "Controllers that no process runs while this process leads");
        }
        let (status, alive) = (election.status(), liveness(self.context.clock()));
        let check = move || {
            alive()?;
            status.check(HEALTH_TOLERANCE).map_err(|error| error.to_string())
        };
        self.health.add(HEALTH_CHECK_NAME, Arc::new(check));
        let clients = self.context.dependencies().clients.clone();
        let standby = self.stand_by();
        let (elected, ready) = (CancellationToken::new(), oneshot::channel());
        let standby = stand_by(standby, elected.clone(), ready.0);
        let work = supervisor.lead(ready.1, shutdown.clone(), election.restored());
        let (finish, finished) = oneshot::channel();
        let mut election = pin!(election.run(shutdown, elected.clone(), finished));
        let work = async {
            elected.cancelled().await;
            on_own_task(work).await
        };
        let outcome = tokio::select! {
            biased;
            ended = &mut election => return match ended? {
                ElectionOutcome::Lost(loss) => Err(RunError::LeaseLost(loss)),
                ElectionOutcome::NeverLed | ElectionOutcome::Finished(()) => {
                    tracing::info!("Shutting down before becoming leader");
                    Ok(())
                }
            },
            outcome = work => outcome,
            failure = standby => return Err(failure.into()),
        };
        if !clients.writes_have_settled() {
            // Drops the election, which ends the leadership without a release of the lease.
            return outcome;
        }
        // An error means that the lease is lost.
        let _ = finish.send(());
        match election.await? {
            ElectionOutcome::Lost(loss) => Err(RunError::LeaseLost(loss)),
            ElectionOutcome::NeverLed | ElectionOutcome::Finished(()) => outcome,
        }
    }
}

/// Supervision of the controllers of a manager.
struct Supervisor {
    /// Name of the program.
    name: &'static str,
    dependencies: Dependencies,
    health: HealthChecks,
}

impl Supervisor {
    async fn run_alone(self, manager: Manager, shutdown: CancellationToken) -> Result<(), RunError> {
        let Some(outcome) = shutdown.run_until_cancelled(self.wait_for_api_server()).await else {
            return Ok(());
        };
        outcome?;
        self.supervise(manager.start(), shutdown, &Notify::new()).await
    }

    /// Waits for the API server, refreshes the caches and runs the controllers.
    async fn lead(
        self,
        standby: oneshot::Receiver<Standby>,
        shutdown: CancellationToken,
        restored: Arc<Notify>,
    ) -> Result<(), RunError> {
        // The sender is dropped only if the standby failed. That ends `run`.
        let Ok(standby) = standby.await else { return pending().await };
        let ready = async {
            self.wait_for_api_server().await?;
            Ok::<_, RunError>(standby.lead().await?)
        };
        let Some(ready) = shutdown.run_until_cancelled(ready).await else { return Ok(()) };
        self.supervise(ready?, shutdown, &restored).await
    }

    /// Runs until `shutdown`, until a controller fails or until the API server's storage was `restored`, then stops all
    /// controllers.
    async fn supervise(
        &self,
        mut controllers: Controllers,
        shutdown: CancellationToken,
        restored: &Notify,
    ) -> Result<(), RunError> {
        let alive = liveness(Arc::clone(&self.dependencies.clock));
        for name in controllers.names() {
            if let Some(metrics) = &self.dependencies.metrics {
                metrics.controller_running(&name, true);
            }
            // DEVIATION: upstream's check always passes.
            self.health.add(name, Arc::clone(&alive));
        }
        let failure = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            failure = controllers.failed() => Some(failure),
            () = restored.notified() => Some(ControllerError::Restored),
        };
        tracing::info!("Shutting down");
        if let Some(failure @ ControllerError::Restored) = failure {
            // A sync of a queued key would read caches of different times.
            controllers.abort().await;
            return Err(failure.into());
        }
        let stopped = controllers.stop().await;
        // An error of the shutdown is a consequence of the failure.
        Ok(failure.map_or(stopped, Err)?)
    }

    /// Upstream counterpart: `WaitForAPIServer`.
    async fn wait_for_api_server(&self) -> Result<(), RunError> {
        let client = self.dependencies.clients.client(self.name, RateLimit::UNLIMITED);
        let clock = &self.dependencies.clock;
        let mut last = ApiError::Timeout(format!("GET {}/healthz", client.server()));
        let attempts = async {
            loop {
                match client.health().await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::debug!(err = %error, "API server is not healthy, retrying");
                        last = error;
                    }
                }
                clock.sleep(API_SERVER_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = attempts => return Ok(()),
            () = clock.sleep(API_SERVER_TIMEOUT) => {}
        }
        let server = match client.server() {
            "" => "in this process".to_owned(),
            server => format!("at {server}"),
        };
        Err(RunError::ApiServer { server, timeout: API_SERVER_TIMEOUT, cause: last })
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Sends `true` when a list is older than the one before it.
struct RestoreHandler(Arc<watch::Sender<bool>>);

impl<K> EventHandler<K> for RestoreHandler {
    fn on_add(&self, _: &Arc<K>, _: bool) {}

    fn on_update(&self, _: &Arc<K>, _: &Arc<K>) {}

    fn on_delete(&self, _: &Deleted<K>) {}

    fn on_restore(&self) {
        self.0.send_replace(true);
    }
}

/// Watches `standby` until this process is `elected`, then sends it to `leader`. Returns if the standby fails.
async fn stand_by(
    mut standby: Standby,
    elected: CancellationToken,
    leader: oneshot::Sender<Standby>,
) -> ControllerError {
    tokio::select! {
        biased;
        () = elected.cancelled() => {}
        failure = standby.failed() => return failure,
    }
    // The receiver is dropped only at shutdown.
    let _ = leader.send(standby);
    pending().await
}

/// Runs `work` on its own task, so that it cannot delay a renewal of the lease. A panic is propagated.
///
/// # Cancel safety
///
/// Dropping the future aborts the task.
async fn on_own_task<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(outcome)) => return outcome,
        Some(Err(error)) => {
            if let Ok(payload) = error.try_into_panic() {
                std::panic::resume_unwind(payload);
            }
        }
        None => {}
    }
    // The task is cancelled only if the runtime shuts down.
    pending().await
}

#[cfg(test)]
mod tests;
