//! Runs a candidate: sends its requests, waits between attempts, and enforces the deadlines.

use std::{fmt, future::Future, pin::pin, sync::Arc, time::Duration};

use kcm_api::{ApiError, Lease, lease};
use kcm_clock::jitter;
use kcm_events::{EventType, ObjectReference};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    AcquireTrigger, AttemptNotice, AttemptResult, Candidate, ElectionConfigError, ElectionStatus,
    LeaderElectionConfig, LeaderGate, Leadership, LeaseRequest, NextStep, Now, config::JITTER_FACTOR,
    gate::Term,
};

/// Minimum time between two attempts of a standby that is triggered repeatedly.
const MIN_TRIGGER_INTERVAL: Duration = Duration::from_millis(100);

/// Time to wait after a conflict before the Lease is released again.
const RELEASE_CONFLICT_BACKOFF: Duration = Duration::from_millis(50);

/// Reason of events on the Lease.
const REASON: &str = "LeaderElection";

/// Takes part in an election.
///
/// Upstream counterpart: `leaderelection.LeaderElector`.
pub struct LeaderElector {
    config: LeaderElectionConfig,
    candidate: Arc<Mutex<Candidate>>,
    gate: LeaderGate,
    acquire_trigger: AcquireTrigger,
    restored: Arc<Notify>,
    /// Last holder that was reported to the metrics. Initially empty.
    reported: String,
}

/// Result of [`LeaderElector::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionOutcome<T> {
    /// It was cancelled before this candidate led.
    NeverLed,
    /// The leader's work ended with this result.
    Finished(T),
    /// The leadership was lost.
    Lost(LossReason),
}

/// Reason for the loss of the leadership.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The Lease could not be renewed before it expired.
    #[error("the lease could not be renewed before it expired")]
    Deadline,
    /// The Lease has another holder.
    #[error("the lease is held by {0:?}")]
    Taken(String),
}

impl LeaderElector {
    /// Creates a candidate. It sends no requests before [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn new(config: LeaderElectionConfig) -> Result<Self, ElectionConfigError> {
        config.validate()?;
        // Rounded down to seconds, as upstream.
        let seconds = i32::try_from(config.lease_duration.as_secs()).unwrap_or(i32::MAX);
        let candidate = Candidate::new(config.lease.clone(), config.identity.clone(), seconds)
            .with_unique_identity(config.unique_identity)
            .with_labels(config.labels.clone());
        config.metrics.leading(&config.name, false);
        Ok(Self {
            gate: LeaderGate::new(Arc::clone(&config.clock)),
            candidate: Arc::new(Mutex::new(candidate)),
            acquire_trigger: AcquireTrigger::default(),
            restored: Arc::default(),
            reported: String::new(),
            config,
        })
    }

    /// Returns the gate that reports whether this candidate leads.
    pub fn gate(&self) -> LeaderGate {
        self.gate.clone()
    }

    /// Returns the status for health checks.
    pub fn status(&self) -> ElectionStatus {
        ElectionStatus {
            name: self.config.name.as_str().into(),
            candidate: Arc::clone(&self.candidate),
            clock: Arc::clone(&self.config.clock),
            lease_duration: self.config.lease_duration,
        }
    }

    /// Returns a trigger that makes this candidate try to acquire the Lease at once.
    pub fn acquire_trigger(&self) -> AcquireTrigger {
        self.acquire_trigger.clone()
    }

    /// Returns a signal that is notified when this candidate leads and the API server returns an older Lease than before:
    /// the storage was restored from a backup. The leader must then list all objects again. Its watches receive neither a
    /// change nor an error until the storage reaches their versions from before the restore.
    ///
    /// DEVIATION: upstream's leader continues with its caches.
    pub fn restored(&self) -> Arc<Notify> {
        Arc::clone(&self.restored)
    }

    /// Waits until this candidate is elected, then runs `lead` and renews the Lease until `lead` ends.
    ///
    /// A standby returns when `cancel` is cancelled. A leader does not: `lead` has to return when `cancel` is
    /// cancelled. The Lease is renewed until `lead` has returned, so that its last writes are covered, and is
    /// released after that if [`release_on_cancel`](LeaderElectionConfig::release_on_cancel) is set.
    ///
    /// When the leadership is lost, the gate closes, [`Leadership::lost`] is cancelled, `lead` is dropped, and this
    /// returns at once. Tasks that `lead` spawned must stop when the token is cancelled. The Lease is not released in
    /// this case, because such tasks may still run.
    ///
    /// `lead` runs on the task that renews the Lease and must not block it.
    ///
    /// Upstream counterpart: `LeaderElector.Run`. `OnStoppedLeading` corresponds to the code after it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the leadership at once. The Lease is not released and expires.
    pub async fn run<F, Fut>(&mut self, cancel: &CancellationToken, lead: F) -> ElectionOutcome<Fut::Output>
    where
        F: FnOnce(Leadership) -> Fut,
        Fut: Future,
    {
        let lock = self.describe();
        let Some(until) = self.acquire(cancel).await else {
            // A write without a response may have acquired the Lease.
            if self.config.release_on_cancel && self.candidate.lock().may_be_holder() {
                self.release().await;
            }
            return ElectionOutcome::NeverLed;
        };
        let term = Term::begin(self.gate.clone(), until);
        self.event("became leader");
        self.config.metrics.leading(&self.config.name, true);
        tracing::info!(lock, "Successfully acquired lease");

        let outcome = {
            let mut lead = pin!(lead(term.leadership()));
            tokio::select! {
                biased;
                loss = self.renew(&term, until) => ElectionOutcome::Lost(loss),
                result = &mut lead => ElectionOutcome::Finished(result),
            }
        };
        drop(term);
        self.config.metrics.leading(&self.config.name, false);
        match &outcome {
            ElectionOutcome::Lost(loss) => tracing::info!(lock, err = %loss, "Failed to renew lease"),
            _ if self.config.release_on_cancel => self.release().await,
            _ => {}
        }
        self.event("stopped leading");
        outcome
    }

    /// Tries until this candidate is elected. Returns the end of its leadership, or `None` if it was cancelled.
    async fn acquire(&mut self, cancel: &CancellationToken) -> Option<Duration> {
        let lock = self.describe();
        tracing::info!(lock, "Attempting to acquire leader lease...");
        loop {
            let result = tokio::select! {
                biased;
                () = cancel.cancelled() => return None,
                result = self.attempt(Duration::MAX) => result,
            };
            self.report_transition();
            if let AttemptResult::Leading { since } = result {
                let until = since.saturating_add(self.config.leadership_duration());
                // The response may arrive after the end of the leadership.
                if self.config.clock.monotonic() < until {
                    return Some(until);
                }
            }
            tracing::debug!(lock, "Failed to acquire lease");
            tokio::select! {
                biased;
                () = cancel.cancelled() => return None,
                () = self.config.clock.timer("lease retry", self.pause()) => {}
                () = self.triggered() => {}
            }
        }
    }

    /// Returns the time to wait before the next attempt of a standby.
    fn pause(&self) -> Duration {
        let pause = jitter(&*self.config.random, self.config.retry_period, JITTER_FACTOR);
        let now = self.config.clock.monotonic();
        // DEVIATION: upstream finds an expired lease at its next attempt, up to 2.2 retry periods later.
        match self.candidate.lock().expires_at() {
            Some(at) if at > now => pause.min(at.saturating_sub(now)),
            _ => pause,
        }
    }

    async fn triggered(&self) {
        let earliest = self.config.clock.monotonic().saturating_add(MIN_TRIGGER_INTERVAL);
        self.acquire_trigger.triggered().await;
        self.until(earliest).await;
    }

    /// Renews the Lease until it has expired or has another holder. The gate closes at `until`, before the Lease expires,
    /// and opens again with the next renewal: no other candidate has led meanwhile.
    ///
    /// DEVIATION: upstream writes and renews until its deadline, which starts a retry period after the end of the last
    /// success, and it does not stop when it reads another holder.
    async fn renew(&mut self, term: &Term, mut until: Duration) -> LossReason {
        let lock = self.describe();
        let clock = Arc::clone(&self.config.clock);
        let retry_period = self.config.retry_period;
        // Time between the end of the leadership and the expiry of the Lease.
        let grace = self.config.renewal_duration().saturating_sub(self.config.leadership_duration());
        let mut next = clock.monotonic().saturating_add(retry_period);
        loop {
            let expiry = until.saturating_add(grace);
            tokio::select! {
                biased;
                () = self.until(expiry) => return LossReason::Deadline,
                () = clock.timer("lease renewal", next.saturating_sub(clock.monotonic())) => {}
            }
            let start = clock.monotonic();
            if start >= expiry {
                // The timers did not run while the machine was suspended.
                return LossReason::Deadline;
            }
            let result = tokio::select! {
                biased;
                () = self.until(expiry) => return LossReason::Deadline,
                result = self.attempt(expiry) => result,
            };
            self.report_transition();
            next = match result {
                AttemptResult::Leading { since } => {
                    if clock.monotonic() >= until {
                        tracing::warn!(
                            lock,
                            "Renewed lease after its deadline; writes were rejected meanwhile"
                        );
                    } else {
                        tracing::trace!(lock, "Successfully renewed lease");
                    }
                    until = since.saturating_add(self.config.leadership_duration());
                    term.extend(until);
                    clock.monotonic().saturating_add(retry_period)
                }
                AttemptResult::HeldBy(holder) => return LossReason::Taken(holder),
                // As upstream, the period starts with the attempt: a slow attempt is followed by the next one at
                // once.
                _ => start.saturating_add(retry_period),
            };
        }
    }

    /// Tries once. Sends no request after `until`.
    async fn attempt(&self, until: Duration) -> AttemptResult {
        let attempt = self.candidate.lock().try_acquire_or_renew(self.now());
        self.finish(attempt, until).await
    }

    /// Releases the Lease if this candidate holds it.
    async fn release(&mut self) {
        let lock = self.describe();
        let released = async {
            loop {
                let attempt = self.candidate.lock().release(self.now());
                let result = self.finish(attempt, Duration::MAX).await;
                if result != AttemptResult::ReleaseConflict {
                    return result;
                }
                // A renewal in flight has taken effect.
                tracing::debug!(lock, "Conflict when releasing lease, retrying");
                self.config.clock.sleep(RELEASE_CONFLICT_BACKOFF).await;
            }
        };
        tokio::select! {
            biased;
            result = released => match result {
                AttemptResult::Released => tracing::info!(lock, "Released lease"),
                AttemptResult::NothingToRelease => tracing::info!(lock, "Lease is not held, nothing to release"),
                _ => {}
            },
            () = self.config.clock.sleep(self.config.renew_deadline) => {
                tracing::error!(lock, "Failed to release lease within the deadline");
            }
        }
        self.report_transition();
    }

    async fn finish(&self, mut attempt: crate::Attempt, until: Duration) -> AttemptResult {
        loop {
            if self.config.clock.monotonic() >= until {
                // The machine was suspended during the attempt. Another candidate may have led meanwhile.
                return AttemptResult::Failed;
            }
            let response = self.send(attempt.request()).await;
            let (step, notices) = {
                let mut candidate = self.candidate.lock();
                (candidate.handle_response(attempt, response, self.now()), candidate.take_notices())
            };
            for notice in notices {
                self.report(&notice);
            }
            match step {
                NextStep::Send(next) => attempt = *next,
                NextStep::Done(result) => {
                    if let AttemptResult::HeldBy(holder) = &result {
                        tracing::debug!(
                            lock = self.describe(),
                            holder,
                            "Lease is held by and has not yet expired"
                        );
                    }
                    return result;
                }
            }
        }
    }

    /// Sends a request. The timeout leaves time for another one.
    async fn send(&self, request: &LeaseRequest) -> Result<Lease, ApiError> {
        let lock = &self.config.lock;
        let response = async {
            match request {
                LeaseRequest::Get => lock.get(&self.config.lease).await,
                LeaseRequest::Create(lease) => lock.create(lease).await,
                LeaseRequest::Update(lease) => lock.update(lease).await,
            }
        };
        let verb = match request {
            LeaseRequest::Get => "get",
            LeaseRequest::Create(_) => "create",
            LeaseRequest::Update(_) => "update",
        };
        tokio::select! {
            biased;
            response = response => response,
            () = self.config.clock.sleep(self.config.request_timeout()) => {
                Err(ApiError::Timeout(format!("{verb} lease {}", self.describe())))
            }
        }
    }

    fn report(&self, notice: &AttemptNotice) {
        let lock = self.describe();
        let (metrics, name) = (&self.config.metrics, &self.config.name);
        match notice {
            AttemptNotice::OptimisticUpdateFailed(err) => {
                tracing::debug!(lock, %err, "Failed to update lease optimistically, falling back to slow path");
            }
            AttemptNotice::ReadFailed(err) => tracing::error!(lock, %err, "Error retrieving lease lock"),
            AttemptNotice::CreateFailed(err) => {
                tracing::error!(lock, %err, "Error initially creating lease lock");
            }
            AttemptNotice::UpdateFailed(err) => tracing::error!(lock, %err, "Failed to update lease"),
            AttemptNotice::SlowPath => metrics.slow_path(name),
            AttemptNotice::IdentityShared(record) => {
                tracing::error!(
                    lock,
                    identity = record.holder_identity,
                    renewed = record.renew_time.map(tracing::field::display),
                    "Lease is held by another process with the same identity"
                );
                metrics.identity_shared(name);
            }
            AttemptNotice::Restored { from, to } => {
                tracing::warn!(lock, %from, %to, "Lease has an older version than before; etcd was restored from a backup");
                if self.gate.has_term() {
                    self.restored.notify_one();
                }
            }
        }
    }

    fn report_transition(&mut self) {
        let holder = self.candidate.lock().observed().holder_identity.clone();
        if holder != self.reported {
            self.config.metrics.new_leader(&self.config.name, &holder);
            self.reported = holder;
        }
    }

    fn event(&self, what: &str) {
        let Some(recorder) = &self.config.recorder else { return };
        let candidate = self.candidate.lock();
        let Some(meta) = candidate.lease().map(|lease| &lease.metadata) else { return };
        let regarding = ObjectReference {
            api_version: lease::API_VERSION.into(),
            kind: lease::KIND.into(),
            namespace: Arc::clone(&meta.namespace),
            name: Arc::clone(&meta.name),
            uid: Arc::clone(&meta.uid),
            resource_version: meta.resource_version.clone(),
        };
        recorder.event(&regarding, EventType::Normal, REASON, format!("{} {what}", self.config.identity));
    }

    async fn until(&self, deadline: Duration) {
        let clock = &self.config.clock;
        clock.sleep(deadline.saturating_sub(clock.monotonic())).await;
    }

    fn now(&self) -> Now {
        Now { wall: self.config.clock.now(), monotonic: self.config.clock.monotonic() }
    }

    fn describe(&self) -> String {
        self.config.lease.to_string()
    }
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector")
            .field("config", &self.config)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
