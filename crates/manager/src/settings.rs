//! Settings of a manager.

use std::time::Duration;

use kcm_client::RateLimit;

/// Settings of a manager. The defaults are those of upstream's controller manager, without leader election.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Name of the program, such as `website-operator`: component of events about the Lease, and name of the client of the
    /// first health check.
    pub name: &'static str,
    /// Name of this process, such as the pod's. Part of its identity in the Lease, which is unique without it.
    pub host: String,
    /// Rate limit of each client.
    pub rate_limit: RateLimit,
    /// Minimum resync period. Each informer uses a random period of up to twice this time. Zero disables resyncs.
    pub min_resync_period: Duration,
    /// `true` if informers list by a watch, as client-go with `WatchListClient`.
    pub streaming_lists: bool,
    /// Minimum delay before a controller is started; up to twice this time, chosen at random.
    pub controller_start_interval: Duration,
    /// Time for controllers to stop. Zero means no limit.
    pub controller_shutdown_timeout: Duration,
    /// Leader election. `None` disables it; then no other process may run the same controllers.
    pub leader_election: Option<LeaderElectionSettings>,
    /// Controllers that no process runs while this one leads, for an error in the log and a metric.
    pub unserved: Vec<&'static str>,
}

impl Settings {
    /// Settings of the program called `name`.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            host: "localhost".to_owned(),
            rate_limit: RateLimit::DEFAULT,
            min_resync_period: Duration::from_secs(12 * 60 * 60),
            streaming_lists: true,
            controller_start_interval: Duration::ZERO,
            controller_shutdown_timeout: Duration::from_secs(10),
            leader_election: None,
            unserved: Vec::new(),
        }
    }
}

/// Settings of leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionSettings {
    /// Time that a standby waits after the last observed renewal.
    pub lease_duration: Duration,
    /// Time within which the leader must renew the lease.
    pub renew_deadline: Duration,
    /// Time between attempts to acquire or renew the lease.
    pub retry_period: Duration,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
    /// If `true`, the Lease is released when the manager stops.
    pub release_on_cancel: bool,
}

impl LeaderElectionSettings {
    /// Settings with upstream's periods, for a Lease.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            resource_name: name.into(),
            resource_namespace: namespace.into(),
            // DEVIATION: upstream follows the gate `ControllerManagerReleaseLeaderElectionLockOnExit`, which is disabled
            // by default: the next leader waits until the lease has expired.
            release_on_cancel: true,
        }
    }
}
