//! Plan of a sync: decides which writes are necessary, without performing them.
//!
//! The modules contain no I/O and no logging. Each decision has a file, and reads as upstream's function does:
//!
//! | File | Decision |
//! |---|---|
//! | `sync_deployment.rs` | which of the other decisions apply; pausing; scaling events |
//! | `new_replica_set.rs` | which ReplicaSet is new; its annotations, name and creation |
//! | `scale.rs` | sizes after the Deployment was scaled |
//! | `rolling.rs` | next step of a rolling update |
//! | `recreate.rs` | next step of a Recreate |
//! | `rollback.rs` | rollback requested by annotation |
//! | `progress.rs` | progressing, complete or timed out |
//! | `sync_status.rs` | write of a changed status |
//! | `cleanup.rs` | deletion of old ReplicaSets |

mod action;
mod builder;
mod cleanup;
mod event;
mod new_replica_set;
mod notice;
mod outcome;
mod progress;
mod reason;
mod recreate;
mod rollback;
mod rolling;
mod scale;
mod sync_deployment;
mod sync_status;

pub use action::{Action, ActionResult, PlannedAction};
pub use event::Event;
pub use notice::Notice;
pub use outcome::{BlockedOn, ProgressCheck, SyncOutcome};
pub use reason::Reason;

#[cfg(test)]
pub(crate) use builder::PlanResult;
pub(crate) use builder::{Interrupt, PlanBuilder, Requires};

use std::fmt;

use kcm_clock::Timestamp;
use kcm_runtime::Requeue;

use self::sync_deployment::sync_deployment;
use crate::{error::SyncError, view::View};

/// Writes and events of a sync, in the order in which they must be performed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Actions from the start of the sync. The first ones have been performed if their results were given.
    pub actions: Vec<PlannedAction>,
    /// Facts to be logged when the plan has been carried out.
    pub notices: Vec<Notice>,
    /// State of the sync after the actions.
    pub end: PlanEnd,
}

/// State of the sync after the actions of a [`Plan`].
#[derive(Debug, Clone)]
pub enum PlanEnd {
    /// The result of the last action is required to continue.
    ResultRequired,
    /// The sync is complete if all actions without a result succeed.
    Done(Result<SyncOutcome, SyncError>),
}

/// Plans the sync of `view` at `now`, given the `results` of its first actions.
///
/// The sync is planned from its start each time. With the same view, the same time and results that begin with the same
/// ones, plans begin with the same actions. The caller performs `actions[results.len()..]` in order, up to the first
/// failure, and calls again with their results, until the plan is [`PlanEnd::Done`] and no new action has failed.
pub fn plan(view: &View, results: &[ActionResult], now: Timestamp) -> Plan {
    let mut builder = PlanBuilder::new(view, results, now);
    let mut outcome = sync_deployment(&mut builder);
    if !matches!(outcome, Err(Interrupt::ResultRequired)) {
        // A sync that fails also writes its deferred status: upstream wrote it before the failure.
        let written = builder.write_deferred_status(Requires::Success);
        outcome = outcome.and_then(|outcome| written.map(|()| outcome));
    }
    let end = match outcome {
        Ok(outcome) => {
            PlanEnd::Done(Ok(SyncOutcome { ignored_error: builder.ignored_error.take(), ..outcome }))
        }
        Err(Interrupt::Failed(error)) => PlanEnd::Done(Err(error)),
        Err(Interrupt::ResultRequired) => PlanEnd::ResultRequired,
    };
    let (actions, notices) = builder.into_parts();
    Plan { actions, notices, end }
}

/// Plans a complete sync, assuming that the API server stores each object as sent.
///
/// Explains a rollout without writes: each write has its reason, and the outcome says what the rollout is blocked on.
pub fn plan_assuming_success(view: &View, now: Timestamp) -> Plan {
    let mut results = Vec::new();
    loop {
        let plan = plan(view, &results, now);
        if matches!(plan.end, PlanEnd::Done(_)) || plan.actions.len() <= results.len() {
            return plan;
        }
        results.extend(plan.actions[results.len()..].iter().map(|planned| planned.action.result_as_sent()));
    }
}

impl fmt::Display for Plan {
    /// Writes a line for each action and one for the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for planned in &self.actions {
            writeln!(f, "- {planned}")?;
        }
        match &self.end {
            PlanEnd::ResultRequired => f.write_str("result required"),
            PlanEnd::Done(Err(error)) => write!(f, "error: {error}"),
            PlanEnd::Done(Ok(outcome)) => {
                if let Some(error) = &outcome.ignored_error {
                    writeln!(f, "ignored error: {error}")?;
                }
                write!(f, "blocked on {}", outcome.blocked_on)?;
                match outcome.requeue() {
                    Requeue::Done => Ok(()),
                    Requeue::After(delay) => write!(f, "; requeue after {delay:?}"),
                    Requeue::RateLimited => f.write_str("; requeue with rate limit"),
                }
            }
        }
    }
}
