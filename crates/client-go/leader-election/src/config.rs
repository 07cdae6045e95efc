//! What an election is run with.

use std::{fmt, sync::Arc, time::Duration};

use kcm_api::{Labels, ObjectKey};
use kcm_clock::{Clock, Random};
use kcm_events::EventRecorder;
use thiserror::Error;

use crate::{ElectionMetrics, LeaseLock, NoElectionMetrics};

/// By how much of itself the wait between two tries to become leader is stretched at most.
///
/// Upstream counterpart: `leaderelection.JitterFactor`.
pub const JITTER_FACTOR: f64 = 1.2;

/// What an election is run with.
///
/// Upstream counterpart: `leaderelection.LeaderElectionConfig`.
#[derive(Clone)]
pub struct LeaderElectionConfig {
    /// The Lease to hold.
    pub lease: ObjectKey,
    /// What the election is called in metrics and in the health check. Upstream: the Lease's name.
    pub name: String,
    /// Who this candidate is; see [`identity`].
    pub identity: String,
    /// Whether nobody else can have this candidate's identity, not even this candidate before a restart.
    ///
    /// If so, what is written in its name and was not written by it is taken for somebody else's: the candidate waits
    /// for it to run out, and a leader that finds it stops. If not, it is logged and taken for its own, as upstream
    /// does; then a restarted candidate leads again at once, and two that run at the same time both lead.
    pub unique_identity: bool,
    /// How long others wait after they last saw a leader's record change. Whole seconds count, as in the record.
    pub lease_duration: Duration,
    /// How long after its last renewal a leader gives up.
    pub renew_deadline: Duration,
    /// How long to wait between two tries.
    pub retry_period: Duration,
    /// Whether to give the Lease back once there is nothing left to lead, so that another takes it at once.
    pub release_on_cancel: bool,
    /// Labels that the holder puts on the Lease. Other labels stay.
    pub labels: Labels,
    /// How to reach the Lease.
    pub lock: Arc<dyn LeaseLock>,
    /// Who is told, on the Lease, that this candidate became leader or stopped leading.
    pub recorder: Option<Arc<dyn EventRecorder>>,
    /// Who else is told.
    pub metrics: Arc<dyn ElectionMetrics>,
    /// Where the time comes from. Deadlines use the monotonic clock only.
    pub clock: Arc<dyn Clock>,
    /// Where jitter comes from.
    pub random: Arc<dyn Random>,
}

/// A configuration with which an election would not work. Displays as upstream's validation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ElectionConfigError {
    /// A leader would still lead when others take over.
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseNotAboveDeadline,
    /// A leader would give up before it has tried twice.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    DeadlineNotAboveRetry,
    /// Tries would follow one another without a pause.
    #[error("retryPeriod must be greater than zero")]
    NoRetryPeriod,
    /// The record holds whole seconds: others would not wait at all.
    ///
    /// DEVIATION: upstream starts, and the API server then refuses the Lease.
    #[error("leaseDuration must be at least one second")]
    LeaseUnderOneSecond,
    /// The record would say that nobody leads.
    #[error("Lock identity is empty")]
    NoIdentity,
}

impl LeaderElectionConfig {
    /// An election with upstream's periods: 15 s, 10 s and 2 s. Nobody is told anything, nothing is given back.
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

    /// How long one request may take: short enough that a single one that hangs does not cost the leadership.
    ///
    /// Upstream counterpart: the HTTP time-out in `resourcelock.NewFromKubeconfig`.
    pub fn request_time_out(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// How long after the start of its last successful write a leader leads at most.
    ///
    /// Below what others wait: they count from when they saw that write, which was not before it started.
    pub fn leadership_duration(&self) -> Duration {
        // A lease of 1.9 s is written as 1 s.
        self.renew_deadline.min(Duration::from_secs(self.lease_duration.as_secs()))
    }

    /// Whether an election would work like this, in upstream's order.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
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

/// An identity that nobody else has: the host's name, an underscore and a random UUID (US-1.6).
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
    fn config_with_the_defaults_of_upstream_is_valid() {
        assert_eq!(with(15_000, 10_000, 2_000).validate(), Ok(()));
        let config = with(15_000, 10_000, 2_000);
        assert_eq!(config.name, "kube-controller-manager");
        assert_eq!(config.request_time_out(), Duration::from_secs(5));
        assert_eq!(config.leadership_duration(), Duration::from_secs(10));
    }

    #[test]
    fn config_whose_periods_do_not_fit_is_refused_in_the_words_of_upstream() {
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
    fn config_without_an_identity_is_refused() {
        let config = LeaderElectionConfig { identity: String::new(), ..with(15_000, 10_000, 2_000) };
        assert_eq!(refusal(&config), "Lock identity is empty");
    }

    #[test]
    fn request_may_take_a_second_however_short_the_deadline() {
        assert_eq!(with(3_000, 1_500, 500).request_time_out(), Duration::from_secs(1));
    }

    #[test]
    fn leadership_is_never_longer_than_the_seconds_that_others_read() {
        assert_eq!(with(1_900, 1_800, 500).leadership_duration(), Duration::from_secs(1));
    }

    #[test]
    fn identity_is_host_and_uuid_and_never_the_same() {
        let random = SeededRandom::new(1);
        let (one, other) = (identity("node-a", &random), identity("node-a", &random));
        assert_ne!(one, other);
        let (host, uuid) = one.split_once('_').unwrap();
        assert_eq!(host, "node-a");
        assert_eq!(uuid::Uuid::parse_str(uuid).unwrap().get_version_num(), 4);
    }
}
