//! Leader election by a Lease.
//!
//! *Upstream counterpart:* `k8s.io/client-go/tools/leaderelection`.
//!
//! Candidates share a Lease. The leader renews it every 2 s (`retry_period`). A standby acquires it when it has not
//! changed for 15 s (`lease_duration`), measured by the standby's own monotonic clock. Each write contains the
//! resource version that was read, so if two candidates write at the same time, one gets a conflict. The record and
//! the rules are client-go's (US-1.6): candidates written in Go can take part in the same election.
//!
//! * [`LeaderElector`] runs a candidate: acquire, lead, renew, release.
//! * [`LeaderGate`] reports whether this process leads at this moment. **Check it before each write.** It closes
//!   [`renew_deadline`](LeaderElectionConfig::renew_deadline) after the *start* of the last successful renewal,
//!   before another candidate can acquire the Lease. It needs no running task. A renewal before the Lease expires opens it
//!   again.
//! * [`AcquireTrigger`] makes a standby try at once. Connected to a watch, it reduces the time to acquire a released
//!   Lease to milliseconds.
//! * [`Candidate`] is the state machine of the election, without I/O and without a clock.
//! * [`ElectionStatus`] is for health checks, [`ElectionMetrics`] for metrics, and [`LeaseLock`] is the client of the
//!   Lease.
//!
//! # Limits
//!
//! * A write that was *sent* by a leader may take effect after another candidate has become the leader. The time
//!   between `renew_deadline` and `lease_duration` (5 s by default) allows for that. Where it matters, make the write
//!   conditional on a resource version.
//! * After the leader has died, there is no leader for up to `lease_duration`.
//! * Wall clocks may jump. The rates of monotonic clocks may differ by less than `lease_duration / renew_deadline` (1.5
//!   by default). A stopped process (SIGSTOP) is protected. So is a machine that was *suspended*, if the monotonic clock
//!   includes that time, as that of `kcm-clock` on Linux. Timers do not run meanwhile, so the loss is reported up to
//!   `retry_period` after the machine resumes, with a closed gate.
//! * If a user edits or deletes the Lease, there can be two leaders until the next renewal of the old one.
//! * Two processes with the same identity both lead, as upstream, unless
//!   [`unique_identity`](LeaderElectionConfig::unique_identity) is set. Both cases are logged.
//!
//! # Deviations
//!
//! Each is stricter or faster than upstream, and does not affect candidates of other implementations. They are marked
//! `DEVIATION` in the code.
//!
//! | here | upstream |
//! |---|---|
//! | writes stop `renew_deadline` after the *start* of the last renewal | that long, and a retry period, after its *end* |
//! | a leader gives up when its lease has expired; a renewal before that opens the gate again | at the same time as writes stop |
//! | a leader that reads another holder stops at once | it continues until the deadline |
//! | no two writes contain the same time | a write after a lost response repeats it, changes nothing, and counts as a renewal |
//! | records are compared with microseconds | with seconds |
//! | a lost Lease, or the Lease of another candidate, is not released | it is |
//! | a standby tries when the lease expires, and when triggered | at its next retry |
//! | a `lease_duration` of less than a second is rejected at startup | by the API server |
//!
//! # Scope
//!
//! HTTP, the watch on the Lease, exit codes, and the work of the leader belong to other crates.

#![warn(missing_debug_implementations)]

mod acquire_trigger;
mod candidate;
mod config;
mod elector;
mod gate;
mod lock;
mod memory;
mod metrics;
mod record;
mod status;

pub use acquire_trigger::AcquireTrigger;
pub use candidate::{Attempt, AttemptNotice, AttemptResult, Candidate, LeaseRequest, NextStep, Now};
pub use config::{ElectionConfigError, JITTER_FACTOR, LeaderElectionConfig, identity};
pub use elector::{ElectionOutcome, LeaderElector, LossReason};
pub use gate::{LeaderGate, Leadership};
pub use lock::LeaseLock;
pub use memory::MemoryLock;
pub use metrics::{ElectionMetrics, NoElectionMetrics};
pub use record::ElectionRecord;
pub use status::{ElectionStatus, HEALTH_CHECK_NAME, HEALTH_TOLERANCE, NotRenewed};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
