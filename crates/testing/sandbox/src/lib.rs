//! A cluster in one process: the embedded API server and what it needs around it.
//!
//! *Upstream counterpart:* none; the parts stand in for kube-scheduler, the kubelet (after KWOK's model), the
//! garbage collector, the namespace, service account and disruption controllers, as far as Deployments and
//! `kubectl` notice them.
//!
//! The stand-ins use the server's in-process calls, start only with a server that is embedded, and are silent once
//! all is settled. Delays are those of [`KubeletConfig`]; all waiting goes through the clock given, so a sandbox
//! runs in simulated time as well. They share a thread with the server in simulated time, and threads otherwise: each
//! does a bounded amount of work and then yields.
//!
//! *What must not live here:* anything that the controllers rely on, HTTP, files.

mod api;
pub mod demo;
mod disruption;
mod garbage_collector;
mod kubelet;
mod namespaces;
mod nodes;
mod pace;
mod scheduler;
mod timers;

use std::sync::Arc;

use kcm_apiserver::{ApiServer, ApiStatus};
use kcm_clock::{Clock, Random};
use tokio_util::sync::CancellationToken;

use self::{
    api::Api, disruption::Disruption, garbage_collector::GarbageCollector, kubelet::Kubelet,
    namespaces::Namespaces, scheduler::Scheduler,
};

pub use self::kubelet::KubeletConfig;

/// What a sandbox is made from.
#[derive(Debug)]
pub struct SandboxConfig {
    /// The server to stand around.
    pub server: Arc<ApiServer>,
    /// Where the time comes from; the server's clock.
    pub clock: Arc<dyn Clock>,
    /// Where small differences between pods come from.
    pub random: Arc<dyn Random>,
    /// How many simulated nodes there are.
    pub nodes: usize,
    /// How fast they are.
    pub kubelet: KubeletConfig,
}

/// The stand-ins of one server.
#[derive(Debug)]
pub struct Sandbox {
    api: Arc<Api>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    kubelet: KubeletConfig,
}

impl Sandbox {
    /// Gives the server its nodes, and makes ready what will look after it.
    ///
    /// # Errors
    ///
    /// When the server refuses a node.
    pub fn new(config: SandboxConfig) -> Result<Self, ApiStatus> {
        let SandboxConfig { server, clock, random, nodes, kubelet } = config;
        let api = Arc::new(Api::new(server, Arc::clone(&clock)));
        nodes::create(&api, nodes)?;
        Ok(Self { api, clock, random, kubelet })
    }

    /// Looks after the server until `stop`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the stand-ins where they are; what they know they learn again at the next start.
    pub async fn run(&self, stop: CancellationToken) {
        let api = || Arc::clone(&self.api);
        let kubelet = Kubelet::new(self.kubelet, Arc::clone(&self.clock), Arc::clone(&self.random));
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = async {
                tokio::join!(
                    Namespaces::new(Arc::clone(&self.clock)).run(api()),
                    Scheduler::default().run(api()),
                    kubelet.run(api()),
                    GarbageCollector::default().run(api()),
                    Disruption::default().run(api()),
                );
            } => {}
        }
    }
}
