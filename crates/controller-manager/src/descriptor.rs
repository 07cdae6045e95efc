//! Controllers of this binary.

use std::sync::Arc;

use kcm_api::{Pod, ReplicaSet};
use kcm_client::ApiClient;
use kcm_controller_util::ReplicaSetControl;
use kcm_informer::SharedInformer;
use kcm_manager::{Context, Runner};
use kcm_replicaset_controller::{
    KindConfig, NoReplicaSetMetrics, REPLICA_SET, REPLICATION_CONTROLLER, ReplicaSetController,
    ReplicaSetControllerConfig, ReplicaSetControllerOptions, ReplicaSetMetrics,
};

use crate::{
    DebugControllers, Metrics,
    adapters::{ClusterClient, RateLimitTurns, ReplicationControllerClient},
    controller_names,
    debug::{self, SYNC_LOG},
    manager_informers::ManagerInformers,
};

/// Constructs a controller. Its handlers are registered when this returns.
pub(crate) type Constructor = Box<dyn FnOnce(&Context) -> Runner + Send + Sync>;

/// Controller of this binary. To add a controller, add an entry to [`CONTROLLERS`] and to the table of names that
/// `--controllers` uses (`controller_names.rs`).
///
/// Upstream counterpart: `ControllerDescriptor`.
#[derive(Debug)]
pub struct ControllerDescriptor {
    /// Name in `--controllers` and health checks, and of the client in user agents.
    pub name: &'static str,
    /// Requests the informers of the controller, and returns its constructor.
    ///
    /// The constructor gets no access to other informers, so a standby runs and [relists](kcm_manager::Standby::lead) exactly
    /// the informers that the controller uses.
    pub(crate) prepare: fn(&ManagerInformers<'_>) -> Constructor,
}

/// All controllers, in the order in which they are constructed. Upstream's order is random.
pub static CONTROLLERS: &[ControllerDescriptor] = &[
    ControllerDescriptor { name: controller_names::DEPLOYMENT, prepare: deployment },
    ControllerDescriptor { name: controller_names::REPLICA_SET, prepare: replica_set },
    ControllerDescriptor { name: controller_names::REPLICATION_CONTROLLER, prepare: replication_controller },
];

fn deployment(informers: &ManagerInformers<'_>) -> Constructor {
    use kcm_deployment_controller::{
        DeploymentController, DeploymentControllerConfig, DeploymentControllerOptions,
    };
    let deployments = informers.deployments();
    let replica_sets = informers.replica_sets();
    let pods = informers.pods();
    informers.explain_rollouts(&deployments, &replica_sets, &pods);
    let (debug, workers) = (informers.debug.cloned(), informers.config.concurrent_deployment_syncs);
    let terminating_replicas = informers.config.features.deployment_replica_set_terminating_replicas;
    Box::new(move |context| {
        let client = context.client(controller_names::DEPLOYMENT);
        let recorder = context.recorder(&client, DeploymentControllerConfig::COMPONENT);
        let client = Arc::new(ClusterClient::new(&client));
        let status_turns = client.status_turns();
        let controller = DeploymentController::new(DeploymentControllerConfig {
            clock: context.clock(),
            deployments,
            replica_sets,
            pods,
            deployment_control: client.clone(),
            replica_set_control: client,
            recorder,
            options: DeploymentControllerOptions {
                terminating_replicas,
                status_turns: Arc::new(status_turns.clone()),
                workers,
                queue_metrics: context.queue_metrics(),
                sync_metrics: context.sync_metrics(controller_names::DEPLOYMENT),
                sync_log: sync_log(debug.as_ref()),
                ..DeploymentControllerOptions::default()
            },
        });
        let controller = Arc::new(controller);
        if let Some(debug) = debug {
            let inspected = Arc::clone(&controller);
            debug.add("deployment", move |key| {
                debug::rate_limited(debug::deployment(&inspected.inspect(key)), key, &status_turns)
            });
        }
        Box::new(move |stop| Box::pin(async move { controller.run(stop).await }))
    })
}

fn replica_set(informers: &ManagerInformers<'_>) -> Constructor {
    let pods = informers.pods();
    let owners = informers.replica_sets();
    let features = &informers.config.features;
    let kind_config = KindConfig {
        terminating_replicas: features.deployment_replica_set_terminating_replicas,
        reads_own_writes: features.stale_controller_consistency_replica_set,
        pod_deletion_cost: features.pod_deletion_cost,
        ..REPLICA_SET
    };
    let workers = informers.config.concurrent_replica_set_syncs;
    let (metrics, debug) = (replica_set_metrics(informers.metrics), informers.debug.cloned());
    Box::new(move |context| {
        let client = context.client(controller_names::REPLICA_SET);
        let control = Arc::new(ClusterClient::new(&client));
        let (name, status_turns) = (controller_names::REPLICA_SET, control.status_turns());
        PodOwners { name, kind_config, workers, pods, owners, control, status_turns, metrics, debug }
            .construct(context, &client)
    })
}

/// The ReplicaSet controller for ReplicationControllers (US-5.11).
fn replication_controller(informers: &ManagerInformers<'_>) -> Constructor {
    let pods = informers.pods();
    let owners = informers.replication_controllers();
    let pod_deletion_cost = informers.config.features.pod_deletion_cost;
    let kind_config = KindConfig { pod_deletion_cost, ..REPLICATION_CONTROLLER };
    let workers = informers.config.concurrent_replication_controller_syncs;
    let (metrics, debug) = (replica_set_metrics(informers.metrics), informers.debug.cloned());
    Box::new(move |context| {
        let client = context.client("replication-controller");
        let control = Arc::new(ReplicationControllerClient::new(&client));
        let (name, status_turns) = (controller_names::REPLICATION_CONTROLLER, control.status_turns());
        PodOwners { name, kind_config, workers, pods, owners, control, status_turns, metrics, debug }
            .construct(context, &client)
    })
}

/// Maximum number of recorded last syncs per controller, one per key.
fn sync_log(debug: Option<&DebugControllers>) -> usize {
    if debug.is_some() { SYNC_LOG } else { 0 }
}

fn replica_set_metrics(metrics: Option<&Metrics>) -> Arc<dyn ReplicaSetMetrics> {
    metrics.map_or_else(|| Arc::new(NoReplicaSetMetrics) as _, Metrics::replica_sets)
}

/// Kind whose objects own pods, for the ReplicaSet controller.
struct PodOwners {
    /// Name of the controller in metrics.
    name: &'static str,
    kind_config: KindConfig,
    workers: usize,
    pods: SharedInformer<Pod>,
    owners: SharedInformer<ReplicaSet>,
    control: Arc<dyn ReplicaSetControl>,
    status_turns: RateLimitTurns,
    metrics: Arc<dyn ReplicaSetMetrics>,
    debug: Option<DebugControllers>,
}

impl PodOwners {
    /// Constructs the controller of the kind, whose requests use `client`.
    fn construct(self, context: &Context, client: &ApiClient) -> Runner {
        let Self { name, kind_config, workers, pods, owners, control, status_turns, metrics, debug } = self;
        let controller = Arc::new(ReplicaSetController::new(ReplicaSetControllerConfig {
            clock: context.clock(),
            random: context.random(),
            pods,
            replica_sets: owners,
            pod_control: Arc::new(ClusterClient::new(client)),
            replica_set_control: control,
            recorder: context.recorder(client, kind_config.component),
            options: ReplicaSetControllerOptions {
                kind_config,
                status_turns: Arc::new(status_turns.clone()),
                workers,
                metrics,
                queue_metrics: context.queue_metrics(),
                sync_metrics: context.sync_metrics(name),
                sync_log: sync_log(debug.as_ref()),
                ..ReplicaSetControllerOptions::default()
            },
        }));
        if let Some(debug) = debug {
            let inspected = Arc::clone(&controller);
            let is_replica_set = name == controller_names::REPLICA_SET;
            let kind = if is_replica_set { "replicaset" } else { "replicationcontroller" };
            debug.add(kind, move |key| {
                debug::rate_limited(debug::replica_set(&inspected.inspect(key)), key, &status_turns)
            });
        }
        Box::new(move |stop| Box::pin(async move { controller.run(stop).await }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_names::KNOWN;

    #[test]
    fn available_controllers_have_a_descriptor() {
        let available = KNOWN.iter().filter(|known| known.is_available()).map(|known| known.name);
        assert!(available.eq(CONTROLLERS.iter().map(|descriptor| descriptor.name)));
    }
}
