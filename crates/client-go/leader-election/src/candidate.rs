//! State machine of the election, without I/O, tasks or a clock.

use std::{collections::VecDeque, mem, time::Duration};

use kcm_api::{ApiError, Labels, Lease, MicroTime, ObjectKey};
use kcm_clock::Timestamp;
use kcm_meta::is_newer;

use crate::ElectionRecord;

/// Maximum number of remembered writes. Each write without a response ends with a timeout, so fewer are in flight.
const REMEMBERED_WRITES: usize = 16;

/// Lease duration of a released Lease, in seconds. The API does not allow zero.
const RELEASED_SECONDS: i32 = 1;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Wall clock. Written to the Lease.
    pub wall: Timestamp,
    /// Monotonic clock. All durations are measured with it.
    pub monotonic: Duration,
}

/// Read or write of the Lease.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseRequest {
    /// Reads the Lease.
    Get,
    /// Creates the Lease.
    Create(Lease),
    /// Replaces the Lease.
    Update(Lease),
}

/// Attempt to acquire, renew or release the Lease that waits for a response.
#[derive(Debug)]
pub struct Attempt {
    request: LeaseRequest,
    stage: Stage,
    /// Start of the attempt. Expiry is computed with this time throughout the attempt.
    start: Now,
    /// Time at which the current request was created. It cannot have taken effect before.
    created_at: Duration,
    /// Record that the current request writes. Empty for reads.
    record: ElectionRecord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The leader writes without a read.
    Optimistic,
    Read,
    Create,
    Write,
    ReadToRelease,
    Release,
}

/// Next step of an attempt.
#[derive(Debug)]
pub enum NextStep {
    /// Send the request of the attempt and pass the response to [`Candidate::handle_response`].
    Send(Box<Attempt>),
    /// The attempt has ended.
    Done(AttemptResult),
}

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// This candidate holds the Lease.
    Leading {
        /// Monotonic time at which the write was created. It was not sent before.
        since: Duration,
    },
    /// Another candidate holds the Lease, and it has not expired.
    HeldBy(String),
    /// A request failed, see [`Candidate::take_notices`].
    Failed,
    /// The Lease was released.
    Released,
    /// The Lease was not held by this candidate.
    NothingToRelease,
    /// The Lease changed during the release. This candidate may still hold it.
    ReleaseConflict,
}

/// Event during an attempt, for logs and metrics.
#[derive(Debug)]
pub enum AttemptNotice {
    /// The write without a read failed. The attempt continues with a read.
    OptimisticUpdateFailed(ApiError),
    /// The Lease could not be read.
    ReadFailed(ApiError),
    /// The Lease could not be created.
    CreateFailed(ApiError),
    /// The Lease could not be updated.
    UpdateFailed(ApiError),
    /// A renewal had to read the Lease first.
    SlowPath,
    /// The Lease contains the identity of this candidate in a record that it did not write.
    IdentityShared(ElectionRecord),
    /// The Lease is older than it was before: the API server's storage was restored from a backup.
    Restored {
        /// Resource version before.
        from: String,
        /// Resource version that was returned.
        to: String,
    },
}

/// State of a candidate: the last observed record, and the rules for the next request.
///
/// An attempt starts with [`try_acquire_or_renew`](Self::try_acquire_or_renew) or [`release`](Self::release), which
/// return the first request. [`handle_response`](Self::handle_response) takes the response and returns the next step. An
/// attempt may be dropped at any time; the outcome of its request is then unknown.
///
/// The lease of another candidate expires `lease_duration_seconds` after *this* candidate first observed the record,
/// by the monotonic clock. The times in the record are informational, so the clocks of candidates need not agree
/// (US-1.6).
///
/// Example: a standby first reads `renewTime: 08:00:02` at 100 s on its monotonic clock. If it still reads the same
/// record at 115 s, it acquires the Lease.
///
/// Upstream counterpart: `LeaderElector.tryAcquireOrRenew` and `tryRelease`.
#[derive(Debug)]
pub struct Candidate {
    key: ObjectKey,
    identity: String,
    is_identity_unique: bool,
    duration_seconds: i32,
    labels: Labels,
    /// Lease as the API server last returned it. Its resource version makes a write without a read possible.
    lease: Option<Lease>,
    /// Resource version of the last Lease that was returned. Kept if the Lease is deleted: a new one has a higher version.
    /// Initially empty.
    latest_version: String,
    /// Last record that was written, or that differed from its predecessor when read.
    observed: ElectionRecord,
    observed_at: Duration,
    /// Last record that was *read*. As upstream, own writes do not change it.
    last_read: Option<ElectionRecord>,
    /// Last record that was certainly written, followed by those whose outcome is unknown.
    written: VecDeque<ElectionRecord>,
    last_write: Option<LastWrite>,
    notices: Vec<AttemptNotice>,
}

/// Time of a write.
#[derive(Debug)]
struct LastWrite {
    at: Now,
    written: MicroTime,
}

impl Candidate {
    /// Creates a candidate that has not read the Lease. `duration_seconds` is written to it.
    pub fn new(key: ObjectKey, identity: String, duration_seconds: i32) -> Self {
        Self {
            key,
            identity,
            is_identity_unique: false,
            duration_seconds,
            labels: Labels::new(),
            lease: None,
            latest_version: String::new(),
            observed: ElectionRecord::default(),
            observed_at: Duration::ZERO,
            last_read: None,
            written: VecDeque::new(),
            last_write: None,
            notices: Vec::new(),
        }
    }

    /// If `unique`, records with the identity of this candidate that it did not write belong to another candidate.
    #[must_use]
    pub fn with_unique_identity(self, unique: bool) -> Self {
        Self { is_identity_unique: unique, ..self }
    }

    /// Sets labels that each write adds to the Lease. Other labels are kept.
    #[must_use]
    pub fn with_labels(self, labels: Labels) -> Self {
        Self { labels, ..self }
    }

    /// Returns the last record that was written, or that differed from its predecessor when read.
    pub fn observed(&self) -> &ElectionRecord {
        &self.observed
    }

    /// Returns the monotonic time at which [`observed`](Self::observed) changed.
    pub fn observed_at(&self) -> Duration {
        self.observed_at
    }

    /// Returns the Lease as the API server last returned it.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// `true` if the observed record names this candidate. It may have expired.
    pub fn is_holder(&self) -> bool {
        self.observed.holder_identity == self.identity
            && (!self.is_identity_unique || self.has_written(&self.observed))
    }

    /// `true` if this candidate wrote the record. If its identity is unique, that includes an older renewal of the current
    /// term, which a store that was restored from a backup returns.
    fn has_written(&self, record: &ElectionRecord) -> bool {
        let is_older = |own: &ElectionRecord| {
            own.acquire_time.is_some()
                && own.acquire_time == record.acquire_time
                && record.renew_time < own.renew_time
        };
        let is_own_term = self.is_identity_unique && record.holder_identity == self.identity;
        self.written.contains(record) || is_own_term && self.written.front().is_some_and(is_older)
    }

    /// `true` if this candidate may hold the Lease, possibly by a write without a response.
    pub fn may_be_holder(&self) -> bool {
        !self.written.is_empty()
    }

    /// Returns the monotonic time at which the observed record of another candidate expires.
    pub fn expires_at(&self) -> Option<Duration> {
        let is_others = !self.observed.holder_identity.is_empty() && !self.is_holder();
        is_others.then(|| self.observed_expiry())
    }

    /// Returns the events since the last call, in their order.
    pub fn take_notices(&mut self) -> Vec<AttemptNotice> {
        mem::take(&mut self.notices)
    }

    /// Starts an attempt to acquire or renew the Lease.
    pub fn try_acquire_or_renew(&mut self, now: Now) -> Attempt {
        if self.is_holder() && self.is_valid(now) && self.lease.is_some() {
            let (acquired, transitions) = (self.observed.acquire_time, self.observed.leader_transitions);
            return self.write(Stage::Optimistic, now, now, Some(acquired), transitions);
        }
        Attempt::reading(Stage::Read, now, now)
    }

    /// Starts an attempt to release the Lease.
    pub fn release(&mut self, now: Now) -> Attempt {
        Attempt::reading(Stage::ReadToRelease, now, now)
    }

    /// Returns the next step after the response to `attempt`.
    pub fn handle_response(
        &mut self,
        attempt: Attempt,
        response: Result<Lease, ApiError>,
        now: Now,
    ) -> NextStep {
        match (attempt.stage, response) {
            (Stage::Optimistic | Stage::Create | Stage::Write, Ok(lease)) => {
                NextStep::Done(self.on_written(attempt, lease, now))
            }
            (Stage::Optimistic, Err(error)) => {
                self.notices.push(AttemptNotice::OptimisticUpdateFailed(error));
                NextStep::Send(Box::new(Attempt::reading(Stage::Read, attempt.start, now)))
            }
            (Stage::Read, Ok(lease)) => self.on_read(attempt.start, lease, now),
            (Stage::Read, Err(error)) if error.is_not_found() => {
                self.lease = None;
                NextStep::Send(Box::new(self.write(Stage::Create, attempt.start, now, None, 0)))
            }
            (Stage::Read, Err(error)) => self.failed(AttemptNotice::ReadFailed(error)),
            (Stage::Create, Err(error)) => self.failed(AttemptNotice::CreateFailed(error)),
            (Stage::Write, Err(error)) => self.failed(AttemptNotice::UpdateFailed(error)),
            (Stage::ReadToRelease, Ok(lease)) => self.on_read_for_release(attempt.start, lease, now),
            (Stage::ReadToRelease, Err(error)) if error.is_not_found() => {
                NextStep::Done(AttemptResult::NothingToRelease)
            }
            (Stage::ReadToRelease, Err(error)) => self.failed(AttemptNotice::ReadFailed(error)),
            (Stage::Release, Ok(lease)) => {
                self.lease = Some(lease);
                self.written.clear();
                self.observe(attempt.record, now);
                NextStep::Done(AttemptResult::Released)
            }
            (Stage::Release, Err(error)) if error.is_conflict() => {
                NextStep::Done(AttemptResult::ReleaseConflict)
            }
            (Stage::Release, Err(error)) => self.failed(AttemptNotice::UpdateFailed(error)),
        }
    }

    /// Stores the Lease that the API server returned, and compares its version with the one before.
    fn store(&mut self, lease: Lease) {
        let to = lease.metadata.resource_version.clone();
        let from = mem::replace(&mut self.latest_version, to.clone());
        if is_newer(&from, &to) {
            self.notices.push(AttemptNotice::Restored { from, to });
        }
        self.lease = Some(lease);
    }

    fn on_written(&mut self, attempt: Attempt, lease: Lease, now: Now) -> AttemptResult {
        self.store(lease);
        // Older writes can no longer take effect: their resource version is past.
        self.written.clear();
        self.written.push_back(attempt.record.clone());
        self.observe(attempt.record, now);
        AttemptResult::Leading { since: attempt.created_at }
    }

    fn on_read(&mut self, start: Now, lease: Lease, now: Now) -> NextStep {
        let read = ElectionRecord::from(&lease.spec);
        self.store(lease);
        self.observe_read(&read, now);
        let is_held = !read.holder_identity.is_empty() && self.is_valid(start);
        if is_held && !self.is_holder() {
            return NextStep::Done(AttemptResult::HeldBy(read.holder_identity));
        }
        let (acquired, transitions) = if self.is_holder() {
            self.notices.push(AttemptNotice::SlowPath);
            (Some(read.acquire_time), read.leader_transitions)
        } else {
            // Saturates, where upstream wraps: the API server rejects negative values, so there would be no leader
            // any more.
            (None, read.leader_transitions.saturating_add(1))
        };
        NextStep::Send(Box::new(self.write(Stage::Write, start, now, acquired, transitions)))
    }

    /// Observes a record if it is new.
    ///
    /// DEVIATION: upstream compares records as JSON, which has seconds. A leader that renews more than once per
    /// second then seems not to renew. Here microseconds count.
    fn observe_read(&mut self, read: &ElectionRecord, now: Now) {
        // DEVIATION: upstream compares with the last read record only. The second comparison matters after the API
        // server was restored from a backup that is older than the writes of this candidate: the record of another
        // candidate must not count as its own.
        let is_new = self.last_read.as_ref() != Some(read) || self.observed != *read;
        if !is_new {
            return;
        }
        self.observe(read.clone(), now);
        self.last_read = Some(read.clone());
        if read.holder_identity == self.identity && !self.has_written(read) {
            self.notices.push(AttemptNotice::IdentityShared(read.clone()));
        }
    }

    fn on_read_for_release(&mut self, start: Now, lease: Lease, now: Now) -> NextStep {
        let read = ElectionRecord::from(&lease.spec);
        self.lease = Some(lease);
        // DEVIATION: upstream compares with the observed record instead of the one just read, so it can release the
        // Lease of another candidate.
        if read.holder_identity != self.identity || !self.has_written(&read) {
            return NextStep::Done(AttemptResult::NothingToRelease);
        }
        let time = Some(self.time_to_write(now));
        let record = ElectionRecord {
            lease_duration_seconds: RELEASED_SECONDS,
            acquire_time: time,
            renew_time: time,
            leader_transitions: read.leader_transitions,
            ..ElectionRecord::default()
        };
        let request = LeaseRequest::Update(self.lease_with(&record));
        let created_at = now.monotonic;
        NextStep::Send(Box::new(Attempt { request, stage: Stage::Release, start, created_at, record }))
    }

    fn failed(&mut self, notice: AttemptNotice) -> NextStep {
        self.notices.push(notice);
        NextStep::Done(AttemptResult::Failed)
    }

    /// Starts a write with the identity of this candidate. `acquired` is the acquire time to keep, if it already
    /// leads.
    ///
    /// DEVIATION: upstream writes the time at which the attempt started. A write that follows a lost response then
    /// contains the same time and changes nothing, but succeeds: the leader counts a renewal that other candidates do
    /// not see, so two may lead.
    fn write(
        &mut self,
        stage: Stage,
        start: Now,
        now: Now,
        acquired: Option<Option<MicroTime>>,
        transitions: i32,
    ) -> Attempt {
        let time = self.time_to_write(now);
        let record = ElectionRecord {
            holder_identity: self.identity.clone(),
            lease_duration_seconds: self.duration_seconds,
            acquire_time: acquired.unwrap_or(Some(time)),
            renew_time: Some(time),
            leader_transitions: transitions,
            ..ElectionRecord::default()
        };
        let lease = self.lease_with(&record);
        let request =
            if stage == Stage::Create { LeaseRequest::Create(lease) } else { LeaseRequest::Update(lease) };
        // Remembered before it is sent: even if the response is lost, the record is recognised.
        if self.written.len() == REMEMBERED_WRITES {
            self.written.pop_front();
        }
        self.written.push_back(record.clone());
        Attempt { request, stage, start, created_at: now.monotonic, record }
    }

    /// Returns the known Lease, or a new one, with `record`.
    fn lease_with(&self, record: &ElectionRecord) -> Lease {
        let mut lease = self.lease.clone().unwrap_or_else(|| Lease::new(&self.key));
        record.write_to(&mut lease.spec);
        for (name, value) in &self.labels {
            lease.metadata.labels.insert(name.clone(), value.clone());
        }
        lease
    }

    fn observe(&mut self, record: ElectionRecord, now: Now) {
        self.observed = record;
        self.observed_at = now.monotonic;
    }

    fn is_valid(&self, now: Now) -> bool {
        self.observed_expiry() > now.monotonic
    }

    fn observed_expiry(&self) -> Duration {
        let seconds = u64::try_from(self.observed.lease_duration_seconds).unwrap_or(0);
        self.observed_at.saturating_add(Duration::from_secs(seconds))
    }

    /// Returns the time to write. It differs from the last written one even if the wall clock stands still.
    ///
    /// Other candidates recognise a renewal by its time alone, and upstream's by the second alone. If the wall clock
    /// stopped or was set back, renewals would not be recognised.
    fn time_to_write(&mut self, now: Now) -> MicroTime {
        let mut time = MicroTime::new(now.wall);
        if let Some(last) = &self.last_write {
            let since = now.monotonic.saturating_sub(last.at.monotonic);
            let second = now.wall.as_second();
            let is_same_second =
                second == last.at.wall.as_second() || second == last.written.timestamp().as_second();
            let stands_still = is_same_second && since >= Duration::from_secs(1);
            if stands_still || time == last.written {
                let later = last.written.timestamp().saturating_add(since.max(Duration::from_micros(1)));
                time = later.map_or(time, MicroTime::new);
            }
        }
        self.last_write = Some(LastWrite { at: now, written: time });
        time
    }
}

impl Attempt {
    fn reading(stage: Stage, start: Now, now: Now) -> Self {
        let (request, record) = (LeaseRequest::Get, ElectionRecord::default());
        Self { request, stage, start, created_at: now.monotonic, record }
    }

    /// Returns the request to send.
    pub fn request(&self) -> &LeaseRequest {
        &self.request
    }
}

#[cfg(test)]
mod tests;
