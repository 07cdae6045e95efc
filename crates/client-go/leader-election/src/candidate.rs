//! The rules of the election, without I/O, tasks or a clock.

use std::{collections::VecDeque, mem, time::Duration};

use kcm_api::{ApiError, Labels, Lease, MicroTime, ObjectKey};
use kcm_clock::Timestamp;

use crate::ElectionRecord;

/// More writes than this are never under way at once: each takes a request's time-out to be given up.
const REMEMBERED_WRITES: usize = 16;

/// How long a released Lease is said to last: the API has no zero.
const RELEASED_SECONDS: i32 = 1;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For what is written.
    pub wall: Timestamp,
    /// For what is measured.
    pub monotonic: Duration,
}

/// What a candidate asks of the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// The newest state of the Lease.
    Get,
    /// That this Lease be created.
    Create(Lease),
    /// That the Lease be replaced by this one.
    Update(Lease),
}

/// A try under way: it has asked something and waits for the answer.
#[derive(Debug)]
pub struct Attempt {
    request: Request,
    stage: Stage,
    /// When the try began. What runs out is measured by this throughout.
    began: Now,
    /// When this request was made; it cannot have had effect before.
    asked: Duration,
    /// What this request writes; empty when it only reads.
    record: ElectionRecord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A leader writes without having looked.
    Optimistic,
    Read,
    Create,
    Write,
    ReadToRelease,
    Release,
}

/// What follows from an answer.
#[derive(Debug)]
pub enum Step {
    /// The try goes on: ask this, and hand the answer to [`Candidate::answer`].
    Ask(Box<Attempt>),
    /// The try is over.
    Done(Verdict),
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The Lease is this candidate's, by a write that was not sent before this monotonic time.
    Leading {
        /// When the write was sent.
        since: Duration,
    },
    /// It is held by somebody else, and has not run out.
    HeldBy(String),
    /// Something went wrong; the notes tell what.
    Failed,
    /// It was given back.
    Released,
    /// It was not this candidate's to give back.
    NothingToRelease,
    /// Somebody wrote in between; it may still be this candidate's to give back.
    ReleaseConflict,
}

/// What is worth telling about a try, in the order in which it happened.
#[derive(Debug)]
pub enum Note {
    /// The write without looking failed; the try goes on.
    OptimisticUpdateFailed(ApiError),
    /// The Lease could not be read.
    ReadFailed(ApiError),
    /// The Lease could not be created.
    CreateFailed(ApiError),
    /// The Lease could not be written.
    UpdateFailed(ApiError),
    /// A leader had to look before it wrote.
    SlowPath,
    /// The Lease is held in this candidate's name by a record that this candidate did not write.
    IdentityShared(ElectionRecord),
}

/// One candidate: what it saw last, and what it does next.
///
/// A try begins with [`try_acquire_or_renew`](Self::try_acquire_or_renew) or [`release`](Self::release), which say what
/// to ask; [`answer`](Self::answer) says what follows. A try may be dropped at any point: it counts as a request whose
/// outcome is unknown.
///
/// Whether another's record has run out is counted from when *this* candidate first saw it, on the monotonic clock. The
/// times in the record are for people: no two clocks need to agree, and none may hurt by jumping (US-1.6).
///
/// Upstream counterpart: `LeaderElector.tryAcquireOrRenew` and `tryRelease`.
#[derive(Debug)]
pub struct Candidate {
    key: ObjectKey,
    identity: String,
    is_identity_unique: bool,
    duration_seconds: i32,
    labels: Labels,
    /// The Lease as the server last sent it; with its resource version it can be written without looking.
    lease: Option<Lease>,
    /// The record that counts: the last one read that was new, or written.
    observed: ElectionRecord,
    observed_at: Duration,
    /// The last record *read*. As upstream, own writes do not touch it.
    last_read: Option<ElectionRecord>,
    /// What this candidate wrote last for sure, and what it may have written since.
    written: VecDeque<ElectionRecord>,
    last_write: Option<TimedWrite>,
    notes: Vec<Note>,
}

/// When something was written, by both clocks, and the time that it says.
#[derive(Debug)]
struct TimedWrite {
    at: Now,
    written: MicroTime,
}

impl Candidate {
    /// A candidate that has seen nothing yet, and writes records of so many seconds.
    pub fn new(key: ObjectKey, identity: String, duration_seconds: i32) -> Self {
        Self {
            key,
            identity,
            is_identity_unique: false,
            duration_seconds,
            labels: Labels::new(),
            lease: None,
            observed: ElectionRecord::default(),
            observed_at: Duration::ZERO,
            last_read: None,
            written: VecDeque::new(),
            last_write: None,
            notes: Vec::new(),
        }
    }

    /// Takes records in this candidate's name that it did not write for somebody else's.
    #[must_use]
    pub fn with_unique_identity(self, unique: bool) -> Self {
        Self { is_identity_unique: unique, ..self }
    }

    /// Puts `labels` on the Lease with each write. Others stay.
    #[must_use]
    pub fn with_labels(self, labels: Labels) -> Self {
        Self { labels, ..self }
    }

    /// The record that counts: the last one read that was new, or written.
    pub fn observed(&self) -> &ElectionRecord {
        &self.observed
    }

    /// Since when [`observed`](Self::observed) counts, on the monotonic clock.
    pub fn observed_at(&self) -> Duration {
        self.observed_at
    }

    /// The Lease as the server last sent it.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Whether, as far as this candidate saw, the Lease is in its name. It may have run out.
    pub fn is_holder(&self) -> bool {
        self.observed.holder_identity == self.identity
            && (!self.is_identity_unique || self.written.contains(&self.observed))
    }

    /// Whether the Lease may be in this candidate's name, be it by a write whose answer never came.
    pub fn may_be_holder(&self) -> bool {
        !self.written.is_empty()
    }

    /// When another's record runs out, if there is one and nothing changes until then.
    pub fn runs_out_at(&self) -> Option<Duration> {
        let is_others = !self.observed.holder_identity.is_empty() && !self.is_holder();
        is_others.then(|| self.observed_until())
    }

    /// What is worth telling since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        mem::take(&mut self.notes)
    }

    /// Begins a try to become leader, or to stay it.
    pub fn try_acquire_or_renew(&mut self, now: Now) -> Attempt {
        if self.is_holder() && self.is_valid(now) && self.lease.is_some() {
            let (acquired, transitions) = (self.observed.acquire_time, self.observed.leader_transitions);
            return self.write(Stage::Optimistic, now, now, Some(acquired), transitions);
        }
        Attempt::to_read(Stage::Read, now, now)
    }

    /// Begins a try to give the Lease back.
    pub fn release(&mut self, now: Now) -> Attempt {
        Attempt::to_read(Stage::ReadToRelease, now, now)
    }

    /// What follows from the answer to what `attempt` asked.
    pub fn answer(&mut self, attempt: Attempt, answer: Result<Lease, ApiError>, now: Now) -> Step {
        match (attempt.stage, answer) {
            (Stage::Optimistic | Stage::Create | Stage::Write, Ok(lease)) => {
                Step::Done(self.became_or_stayed_leader(attempt, lease, now))
            }
            (Stage::Optimistic, Err(error)) => {
                self.notes.push(Note::OptimisticUpdateFailed(error));
                Step::Ask(Box::new(Attempt::to_read(Stage::Read, attempt.began, now)))
            }
            (Stage::Read, Ok(lease)) => self.has_read(attempt.began, lease, now),
            (Stage::Read, Err(error)) if error.is_not_found() => {
                self.lease = None;
                Step::Ask(Box::new(self.write(Stage::Create, attempt.began, now, None, 0)))
            }
            (Stage::Read, Err(error)) => self.failed(Note::ReadFailed(error)),
            (Stage::Create, Err(error)) => self.failed(Note::CreateFailed(error)),
            (Stage::Write, Err(error)) => self.failed(Note::UpdateFailed(error)),
            (Stage::ReadToRelease, Ok(lease)) => self.has_read_to_release(attempt.began, lease, now),
            (Stage::ReadToRelease, Err(error)) if error.is_not_found() => {
                Step::Done(Verdict::NothingToRelease)
            }
            (Stage::ReadToRelease, Err(error)) => self.failed(Note::ReadFailed(error)),
            (Stage::Release, Ok(lease)) => {
                self.lease = Some(lease);
                self.written.clear();
                self.observe(attempt.record, now);
                Step::Done(Verdict::Released)
            }
            (Stage::Release, Err(error)) if error.is_conflict() => Step::Done(Verdict::ReleaseConflict),
            (Stage::Release, Err(error)) => self.failed(Note::UpdateFailed(error)),
        }
    }

    fn became_or_stayed_leader(&mut self, attempt: Attempt, lease: Lease, now: Now) -> Verdict {
        self.lease = Some(lease);
        // Older writes can no longer take effect: their resource version is past.
        self.written.clear();
        self.written.push_back(attempt.record.clone());
        self.observe(attempt.record, now);
        Verdict::Leading { since: attempt.asked }
    }

    fn has_read(&mut self, began: Now, lease: Lease, now: Now) -> Step {
        let read = ElectionRecord::from(&lease.spec);
        self.lease = Some(lease);
        self.has_seen(&read, now);
        let is_held = !read.holder_identity.is_empty() && self.is_valid(began);
        if is_held && !self.is_holder() {
            return Step::Done(Verdict::HeldBy(read.holder_identity));
        }
        let (acquired, transitions) = if self.is_holder() {
            self.notes.push(Note::SlowPath);
            (Some(read.acquire_time), read.leader_transitions)
        } else {
            // Not wrapping, as upstream: the server refuses what is negative, and then nobody leads ever again.
            (None, read.leader_transitions.saturating_add(1))
        };
        Step::Ask(Box::new(self.write(Stage::Write, began, now, acquired, transitions)))
    }

    /// Counts a record from now on if it is new.
    ///
    /// DEVIATION: upstream compares records as JSON, which has whole seconds, so that a leader that renews more often
    /// than every second does not always seem to. Here every microsecond counts.
    fn has_seen(&mut self, read: &ElectionRecord, now: Now) {
        // DEVIATION: upstream asks only the first. The second is what a server shows that was restored from a backup of
        // before this candidate's own writes: another's record, which must not be taken for one's own.
        let is_new = self.last_read.as_ref() != Some(read) || self.observed != *read;
        if !is_new {
            return;
        }
        self.observe(read.clone(), now);
        self.last_read = Some(read.clone());
        if read.holder_identity == self.identity && !self.written.contains(read) {
            self.notes.push(Note::IdentityShared(read.clone()));
        }
    }

    fn has_read_to_release(&mut self, began: Now, lease: Lease, now: Now) -> Step {
        let read = ElectionRecord::from(&lease.spec);
        self.lease = Some(lease);
        // DEVIATION: upstream asks what it saw last, not what it has just read, and so can give back what meanwhile is
        // another's.
        if read.holder_identity != self.identity || !self.written.contains(&read) {
            return Step::Done(Verdict::NothingToRelease);
        }
        let time = Some(self.time_to_write(now));
        let record = ElectionRecord {
            lease_duration_seconds: RELEASED_SECONDS,
            acquire_time: time,
            renew_time: time,
            leader_transitions: read.leader_transitions,
            ..ElectionRecord::default()
        };
        let request = Request::Update(self.lease_with(&record));
        let asked = now.monotonic;
        Step::Ask(Box::new(Attempt { request, stage: Stage::Release, began, asked, record }))
    }

    fn failed(&mut self, note: Note) -> Step {
        self.notes.push(note);
        Step::Done(Verdict::Failed)
    }

    /// A write in this candidate's name; `acquired` is when it became leader, if it is that already.
    ///
    /// DEVIATION: upstream writes the time at which the try began. Then a write that follows one whose answer was lost
    /// says the same, changes nothing, and succeeds: to the leader a renewal, to others none, and in the end two lead.
    fn write(
        &mut self,
        stage: Stage,
        began: Now,
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
        let request = if stage == Stage::Create { Request::Create(lease) } else { Request::Update(lease) };
        // Before it is sent: whatever becomes of it, what it says is this candidate's own.
        if self.written.len() == REMEMBERED_WRITES {
            self.written.pop_front();
        }
        self.written.push_back(record.clone());
        Attempt { request, stage, began, asked: now.monotonic, record }
    }

    /// The Lease as known, or a new one, with `record` in it.
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
        self.observed_until() > now.monotonic
    }

    fn observed_until(&self) -> Duration {
        let seconds = u64::try_from(self.observed.lease_duration_seconds).unwrap_or(0);
        self.observed_at.saturating_add(Duration::from_secs(seconds))
    }

    /// The wall clock's time, unless that stands still: never the same twice.
    ///
    /// Others know a renewal by its time alone, and upstream's candidates by its second alone. With a clock that has
    /// stopped, or was set back by just so much, renewals would not count.
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
        self.last_write = Some(TimedWrite { at: now, written: time });
        time
    }
}

impl Attempt {
    fn to_read(stage: Stage, began: Now, now: Now) -> Self {
        let (request, record) = (Request::Get, ElectionRecord::default());
        Self { request, stage, began, asked: now.monotonic, record }
    }

    /// What to ask.
    pub fn request(&self) -> &Request {
        &self.request
    }
}

#[cfg(test)]
mod tests;
