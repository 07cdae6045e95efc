//! All of it in one value.

use std::sync::Arc;

use kcm_api::Deployment;
use kcm_client::{NoObserver, Observer};
use kcm_clock::Clock;
use kcm_controller_util::{NoSyncMetrics, SyncMetrics};
use kcm_informer::{EventHandler, InformerMetrics};
use kcm_leader_election::{ElectionObserver, LeaderGate, NoObserver as NoElectionObserver};
use kcm_replicaset_controller::ReplicaSetMetrics;
use kcm_workqueue::MetricsProvider;
use thiserror::Error;

use crate::{BuildInfo, MetricsOptions};

/// Why there are no metrics.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// An option is wrong.
    #[error("{0}")]
    Option(String),
}

/// What came of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthStatus {
    /// It is well.
    Success,
    /// It is not.
    Error,
}

/// All that one process counts. Clones are handles to the same counts.
#[derive(Clone)]
pub struct Metrics {}

struct Nobody;
impl EventHandler<Deployment> for Nobody {
    fn on_add(&self, _: &Arc<Deployment>, _: bool) {}
    fn on_update(&self, _: &Arc<Deployment>, _: &Arc<Deployment>) {}
    fn on_delete(&self, _: &kcm_informer::Deleted<Deployment>) {}
}

impl Metrics {
    /// The media type of [`text`](Self::text).
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

    /// Nothing counted so far.
    ///
    /// # Errors
    ///
    /// When an option is wrong.
    pub fn new(options: &MetricsOptions, clock: Arc<dyn Clock>, build: &BuildInfo) -> Result<Self, MetricsError> {
        let _ = (options, clock, build);
        Ok(Self {})
    }

    /// What `/metrics` answers.
    pub fn text(&self) -> String {
        String::new()
    }

    /// What `/metrics/slis` answers.
    pub fn slis_text(&self) -> String {
        String::new()
    }

    /// For queues: pass it as `queue_metrics`.
    pub fn queues(&self) -> Arc<dyn MetricsProvider> {
        Arc::new(kcm_workqueue::NoMetrics)
    }

    /// For informers; their names are to be resources, such as `pods`.
    pub fn informers(&self) -> Arc<dyn InformerMetrics> {
        Arc::new(kcm_informer::NoMetrics)
    }

    /// For clients.
    pub fn clients(&self) -> Arc<dyn Observer> {
        Arc::new(NoObserver)
    }

    /// For elections.
    pub fn election(&self) -> Arc<dyn ElectionObserver> {
        Arc::new(NoElectionObserver)
    }

    /// Shows how long `gate` would stay open, for the election called `name`.
    pub fn leader_gate(&self, name: &str, gate: LeaderGate) {
        let _ = (name, gate);
    }

    /// For the ReplicaSet controller.
    pub fn replica_sets(&self) -> Arc<dyn ReplicaSetMetrics> {
        Arc::new(kcm_replicaset_controller::NoMetrics)
    }

    /// For the syncs of `controller`, such as `deployment-controller`.
    pub fn syncs(&self, controller: &str) -> Arc<dyn SyncMetrics> {
        let _ = controller;
        Arc::new(NoSyncMetrics)
    }

    /// Counts rollouts that are stuck: add it to the informer of Deployments.
    pub fn rollouts(&self) -> Arc<dyn EventHandler<Deployment>> {
        Arc::new(Nobody)
    }

    /// Shows how large the objects of a cache are, estimated at each scrape; `name` is the resource, such as `pods`.
    pub fn cache_size(&self, name: &str, estimate: impl Fn() -> usize + Send + Sync + 'static) {
        let _ = (name, estimate);
    }

    /// Notes that `controller` runs now, or no longer does.
    pub fn controller_running(&self, controller: &str, running: bool) {
        let _ = (controller, running);
    }

    /// Shows feature gates: name, stage (`ALPHA`, `BETA`, `DEPRECATED`, empty once stable), whether it is on.
    pub fn features<'a>(&self, gates: impl IntoIterator<Item = (&'a str, &'a str, bool)>) {
        gates.into_iter().for_each(drop);
    }

    /// Notes the outcome of a health check, such as `leaderElection` of the type `healthz`.
    pub fn health_check(&self, name: &str, check_type: &str, status: HealthStatus) {
        let _ = (name, check_type, status);
    }
}
