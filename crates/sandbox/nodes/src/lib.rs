//! Simulated cluster in one process: the embedded API server and the components around it.
//!
//! *Upstream counterpart:* `pkg/kubemark`. The components simulate kube-scheduler, the kubelet, the garbage
//! collector, the publishers of the root CA and of the Service `kubernetes`, and the namespace, service account,
//! disruption and resource quota controllers, as far as Deployments and `kubectl` need them.
//!
//! The components call the embedded API server in process, and write nothing once the cluster is settled. Delays are in
//! [`KubeletConfig`]. All timers use the given clock, so a sandbox also runs in simulated time. Each component does a
//! bounded amount of work before it yields, because all tasks share one thread in simulated time.
//!
//! This crate contains nothing that the controllers depend on, no HTTP and no file access.

mod api;
#[cfg(feature = "rollouts")]
pub mod demo;
mod disruption;
mod garbage_collector;
mod kubelet;
mod namespace_conditions;
mod namespaces;
mod nodes;
mod publishers;
mod quota;
#[cfg(feature = "rollouts")]
mod rollouts;
mod scheduler;
mod timers;
mod yield_budget;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kcm_apiserver::{ApiServer, ApiStatus};
use kcm_clock::{Clock, Random};
use tokio_util::sync::CancellationToken;

use self::{
    api::Api, disruption::Disruption, garbage_collector::GarbageCollector, kubelet::Kubelet,
    namespaces::Namespaces, publishers::Publishers, quota::Quotas, scheduler::Scheduler,
};

pub use self::kubelet::{KubeletConfig, MISSING_IMAGE_TAGS, PodBehavior};
#[cfg(feature = "rollouts")]
pub use self::rollouts::rollout_snapshot;

/// Configuration of a [`Sandbox`].
#[derive(Debug)]
pub struct SandboxConfig {
    /// Embedded API server.
    pub server: Arc<ApiServer>,
    /// Clock; must be the clock of the server.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness for the jitter between pods.
    pub random: Arc<dyn Random>,
    /// Number of simulated nodes.
    pub nodes: usize,
    /// Delays of the simulated kubelet.
    pub kubelet: KubeletConfig,
}

/// Name of the kubelets in `metadata.managedFields`.
const KUBELET: &str = "kubelet";

/// Simulated components of one API server.
#[derive(Debug)]
pub struct Sandbox {
    api: Arc<Api>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    kubelet: KubeletConfig,
    /// Names of the simulated nodes.
    nodes: BTreeSet<String>,
    missing_image_tags: Vec<String>,
    quota_delay: Duration,
    root_ca: Option<String>,
}

impl Sandbox {
    /// Creates the nodes and returns the sandbox. Call [`run`](Self::run) to start the components.
    ///
    /// # Errors
    ///
    /// Returns the error of the API server if a node cannot be created.
    pub fn new(config: SandboxConfig) -> Result<Self, ApiStatus> {
        let SandboxConfig { server, clock, random, nodes, kubelet } = config;
        let api = Arc::new(Api::new(server, Arc::clone(&clock)));
        let nodes = nodes::create(&api.of(KUBELET), nodes)?;
        let missing_image_tags = MISSING_IMAGE_TAGS.map(str::to_owned).into();
        Ok(Self {
            api,
            clock,
            random,
            kubelet,
            nodes,
            missing_image_tags,
            quota_delay: quota::DELAY,
            root_ca: None,
        })
    }

    /// Adds tags to [`MISSING_IMAGE_TAGS`]. Images with these tags cannot be pulled.
    #[must_use]
    pub fn with_missing_image_tags(mut self, tags: impl IntoIterator<Item = String>) -> Self {
        self.missing_image_tags.extend(tags);
        self
    }

    /// Lets the images of all tags be pulled, as in a copy of a real cluster.
    #[must_use]
    pub fn without_missing_image_tags(mut self) -> Self {
        self.missing_image_tags.clear();
        self
    }

    /// Sets the time between a change of an object and the update of the ResourceQuotas that count it. Upstream's quota
    /// controller updates a quota when the watch reports that a pod has ended or was removed, and all quotas every five
    /// minutes. Admission depends on the time only with
    /// [`charge_quota_status`](kcm_apiserver::ApiServerConfig::charge_quota_status).
    #[must_use]
    pub fn with_quota_delay(self, delay: Duration) -> Self {
        Self { quota_delay: delay, ..self }
    }

    /// Adds nodes that exist already, such as copies of another cluster's. Their pods run in the sandbox, too.
    #[must_use]
    pub fn with_existing_nodes(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.nodes.extend(names);
        self
    }

    /// Publishes `root_ca`, PEM-encoded, as ConfigMap `kube-root-ca.crt` in each namespace, and the Service
    /// `default/kubernetes`.
    #[must_use]
    pub fn with_publishers(self, root_ca: String) -> Self {
        Self { root_ca: Some(root_ca), ..self }
    }

    /// Runs the components until `stop` is cancelled.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the components rebuild their state from the API server at the next start.
    pub async fn run(&self, stop: CancellationToken) {
        let api = || Arc::clone(&self.api);
        let (config, nodes, tags) = (self.kubelet, self.nodes.clone(), self.missing_image_tags.clone());
        let kubelet = Kubelet::new(config, nodes, tags, Arc::clone(&self.clock), Arc::clone(&self.random));
        let publishers = async {
            if let Some(root_ca) = self.root_ca.clone() {
                Publishers::new(root_ca).run(api()).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = async {
                tokio::join!(
                    Namespaces::new(Arc::clone(&self.clock)).run(api()),
                    Scheduler::default().run(self.api.of("kube-scheduler")),
                    kubelet.run(self.api.of(KUBELET)),
                    GarbageCollector::default().run(api()),
                    Disruption::default().run(api()),
                    Quotas::new(self.quota_delay).run(api()),
                    publishers,
                );
            } => {}
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
