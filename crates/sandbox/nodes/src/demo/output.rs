//! Output and errors of the demo.

use std::{fmt, time::Duration};

use kcm_apiserver::ApiStatus;
use thiserror::Error;

use super::frame::Frame;

/// Namespace of the demo.
pub(super) const NAMESPACE: &str = "default";
/// Name of the Deployment.
pub(super) const NAME: &str = "web";
/// Maximum duration of a step.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Statistics of a demo run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutStats {
    /// Number of ReplicaSets created.
    pub replica_sets: usize,
    /// Number of pods created.
    pub pods_created: usize,
    /// Number of pods deleted.
    pub pods_deleted: usize,
    /// Number of writes to the API server.
    pub revisions: u64,
    /// Number of observed states with more pods than allowed.
    pub above_max: usize,
    /// Number of observed states with fewer available pods than required.
    pub below_min: usize,
}

/// Output of the demo.
pub trait DemoOutput: Send {
    /// A step begins.
    fn step(&mut self, title: &str);
    /// The Deployment or its ReplicaSets have changed.
    fn frame(&mut self, frame: &Frame);
    /// Minimum time between two frames.
    fn frame_interval(&self) -> Duration;
}

/// Error that ends the demo.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The API server rejected a request.
    #[error("{0}")]
    Api(#[from] ApiStatus),
    /// A step did not complete in time.
    #[error("step \"{step}\" did not complete within {STEP_TIMEOUT:?}; last state: {last}")]
    Timeout {
        /// Title of the step.
        step: String,
        /// Last state.
        last: String,
    },
    /// The rollout cannot be explained.
    #[error(transparent)]
    Diagnose(#[from] kcm_rollouts::DiagnoseError),
    /// An object cannot be decoded.
    #[error("failed to decode {what}: {source}")]
    Decode {
        /// Kind and name of the object.
        what: String,
        /// Cause.
        source: serde_json::Error,
    },
}

/// Durations and statistics of a completed demo.
#[derive(Debug)]
pub struct Summary {
    /// Title and duration of each step.
    pub steps: Vec<(String, Duration)>,
    /// Statistics.
    pub stats: RolloutStats,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, took) in &self.steps {
            writeln!(f, "{:>6.1}s  {title}", took.as_secs_f64())?;
        }
        let RolloutStats { replica_sets, pods_created, pods_deleted, revisions, above_max, below_min } =
            &self.stats;
        writeln!(
            f,
            "{replica_sets} ReplicaSets created, {pods_created} pods created, {pods_deleted} pods deleted, {revisions} \
             writes to the API server"
        )?;
        write!(
            f,
            "availability bounds during rolling updates: maximum exceeded {above_max} times, minimum missed {below_min} \
             times"
        )
    }
}
