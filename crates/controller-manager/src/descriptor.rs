//! Which controllers there are, and which of them are wanted.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::context::Context;

/// A controller that is ready to run until it is told to stop.
pub(crate) type Runner = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// A controller that can be run. To add one is to add one of these to [`CONTROLLERS`].
///
/// Upstream counterpart: `ControllerDescriptor`.
#[derive(Debug)]
pub struct Descriptor {
    /// What it is called: by `--controllers`, in health checks, and its client in user agents.
    pub name: &'static str,
    /// What else `--controllers` may call it.
    pub aliases: &'static [&'static str],
    /// Whether `*` means it, too.
    pub on_by_default: bool,
    /// Asks for the informers that it will ask for when it is put together, so that they can run before.
    pub(crate) watch: fn(&Context),
    /// Puts it together. Its handlers are in place when this returns, so it misses nothing.
    pub(crate) construct: fn(&Context) -> Runner,
}

/// All controllers, in the order in which they are put together. Upstream's order is random.
pub static CONTROLLERS: &[Descriptor] = &[
    Descriptor {
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
    Descriptor {
        name: "replicaset-controller",
        aliases: &["replicaset"],
        on_by_default: true,
        watch: |context| {
            context.pods();
            context.replica_sets();
        },
        construct: replica_set,
    },
    Descriptor {
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
        queue_metrics: context.queue_metrics(),
        sync_metrics: context.sync_metrics("deployment-controller"),
        ..config
    });
    let workers = context.config().concurrent_deployment_syncs;
    Box::new(move |stop| Box::pin(async move { controller.run(workers, stop).await }))
}

fn replica_set(context: &Context) -> Runner {
    use kcm_replicaset_controller::{Config, REPLICA_SET, ReplicaSetController};
    let client = context.client("replicaset-controller");
    let recorder = context.recorder(&client, REPLICA_SET.component);
    let config = Config::new(
        context.clock(),
        context.pods(),
        context.replica_sets(),
        client.clone(),
        client,
        recorder,
    );
    let controller = ReplicaSetController::new(Config {
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
    use kcm_client::ReplicationControllers;
    use kcm_replicaset_controller::{Config, REPLICATION_CONTROLLER, ReplicaSetController};
    let client = context.client("replication-controller");
    let recorder = context.recorder(&client, REPLICATION_CONTROLLER.component);
    let controllers = Arc::new(ReplicationControllers::new((*client).clone()));
    let config = Config::new(
        context.clock(),
        context.pods(),
        context.replication_controllers(),
        client,
        controllers,
        recorder,
    );
    let controller = ReplicaSetController::new(Config {
        descriptor: REPLICATION_CONTROLLER,
        metrics: context.replica_set_metrics(),
        queue_metrics: context.queue_metrics(),
        sync_metrics: context.sync_metrics("replicationcontroller-controller"),
        ..config
    });
    let workers = context.config().concurrent_replication_controller_syncs;
    Box::new(move |stop| Box::pin(async move { controller.run(workers, stop).await }))
}

/// Which controllers are wanted, as `--controllers` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Vec<String>);

/// `--controllers` names what there is not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", in_one_line(.0))]
pub struct UnknownControllers(Vec<String>);

impl Selection {
    /// What `elements` mean: `*`, names and aliases, with a `-` in front for "not".
    ///
    /// # Errors
    ///
    /// When one names no controller. Upstream's words (US-1.4).
    pub fn new(elements: &[String]) -> Result<Self, UnknownControllers> {
        let mut canonical = Vec::with_capacity(elements.len());
        let mut unknown = Vec::new();
        for element in elements {
            let (minus, name) = match element.strip_prefix('-') {
                Some(name) => ("-", name),
                None => ("", element.as_str()),
            };
            if element == "*" {
                canonical.push(element.clone());
            } else if let Some(descriptor) = find(name) {
                canonical.push(format!("{minus}{}", descriptor.name));
            } else {
                unknown.push(name.to_owned());
            }
        }
        if unknown.is_empty() { Ok(Self(canonical)) } else { Err(UnknownControllers(unknown)) }
    }

    /// All that there are, those that are not on by default too: for a cluster in which nobody else runs any.
    pub fn all() -> Self {
        Self(CONTROLLERS.iter().map(|descriptor| descriptor.name.to_owned()).collect())
    }

    /// Whether a controller is wanted: the first element that names it decides, and then `*`.
    pub fn includes(&self, descriptor: &Descriptor) -> bool {
        for element in &self.0 {
            if element == descriptor.name {
                return true;
            }
            if element.strip_prefix('-') == Some(descriptor.name) {
                return false;
            }
        }
        descriptor.on_by_default && self.0.iter().any(|element| element == "*")
    }
}

impl Default for Selection {
    /// All that are on by default.
    fn default() -> Self {
        Self(vec!["*".to_owned()])
    }
}

fn find(name: &str) -> Option<&'static Descriptor> {
    CONTROLLERS.iter().find(|descriptor| descriptor.name == name || descriptor.aliases.contains(&name))
}

/// As upstream joins errors.
fn in_one_line(names: &[String]) -> String {
    let each = names.iter().map(|name| format!("{name:?} is not in the list of known controllers"));
    let each: Vec<_> = each.collect();
    if let [one] = &each[..] { one.clone() } else { format!("[{}]", each.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(elements: &[&str]) -> Vec<&'static str> {
        let elements: Vec<_> = elements.iter().map(|element| (*element).to_owned()).collect();
        let selection = Selection::new(&elements).unwrap();
        CONTROLLERS.iter().filter(|one| selection.includes(one)).map(|one| one.name).collect()
    }

    #[test]
    fn selection_follows_upstreams_rules() {
        let (deployment, replica_set) = ("deployment-controller", "replicaset-controller");
        assert_eq!(selected(&["*"]), [deployment, replica_set]);
        assert_eq!(selected(&["*", "-deployment-controller"]), [replica_set]);
        assert_eq!(selected(&["-replicaset", "*"]), [deployment], "by its alias, and before the star");
        assert_eq!(selected(&["deployment"]), [deployment]);
        let replication_controller = "replicationcontroller-controller";
        assert_eq!(
            selected(&["*", "replicationcontroller"]),
            [deployment, replica_set, replication_controller],
            "the star does not mean it"
        );
        assert!(CONTROLLERS.iter().all(|one| Selection::all().includes(one)));
        assert_eq!(selected(&["deployment", "-deployment"]), [deployment], "the first that names it decides");
        assert_eq!(selected(&["-deployment"]), Vec::<&str>::new(), "a star must be given");
        assert_eq!(selected(&[]), Vec::<&str>::new());
    }

    #[test]
    fn selection_of_unknown_controllers_names_them_without_the_dash() {
        let error = |elements: &[&str]| {
            let elements: Vec<_> = elements.iter().map(|element| (*element).to_owned()).collect();
            Selection::new(&elements).unwrap_err().to_string()
        };
        assert_eq!(error(&["*", "-foo"]), "\"foo\" is not in the list of known controllers");
        assert_eq!(
            error(&["foo", "Deployment"]),
            "[\"foo\" is not in the list of known controllers, \"Deployment\" is not in the list of known controllers]"
        );
        assert_eq!(error(&["-*"]), "\"*\" is not in the list of known controllers");
    }
}
