//! Measurements of a run.

use kcm_stories::Entry;
use serde::{Deserialize, Serialize};

use crate::probe::UnderClient;

/// Manager of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Who {
    Upstream,
    Ours,
}

/// Result of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) fault: String,
    pub(crate) manager: Who,
    pub(crate) round: usize,
    /// Counter that shows that the fault reached the manager.
    pub(crate) reached: u64,
    /// Seconds without a leader, from the start of the fault to convergence.
    pub(crate) without_leader: f64,
    /// Number of times that another process took the Lease.
    pub(crate) terms: u64,
    /// Seconds from the end of the fault to convergence. Negative before the end.
    pub(crate) convergence: f64,
    /// `false` if the workload has not converged. `convergence` is the limit then.
    pub(crate) converged: bool,
    /// Pods created by the manager beyond those that the rollout needs.
    pub(crate) excess: i64,
    /// Pod-seconds below the minimum of available pods.
    pub(crate) below_minimum: f64,
    /// Requests that reached the API server, from the start of the rollout to convergence.
    pub(crate) requests: u64,
    /// Largest resident memory of a process in MiB.
    pub(crate) memory: f64,
    /// Exit statuses of the processes.
    pub(crate) exits: Vec<String>,
    /// `true` if a process runs at the end.
    pub(crate) lives: bool,
    /// Measurements under a client of the secure port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) under_client: Option<UnderClient>,
}

/// Counters of the requests of the manager, from the start of the rollout.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// Creations of pods that were refused.
    pub(crate) refused: u64,
    /// Requests without a response, or with a server error.
    pub(crate) failed: u64,
    /// Lists, from the start of the manager.
    pub(crate) lists: u64,
}

impl Tally {
    /// Counts a request.
    pub(crate) fn add(&mut self, entry: &Entry) {
        self.requests += 1;
        self.failed += u64::from(entry.code == 0 || entry.code >= 500);
        self.lists += u64::from(entry.verb == "list");
        if (entry.verb.as_str(), entry.resource.as_str(), entry.subresource.as_str())
            == ("create", "pods", "")
        {
            self.refused += u64::from(entry.code >= 400);
        }
    }
}
