//! What a sync would do, decided without doing it.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use kcm_api::{Deployment, ReplicaSet};
use kcm_clock::Timestamp;
use kcm_controller_util::Requeue;

use crate::{
    Answer, PlannedAction, SyncError,
    pass::{Pass, Stop},
    sync,
};

/// What a sync looks at. All of it is shared with the caches; nothing is copied.
#[derive(Debug, Clone)]
pub struct View {
    /// The Deployment.
    pub deployment: Arc<Deployment>,
    /// The ReplicaSets that belong to it, in any order.
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    /// UIDs of those among them that have a pod which has not ended. Only a Recreate asks; for other strategies it
    /// may be empty.
    pub running: BTreeSet<Arc<str>>,
    /// If `false`, the status does not contain `terminatingReplicas` (feature gate
    /// `DeploymentReplicaSetTerminatingReplicas`).
    pub terminating_replicas: bool,
}

/// What a sync does, in order, as far as that can be told.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The steps from the start of the sync; as many as there are answers have been taken already.
    pub actions: Vec<PlannedAction>,
    /// What comes after them.
    pub end: End,
}

/// How a [`Plan`] ends.
#[derive(Debug, Clone)]
pub enum End {
    /// What comes next depends on the answer to the last action.
    NeedsAnswer,
    /// The sync is over, provided that all actions without an answer succeed.
    Done(Result<Outcome, SyncError>),
}

/// Result of a sync that did not fail.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Event that must happen before there is more to do.
    pub waits_for: WaitsFor,
    /// Next check of the progress deadline. `None` if the sync wrote the status, whose watch event starts the next
    /// sync, and if the deadline does not run.
    pub progress_check: Option<ProgressCheck>,
    /// First write error that the sync ignored. Upstream ignores the errors of the same writes.
    pub ignored_error: Option<SyncError>,
}

/// Check of the progress deadline, which finds a rollout that no event wakes any more.
///
/// Upstream counterpart: the key that `requeueStuckDeployment` adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressCheck {
    /// Time until the deadline has passed. `None` if less than a second is left, or none.
    pub after: Option<Duration>,
    /// `true` if the rollout can time out. A rollout that was complete cannot, even if it loses its pods (US-4.12).
    pub can_time_out: bool,
}

/// What has to happen before there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// Nothing: all pods are new and available.
    Nothing,
    /// The ReplicaSets must follow what was just written.
    ReplicaSets,
    /// The new pods must become available.
    NewPods {
        /// How many are.
        available: i32,
        /// How many there are to be by now.
        size: i32,
        /// How many there are to be in the end.
        desired: i32,
    },
    /// The old pods must be gone.
    OldPods,
    /// Its size must change: a ReplicaSet has the right one, and another noted on it, which passes for a change of
    /// size that never ends. Upstream has this dead end, too (US-9.9).
    AnotherSize,
    /// The next sync, which follows what was just written to the Deployment itself.
    NextSync,
    /// Somebody must resume it.
    Resume,
    /// Its end.
    Deletion,
    /// Somebody must give it a selector.
    Selector,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing: all pods are new and available"),
            Self::ReplicaSets => f.write_str("the replica sets to follow"),
            Self::NewPods { available, size, desired } => {
                write!(f, "new pods to become available: {available} of {size} are, on the way to {desired}")
            }
            Self::OldPods => f.write_str("the old pods to be gone"),
            Self::AnotherSize => f.write_str(
                "its size to change: a replica set of the right size has another one noted on it, and no rollout \
                 starts before they agree",
            ),
            Self::NextSync => f.write_str("the next sync, which follows what was just written"),
            Self::Resume => f.write_str("somebody to resume it"),
            Self::Deletion => f.write_str("its deletion"),
            Self::Selector => f.write_str("somebody to give it a selector"),
        }
    }
}

impl Outcome {
    /// Nothing more to do until an event.
    pub(crate) fn waiting(waits_for: WaitsFor) -> Self {
        Self { waits_for, progress_check: None, ignored_error: None }
    }

    /// Time of the next sync if no event comes before it.
    ///
    /// DEVIATION: upstream waits for an event after an ignored write error, and no event comes if nothing was written.
    /// Here the sync is retried.
    ///
    /// DEVIATION: a rollout that cannot time out is not checked. Upstream checks it, and once the deadline has passed
    /// as often as its queue permits: ten times a second for as long as one pod is not available (US-4.12).
    pub fn requeue(&self) -> Requeue {
        match self.progress_check {
            _ if self.ignored_error.is_some() => Requeue::RateLimited,
            Some(ProgressCheck { after, can_time_out: true }) => {
                after.map_or(Requeue::RateLimited, Requeue::After)
            }
            Some(ProgressCheck { can_time_out: false, .. }) | None => Requeue::Never,
        }
    }
}

/// Decides what a sync of `view` does at `now`, given the `answers` to what it has done so far.
///
/// The sync is replayed from its start each time: with the same view, the same time and answers that begin
/// alike, plans begin alike. Carry out `actions[answers.len()..]` in order, up to the first that fails, and
/// call again with the answers, until the plan is [`End::Done`] and nothing of it has failed unseen.
pub fn plan(view: &View, answers: &[Answer], now: Timestamp) -> Plan {
    let mut pass = Pass::new(view, answers, now);
    let end = match sync::sync_deployment(&mut pass) {
        Ok(outcome) => End::Done(Ok(Outcome { ignored_error: pass.ignored_error.take(), ..outcome })),
        Err(Stop::Failed(error)) => End::Done(Err(error)),
        Err(Stop::NeedsAnswer) => End::NeedsAnswer,
    };
    Plan { actions: pass.into_actions(), end }
}

/// Decides what a sync would do from start to end if the server did as told and changed nothing on its own.
///
/// This explains a rollout without touching it: each action has its reason, and the outcome says what it waits
/// for.
pub fn plan_assuming_success(view: &View, now: Timestamp) -> Plan {
    let mut answers = Vec::new();
    loop {
        let plan = plan(view, &answers, now);
        if matches!(plan.end, End::Done(_)) || plan.actions.len() <= answers.len() {
            return plan;
        }
        answers.extend(plan.actions[answers.len()..].iter().map(|planned| planned.action.as_sent()));
    }
}

impl fmt::Display for Plan {
    /// One line an action, and one for the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for planned in &self.actions {
            writeln!(f, "- {planned}")?;
        }
        match &self.end {
            End::NeedsAnswer => f.write_str("… and then depending on the answer"),
            End::Done(Err(error)) => write!(f, "failed: {error}"),
            End::Done(Ok(outcome)) => {
                if let Some(error) = &outcome.ignored_error {
                    writeln!(f, "ignored: {error}")?;
                }
                write!(f, "waits for {}", outcome.waits_for)?;
                match outcome.requeue() {
                    Requeue::Never => Ok(()),
                    Requeue::After(delay) => write!(f, "; looks again in {delay:?}"),
                    Requeue::RateLimited => f.write_str("; looks again soon"),
                }
            }
        }
    }
}
