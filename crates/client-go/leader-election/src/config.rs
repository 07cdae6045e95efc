//! Configuration of an election.

use std::{fmt, sync::Arc, time::Duration};

use kcm_api::{Labels, ObjectKey};
use kcm_clock::{Clock, Random};
use kcm_events::EventRecorder;
use thiserror::Error;

use crate::{ElectionMetrics, LeaseLock, NoElectionMetrics};

/// Maximum jitter of the retry period: a standby waits between 1 and 2.2 retry periods.
///
/// Upstream counterpart: `leaderelection.JitterFactor`.
pub const JITTER_FACTOR: f64 = 1.2;

/// Configuration of an election.
///
/// Upstream counterpart: `leaderelection.LeaderElectionConfig`.
#[derive(Clone)]
pub struct LeaderElectionConfig {
    /// Namespace and name of the Lease.
    pub lease: ObjectKey,
    /// Name of the election in metrics and in the health check. Default: the name of the Lease.
    pub name: String,
    /// Identity of this candidate, see [`identity`].
    pub identity: String,
    /// If `true`, no other process uses the identity of this candidate, including this candidate before a restart.
    ///
    /// Records with this identity that the candidate did not write then belong to another process: a standby waits
    /// until they expire, and a leader stops. If `false`, as upstream, they are logged and count as its own: a
    /// restarted candidate leads again at once, and two processes with the same identity both lead.
    pub unique_identity: bool,
    /// Time that standbys wait after the last observed renewal. Rounded down to seconds. Default: 15 s.
    pub lease_duration: Duration,
    /// Time after the last renewal at which the leader stops. Default: 10 s.
    pub renew_deadline: Duration,
    /// Time between two attempts. Default: 2 s.
    pub retry_period: Duration,
    /// If `true`, the Lease is released after the leader's work has ended, so that another candidate acquires it at
    /// once.
    pub release_on_cancel: bool,
    /// Labels that the leader sets on the Lease. Other labels are kept.
    pub labels: Labels,
    /// Client of the Lease.
    pub lock: Arc<dyn LeaseLock>,
    /// Recorder of events on the Lease: the candidate became leader, or stopped leading.
    pub recorder: Option<Arc<dyn EventRecorder>>,
    /// Metrics.
    pub metrics: Arc<dyn ElectionMetrics>,
    /// Clock. Deadlines use the monotonic clock only.
    pub clock: Arc<dyn Clock>,
    /// Source of jitter.
    pub random: Arc<dyn Random>,
}

/// Invalid configuration. `Display` gives the text of upstream's validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ElectionConfigError {
    /// The leader would still lead when a standby acquires the Lease.
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseNotAboveDeadline,
    /// The leader would stop before its second attempt.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    DeadlineNotAboveRetry,
    /// There would be no time between two attempts.
    #[error("retryPeriod must be greater than zero")]
    NoRetryPeriod,
    /// The record contains whole seconds, so standbys would not wait.
    ///
    /// DEVIATION: upstream starts, and the API server rejects the Lease.
    #[error("leaseDuration must be at least one second")]
    LeaseUnderOneSecond,
    /// The record would have no holder.
    #[error("Lock identity is empty")]
    NoIdentity,
}

impl LeaderElectionConfig {
    /// Creates a configuration with upstream's periods. The Lease is not released, and no events or metrics are
    /// recorded.
    pub fn new(
        lease: ObjectKey,
        identity: impl Into<String>,
        lock: Arc<dyn LeaseLock>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            name: lease.name.as_ref().to_owned(),
            lease,
            identity: identity.into(),
            unique_identity: false,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: false,
            labels: Labels::new(),
            lock,
            recorder: None,
            metrics: Arc::new(NoElectionMetrics),
            clock,
            random,
        }
    }

    /// Timeout of a request for the Lease: half of `renew_deadline`, and at least 1 s. A request without a response
    /// leaves time for another one before the deadline.
    ///
    /// Upstream counterpart: the HTTP timeout in `resourcelock.NewFromKubeconfig`.
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// Maximum time that the leader leads after the start of its last renewal.
    ///
    /// It is at most `lease_duration` in whole seconds. Standbys measure from the time at which they observed the
    /// renewal, which is later than its start.
    pub fn leadership_duration(&self) -> Duration {
        // Example: a lease duration of 1.9 s is written as 1 s.
        self.renew_deadline.min(self.renewal_duration())
    }

    /// Time after the start of its last renewal in which the leader tries to renew the Lease, with its gate closed after
    /// [`leadership_duration`](Self::leadership_duration).
    ///
    /// No standby acquires the Lease before that time has passed.
    pub fn renewal_duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration.as_secs())
    }

    /// Checks the configuration, in upstream's order.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn validate(&self) -> Result<(), ElectionConfigError> {
        if self.lease_duration <= self.renew_deadline {
            return Err(ElectionConfigError::LeaseNotAboveDeadline);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) {
            return Err(ElectionConfigError::DeadlineNotAboveRetry);
        }
        if self.lease_duration < Duration::from_secs(1) {
            return Err(ElectionConfigError::LeaseUnderOneSecond);
        }
        if self.retry_period.is_zero() {
            return Err(ElectionConfigError::NoRetryPeriod);
        }
        if self.identity.is_empty() {
            return Err(ElectionConfigError::NoIdentity);
        }
        Ok(())
    }
}

impl fmt::Debug for LeaderElectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElectionConfig")
            .field("lease", &self.lease)
            .field("identity", &self.identity)
            .field("lease_duration", &self.lease_duration)
            .field("renew_deadline", &self.renew_deadline)
            .field("retry_period", &self.retry_period)
            .field("release_on_cancel", &self.release_on_cancel)
            .finish_non_exhaustive()
    }
}

/// Returns a unique identity: host name, underscore and random UUID (US-1.6).
pub fn identity(host: &str, random: &dyn Random) -> String {
    let mut bytes = [0; 16];
    let (high, low) = bytes.split_at_mut(8);
    high.copy_from_slice(&random.next_u64().to_be_bytes());
    low.copy_from_slice(&random.next_u64().to_be_bytes());
    let uuid = uuid::Builder::from_random_bytes(bytes).into_uuid();
    format!("{host}_{uuid}")
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, SeededRandom, Timestamp};

    use super::*;
    use crate::MemoryLock;

    fn with(lease: u64, renew: u64, retry: u64) -> LeaderElectionConfig {
        LeaderElectionConfig {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            ..LeaderElectionConfig::new(
                ObjectKey::new("kube-system", "kube-controller-manager"),
                "me",
                Arc::new(MemoryLock::new()),
                Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH)),
                Arc::new(SeededRandom::new(1)),
            )
        }
    }

    fn refusal(config: &LeaderElectionConfig) -> String {
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(with(15_000, 10_000, 2_000).validate(), Ok(()));
        let config = with(15_000, 10_000, 2_000);
        assert_eq!(config.name, "kube-controller-manager");
        assert_eq!(config.request_timeout(), Duration::from_secs(5));
        assert_eq!(config.leadership_duration(), Duration::from_secs(10));
    }

    #[test]
    fn invalid_periods_are_rejected() {
        assert_eq!(refusal(&with(10_000, 10_000, 2_000)), "leaseDuration must be greater than renewDeadline");
        let retry = "renewDeadline must be greater than retryPeriod*JitterFactor";
        assert_eq!(refusal(&with(15_000, 2_400, 2_000)), retry);
        assert_eq!(with(15_000, 2_401, 2_000).validate(), Ok(()));
        assert_eq!(refusal(&with(15_000, 0, 0)), retry);
        assert_eq!(refusal(&with(15_000, 10_000, 0)), "retryPeriod must be greater than zero");
        assert_eq!(refusal(&with(0, 0, 0)), "leaseDuration must be greater than renewDeadline");
        assert_eq!(refusal(&with(999, 500, 100)), "leaseDuration must be at least one second");
    }

    #[test]
    fn empty_identity_is_rejected() {
        let config = LeaderElectionConfig { identity: String::new(), ..with(15_000, 10_000, 2_000) };
        assert_eq!(refusal(&config), "Lock identity is empty");
    }

    #[test]
    fn request_timeout_is_at_least_one_second() {
        assert_eq!(with(3_000, 1_500, 500).request_timeout(), Duration::from_secs(1));
    }

    #[test]
    fn leadership_is_at_most_the_written_duration() {
        assert_eq!(with(1_900, 1_800, 500).leadership_duration(), Duration::from_secs(1));
    }

    #[test]
    fn identities_are_unique() {
        let random = SeededRandom::new(1);
        let (one, other) = (identity("node-a", &random), identity("node-a", &random));
        assert_ne!(one, other);
        let (host, uuid) = one.split_once('_').unwrap();
        assert_eq!(host, "node-a");
        assert_eq!(uuid::Uuid::parse_str(uuid).unwrap().get_version_num(), 4);
    }
}
