//! One leader at a time, by means of a Lease.
//!
//! *Upstream counterpart:* `k8s.io/client-go/tools/leaderelection`.
//!
//! Candidates share a Lease. The leader writes its name and the time into it every two seconds. A standby that has
//! not seen it change for fifteen, **by its own monotonic clock**, writes its own name. Each write carries the resource
//! version of what was read, so of two that write at once, one gets a conflict. The record is client-go's, field for
//! field, and so are the rules (US-1.6): candidates in Go and these can stand in one election.
//!
//! * [`LeaderElector`] runs a candidate: stand by, lead, renew, give back.
//! * [`LeaderGate`] says whether this process leads at this very moment. **Ask it before each write.** It closes
//!   [`renew_deadline`](LeaderElectionConfig::renew_deadline) after the *start* of the last renewal that succeeded,
//!   which is before anybody else can take over, and needs no task and no answer for that.
//! * [`Nudge`] makes a standby try at once: wired to a watch, a Lease that is given back is taken in milliseconds.
//! * [`Candidate`] is the rules alone: no I/O, no clock. It says what to ask and takes the answer.
//! * [`ElectionStatus`] is for health checks, [`ElectionMetrics`] for metrics, [`LeaseLock`] the way to the server.
//!
//! # What is not promised
//!
//! * A write that was *sent* while leading may be carried out later, when another leads. The time between deadline and
//!   lease (five seconds by default) is for that. Where it matters, make the write conditional on a resource version.
//! * Nobody leads for a while after a leader has died: up to the lease's duration.
//! * Clocks may jump, and run at different rates as long as that is by less than `lease_duration / renew_deadline`
//!   (half again by default). A machine that is *suspended* stops its monotonic clock; what it does on waking, before
//!   its next renewal, is not covered. A process that is stopped (SIGSTOP) is.
//! * Whoever edits or deletes the Lease by hand can make two lead until the old leader's next renewal.
//! * Two processes of the same identity both lead, as upstream, unless they are told that their identity
//!   [is to be unique](LeaderElectionConfig::unique_identity). In either case it is logged.
//!
//! # Deviations
//!
//! Each is stricter or quicker than upstream and none is seen by candidates of another make; they are marked
//! `DEVIATION` where they are.
//!
//! | here | upstream |
//! |---|---|
//! | a leader stops `renew_deadline` after the *start* of its last renewal | that long, and a retry period, after its *end* |
//! | a leader that reads another's name stops at once | it goes on until the deadline |
//! | no two writes say the same time | a write after one whose answer was lost repeats it, changes nothing, and counts |
//! | records are compared to the microsecond | to the second |
//! | nothing is given back after a loss, nor what is another's by now | both |
//! | a standby wakes when the lease runs out, and when nudged | at its next turn |
//! | a lease of less than a second is refused at the start | by the API server |
//!
//! *What must not live here:* HTTP, what is led, exit codes, the watch on the Lease.

mod candidate;
mod config;
mod elector;
mod gate;
mod lock;
mod memory;
mod metrics;
mod nudge;
mod record;
mod status;

pub use candidate::{Attempt, Candidate, Note, Now, Request, Step, Verdict};
pub use config::{ElectionConfigError, JITTER_FACTOR, LeaderElectionConfig, identity};
pub use elector::{ElectionOutcome, LeaderElector, Loss};
pub use gate::{LeaderGate, Leadership};
pub use lock::LeaseLock;
pub use memory::MemoryLock;
pub use metrics::{ElectionMetrics, NoElectionMetrics};
pub use nudge::Nudge;
pub use record::ElectionRecord;
pub use status::{ElectionStatus, HEALTH_CHECK_NAME, HEALTH_TOLERANCE, NotRenewed};
