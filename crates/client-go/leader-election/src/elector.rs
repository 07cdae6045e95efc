//! Runs a candidate: asks what it wants asked, waits where it has to wait, and keeps time.

use std::{fmt, future::Future, pin::pin, sync::Arc, time::Duration};

use kcm_api::{ApiError, Lease, lease};
use kcm_clock::jitter;
use kcm_events::{EventType, ObjectReference};
use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::{
    Candidate, ElectionConfigError, ElectionStatus, LeaderElectionConfig, LeaderGate, Leadership, Note, Now,
    Nudge, Request, Step, Verdict, config::JITTER_FACTOR, gate::Term,
};

/// A standby that is nudged without end does not ask more often than this.
const BETWEEN_NUDGES: Duration = Duration::from_millis(100);

/// The wait before the Lease is given back once more after a conflict. Whoever writes it should be done by then.
const AFTER_RELEASE_CONFLICT: Duration = Duration::from_millis(50);

/// The reason of events on the Lease.
const REASON: &str = "LeaderElection";

/// Takes part in an election.
///
/// Upstream counterpart: `leaderelection.LeaderElector`.
pub struct LeaderElector {
    config: LeaderElectionConfig,
    candidate: Arc<Mutex<Candidate>>,
    gate: LeaderGate,
    nudge: Nudge,
    /// The holder that was last told of. Nobody, at first.
    reported: String,
}

/// How an election ended for this candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionOutcome<T> {
    /// It was cancelled before it led.
    NeverLed,
    /// It led until what it led was done, with this result.
    Finished(T),
    /// It led, and does no more.
    Lost(Loss),
}

/// Why a leader leads no more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Loss {
    /// It could not renew in time.
    #[error("the lease could not be renewed within the deadline")]
    Deadline,
    /// It found the Lease with another holder.
    #[error("the lease is held by {0:?}")]
    Taken(String),
}

impl LeaderElector {
    /// A candidate in the election that `config` describes. It does nothing yet.
    ///
    /// # Errors
    ///
    /// When the election would not work like this.
    pub fn new(config: LeaderElectionConfig) -> Result<Self, ElectionConfigError> {
        config.validate()?;
        // Upstream cuts to whole seconds, too.
        let seconds = i32::try_from(config.lease_duration.as_secs()).unwrap_or(i32::MAX);
        let candidate = Candidate::new(config.lease.clone(), config.identity.clone(), seconds)
            .with_unique_identity(config.unique_identity)
            .with_labels(config.labels.clone());
        config.metrics.leading(&config.name, false);
        Ok(Self {
            gate: LeaderGate::new(Arc::clone(&config.clock)),
            candidate: Arc::new(Mutex::new(candidate)),
            nudge: Nudge::default(),
            reported: String::new(),
            config,
        })
    }

    /// Whether this candidate leads at this very moment, for those that write.
    pub fn gate(&self) -> LeaderGate {
        self.gate.clone()
    }

    /// What others may ask.
    pub fn status(&self) -> ElectionStatus {
        ElectionStatus {
            name: self.config.name.as_str().into(),
            candidate: Arc::clone(&self.candidate),
            clock: Arc::clone(&self.config.clock),
            lease_duration: self.config.lease_duration,
        }
    }

    /// Makes this candidate try at once when it is a standby.
    pub fn nudge(&self) -> Nudge {
        self.nudge.clone()
    }

    /// Stands by until elected, then runs `lead` and renews until that is done.
    ///
    /// While standing by, `cancel` ends it. Once elected, `cancel` is for `lead` to heed: the Lease is renewed while
    /// `lead` winds down, so that its last writes are covered, and given back after it is done
    /// ([`release_on_cancel`](LeaderElectionConfig::release_on_cancel)).
    ///
    /// When the leadership is lost, the gate is closed, [`Leadership::lost`] is cancelled, `lead` is dropped where it
    /// stands, and this returns at once. Tasks that `lead` started must heed the token. Nothing is given back then:
    /// they may not be done.
    ///
    /// `lead` runs on the task that renews. It must not block it.
    ///
    /// Upstream counterpart: `LeaderElector.Run`; what `OnStoppedLeading` would do comes after it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the leadership at once. The Lease is not given back, and runs out.
    pub async fn run<F, Fut>(&mut self, cancel: &CancellationToken, lead: F) -> ElectionOutcome<Fut::Output>
    where
        F: FnOnce(Leadership) -> Fut,
        Fut: Future,
    {
        let lock = self.describe();
        let Some(until) = self.acquire(cancel).await else {
            // A write whose answer was not waited for may have got the Lease.
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

    /// Tries until this candidate is elected, and tells until when. `None` when cancelled before.
    async fn acquire(&mut self, cancel: &CancellationToken) -> Option<Duration> {
        let lock = self.describe();
        tracing::info!(lock, "Attempting to acquire leader lease...");
        loop {
            let verdict = tokio::select! {
                biased;
                () = cancel.cancelled() => return None,
                verdict = self.attempt() => verdict,
            };
            self.report_transition();
            if let Verdict::Leading { since } = verdict {
                let until = since.saturating_add(self.config.leadership_duration());
                // An answer can come so late that there is nothing left of it.
                if self.config.clock.monotonic() < until {
                    return Some(until);
                }
            }
            tracing::debug!(lock, "Failed to acquire lease");
            tokio::select! {
                biased;
                () = cancel.cancelled() => return None,
                () = self.config.clock.sleep(self.pause()) => {}
                () = self.nudged() => {}
            }
        }
    }

    /// How long a standby waits before it tries again.
    fn pause(&self) -> Duration {
        let pause = jitter(&*self.config.random, self.config.retry_period, JITTER_FACTOR);
        let now = self.config.clock.monotonic();
        // DEVIATION: upstream finds a lease that ran out at its next turn, up to 2.2 retry periods later.
        match self.candidate.lock().runs_out_at() {
            Some(at) if at > now => pause.min(at.saturating_sub(now)),
            _ => pause,
        }
    }

    async fn nudged(&self) {
        let earliest = self.config.clock.monotonic().saturating_add(BETWEEN_NUDGES);
        self.nudge.nudged().await;
        self.until(earliest).await;
    }

    /// Renews until that fails for too long, or another holds the Lease.
    ///
    /// DEVIATION: upstream counts the deadline from a retry period after the end of the last success, and goes on until
    /// then also when it has seen that another holds the Lease.
    async fn renew(&mut self, term: &Term, mut until: Duration) -> Loss {
        let lock = self.describe();
        let clock = Arc::clone(&self.config.clock);
        let retry_period = self.config.retry_period;
        let mut next = clock.monotonic().saturating_add(retry_period);
        loop {
            tokio::select! {
                biased;
                () = self.until(until) => return Loss::Deadline,
                () = self.until(next) => {}
            }
            let began = clock.monotonic();
            let verdict = tokio::select! {
                biased;
                () = self.until(until) => return Loss::Deadline,
                verdict = self.attempt() => verdict,
            };
            self.report_transition();
            next = match verdict {
                Verdict::Leading { since } => {
                    tracing::trace!(lock, "Successfully renewed lease");
                    until = since.saturating_add(self.config.leadership_duration());
                    term.extend(until);
                    clock.monotonic().saturating_add(retry_period)
                }
                Verdict::HeldBy(holder) => return Loss::Taken(holder),
                // As upstream's poll: counted from the start, so that a try that took long is followed by the next.
                _ => began.saturating_add(retry_period),
            };
        }
    }

    async fn attempt(&self) -> Verdict {
        let attempt = self.candidate.lock().try_acquire_or_renew(self.now());
        self.finish(attempt).await
    }

    /// Gives the Lease back, if it is still this candidate's.
    async fn release(&mut self) {
        let lock = self.describe();
        let released = async {
            loop {
                let attempt = self.candidate.lock().release(self.now());
                let verdict = self.finish(attempt).await;
                if verdict != Verdict::ReleaseConflict {
                    return verdict;
                }
                // A renewal that was under way has just arrived.
                tracing::debug!(lock, "Conflict when releasing lease, retrying");
                self.config.clock.sleep(AFTER_RELEASE_CONFLICT).await;
            }
        };
        tokio::select! {
            biased;
            verdict = released => match verdict {
                Verdict::Released => tracing::info!(lock, "Released lease"),
                Verdict::NothingToRelease => tracing::info!(lock, "Lease is not held, nothing to release"),
                _ => {}
            },
            () = self.config.clock.sleep(self.config.renew_deadline) => {
                tracing::error!(lock, "Failed to release lease within the deadline");
            }
        }
        self.report_transition();
    }

    async fn finish(&self, mut attempt: crate::Attempt) -> Verdict {
        loop {
            let answer = self.ask(attempt.request()).await;
            let (step, notes) = {
                let mut candidate = self.candidate.lock();
                (candidate.answer(attempt, answer, self.now()), candidate.take_notes())
            };
            for note in notes {
                self.tell(&note);
            }
            match step {
                Step::Ask(next) => attempt = *next,
                Step::Done(verdict) => {
                    if let Verdict::HeldBy(holder) = &verdict {
                        tracing::debug!(
                            lock = self.describe(),
                            holder,
                            "Lease is held by and has not yet expired"
                        );
                    }
                    return verdict;
                }
            }
        }
    }

    /// Asks, but not for ever: a request that hangs must leave time for another.
    async fn ask(&self, request: &Request) -> Result<Lease, ApiError> {
        let lock = &self.config.lock;
        let answer = async {
            match request {
                Request::Get => lock.get(&self.config.lease).await,
                Request::Create(lease) => lock.create(lease).await,
                Request::Update(lease) => lock.update(lease).await,
            }
        };
        let verb = match request {
            Request::Get => "get",
            Request::Create(_) => "create",
            Request::Update(_) => "update",
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.config.clock.sleep(self.config.request_time_out()) => {
                Err(ApiError::Timeout(format!("{verb} lease {}", self.describe())))
            }
        }
    }

    fn tell(&self, note: &Note) {
        let lock = self.describe();
        let (metrics, name) = (&self.config.metrics, &self.config.name);
        match note {
            Note::OptimisticUpdateFailed(err) => {
                tracing::debug!(lock, %err, "Failed to update lease optimistically, falling back to slow path");
            }
            Note::ReadFailed(err) => tracing::error!(lock, %err, "Error retrieving lease lock"),
            Note::CreateFailed(err) => tracing::error!(lock, %err, "Error initially creating lease lock"),
            Note::UpdateFailed(err) => tracing::error!(lock, %err, "Failed to update lease"),
            Note::SlowPath => metrics.slow_path(name),
            Note::IdentityShared(record) => {
                tracing::error!(
                    lock,
                    identity = record.holder_identity,
                    renewed = record.renew_time.map(tracing::field::display),
                    "Lease is held in this candidate's name by something else: is the identity given twice?"
                );
                metrics.identity_shared(name);
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
