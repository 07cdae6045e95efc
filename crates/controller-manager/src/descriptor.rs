//! Which controllers there are.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{
    adapters::{ClusterClient, ReplicationControllerClient},
    context::Context,
};

/// A controller that is ready to run until it is told to stop.
pub(crate) type Runner = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// A controller that can be run. To add one is to add one of these to [`CONTROLLERS`].
///
/// Upstream counterpart: `ControllerDescriptor`.
#[derive(Debug)]
pub struct ControllerDescriptor {
    /// What it is called: by `--controllers`, in health checks, and its client in user agents.
    pub name: &'static str,
    /// What else `--controllers` may call it.
    pub aliases: &'static [&'static str],
    /// Whether `*` means it, too.
    pub on_by_default: bool,
    /// Requests every informer that `construct` requests, so that they run before. Only these are
    /// [relisted](crate::Standby::lead) after an election.
    pub(crate) watch: fn(&Context),
    /// Puts it together. Its handlers are in place when this returns, so it misses nothing.
    pub(crate) construct: fn(&Context) -> Runner,
}

/// All controllers, in the order in which they are put together. Upstream's order is random.
pub static CONTROLLERS: &[ControllerDescriptor] = &[
    ControllerDescriptor {
        name: "deployment-controller",
        aliases: &["deployment"],
        on_by_default: true,
        watch: |context| {
            context.deployments();
            context.replica_sets();
            context.pods();
        },
        construct: deployment,
    },
    ControllerDescriptor {
        name: "replicaset-controller",
        aliases: &["replicaset"],
        on_by_default: true,
        watch: |context| {
            context.pods();
            context.replica_sets();
        },
        construct: replica_set,
    },
    ControllerDescriptor {
        name: "replicationcontroller-controller",
        aliases: &["replicationcontroller"],
        // DEVIATION: on upstream. What a manager takes over with `*` is the two controllers above; the one that it
        // takes them from goes on with this one, and two of them, each under a lease of its own, would both create.
        on_by_default: false,
        watch: |context| {
            context.pods();
            context.replication_controllers();
        },
        construct: replication_controller,
    },
];

fn deployment(context: &Context) -> Runner {
    use kcm_deployment_controller::{Config, DeploymentController};
    let client = context.client("deployment-controller");
    let recorder = context.recorder(&client, Config::COMPONENT);
    let client = Arc::new(ClusterClient::new(client));
    let config = Config::new(
        context.clock(),
        context.deployments(),
        context.replica_sets(),
        context.pods(),
        client.clone(),
        client,
        recorder,
    );
    let controller = DeploymentController::new(Config {
        terminating_replicas: context.config().features.deployment_replica_set_terminating_replicas,
        queue_metrics: context.queue_metrics(),
        sync_metrics: context.sync_metrics("deployment-controller"),
        ..config
    });
    let workers = context.config().concurrent_deployment_syncs;
    Box::new(move |stop| Box::pin(async move { controller.run(workers, stop).await }))
}

fn replica_set(context: &Context) -> Runner {
    use kcm_replicaset_controller::{Config, KindConfig, REPLICA_SET, ReplicaSetController};
    let client = context.client("replicaset-controller");
    let recorder = context.recorder(&client, REPLICA_SET.component);
    let client = Arc::new(ClusterClient::new(client));
    let config = Config::new(
        context.clock(),
        context.random(),
        context.pods(),
        context.replica_sets(),
        client.clone(),
        client,
        recorder,
    );
    let features = &context.config().features;
    let controller = ReplicaSetController::new(Config {
        kind_config: KindConfig {
            terminating_replicas: features.deployment_replica_set_terminating_replicas,
            reads_own_writes: features.stale_controller_consistency_replica_set,
            pod_deletion_cost: features.pod_deletion_cost,
            ..REPLICA_SET
        },
        metrics: context.replica_set_metrics(),
        queue_metrics: context.queue_metrics(),
        sync_metrics: context.sync_metrics("replicaset-controller"),
        ..config
    });
    let workers = context.config().concurrent_replica_set_syncs;
    Box::new(move |stop| Box::pin(async move { controller.run(workers, stop).await }))
}

/// The ReplicaSet controller once more, over another type (US-5.11).
fn replication_controller(context: &Context) -> Runner {
    use kcm_replicaset_controller::{Config, KindConfig, REPLICATION_CONTROLLER, ReplicaSetController};
    let client = context.client("replication-controller");
    let recorder = context.recorder(&client, REPLICATION_CONTROLLER.component);
    let controllers = Arc::new(ReplicationControllerClient::new(client.clone()));
    let config = Config::new(
        context.clock(),
        context.random(),
        context.pods(),
        context.replication_controllers(),
        Arc::new(ClusterClient::new(client)),
        controllers,
        recorder,
    );
    let controller = ReplicaSetController::new(Config {
        kind_config: KindConfig {
            pod_deletion_cost: context.config().features.pod_deletion_cost,
            ..REPLICATION_CONTROLLER
        },
        metrics: context.replica_set_metrics(),
        queue_metrics: context.queue_metrics(),
        sync_metrics: context.sync_metrics("replicationcontroller-controller"),
        ..config
    });
    let workers = context.config().concurrent_replication_controller_syncs;
    Box::new(move |stop| Box::pin(async move { controller.run(workers, stop).await }))
}
