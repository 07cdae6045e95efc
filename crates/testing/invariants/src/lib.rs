//! Invariants of Deployments, ReplicaSets and pods that must hold after every write of a controller manager.
//!
//! *Upstream counterpart:* none; the e2e tests in `test/e2e/apps` check some of them.
//!
//! [`Invariants`] receives every change of the cluster in order, and every request of the manager. Its model of the cluster
//! is built from these only.
//!
//! The rules constrain the writes of the manager, given the states that it may have observed. Example: a user scales a
//! ReplicaSet down, and the controller creates a pod before it observes the change. This is not a violation. A write is
//! therefore compared with every state of the object since the observed generation, and with the state shortly before.

mod basis;
mod entry;
mod model;
mod object_state;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{basis::Basis, entry::Entry};
use self::{
    model::{Before, Model},
    object_state::ObjectState,
};

/// Property that must hold after every write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// A ReplicaSet gets no more pods than its replicas. Terminating pods are not counted.
    SurplusPods,
    /// The total replicas of the ReplicaSets of a Deployment are not raised above its replicas plus the surge.
    SurplusReplicas,
    /// No required pod is deleted: neither below the number of replicas, nor a ready pod instead of an unready one.
    NeededPods,
    /// A rolling update keeps `replicas - maxUnavailable` pods available. Scaling during a rollout is proportional (US-4.8b): it
    /// removes surplus replicas whether their pods are available or not. As in upstream (US-4.9), a ReplicaSet that was scaled
    /// down counts with the available pods in its status, until the ReplicaSet controller has deleted the surplus pods and updated
    /// the status.
    Availability,
    /// With the strategy Recreate, no new pods are requested while old pods exist.
    RecreateOverlap,
    /// With the strategy Recreate, no pod of an old ReplicaSet that the manager has scaled to 0 is created after the manager
    /// has requested new pods, with that strategy.
    RecreateOldPods,
    /// No object has two controllers, or is taken from one controller by another.
    TwoControllers,
    /// Revisions only increase, and a new ReplicaSet has the highest revision.
    Revisions,
    /// Collision counts only increase.
    Collisions,
    /// A ReplicaSet that is created or scaled has the replicas of its Deployment, and those with the surge, in its annotations.
    NotedSizes,
    /// The conditions `Available` and `Progressing` of a Deployment agree with the numbers of its status.
    Conditions,
    /// A rollout is marked as `ProgressDeadlineExceeded` only after its deadline.
    EarlyTimeout,
    /// A rollout without progress is marked as `ProgressDeadlineExceeded` at most 30 s after its deadline.
    MissedTimeout,
    /// The observed generation does not exceed the generation, and never decreases.
    ObservedGeneration,
    /// Every write changes something.
    IdleWrite,
    /// No existing object is created again.
    CreatedTwice,
    /// No object is deleted that is in use, belongs to the history of a Deployment, or has another owner.
    DeletedInUse,
    /// The number of consecutive writes of the manager without changes by other clients is bounded, and so is the number of
    /// syncs per step.
    Effort,
    /// A settled manager writes nothing for ten minutes.
    Silence,
}

/// Invariant that a story violates on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exemption {
    /// The invariant.
    pub invariant: Invariant,
    /// Reason why it does not hold, with upstream's controllers either.
    pub reason: String,
}

/// Violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Object, for example `replicaset t0x/web-1`.
    pub object: String,
    /// Description.
    pub description: String,
    /// The write that caused the violation.
    pub write: String,
    /// Step of the story.
    pub step: String,
}

/// Change of an object.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// The object was created or changed. Contains the new state.
    Applied(&'a Value),
    /// The object was deleted. Contains the last state.
    Deleted(&'a Value),
}

/// Checks the invariants of one cluster.
#[derive(Debug, Default)]
pub struct Invariants {
    model: Model,
    /// Number of consecutive requests of the manager without changes by other clients.
    consecutive_writes: usize,
    /// Number of reasons for a sync: changes and requests in this step, and objects that a new manager finds.
    sync_triggers: usize,
    /// Total number of syncs at the start of the step.
    syncs: u64,
    step: String,
    violations: Vec<Violation>,
}

impl Invariants {
    /// Creates the invariants of an empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a step at `location`. `syncs` is the total number of syncs of the manager so far.
    pub fn begin_step(&mut self, location: &str, syncs: u64) {
        self.end_step(syncs);
        location.clone_into(&mut self.step);
        self.consecutive_writes = 0;
    }

    /// Ends the step. `syncs` is the total number of syncs of the manager so far.
    pub fn end_step(&mut self, syncs: u64) {
        let findings = rules::check_syncs(syncs.saturating_sub(self.syncs), self.sync_triggers);
        self.report(findings, "none");
        (self.syncs, self.sync_triggers) = (syncs, 0);
    }

    /// Records that the manager was replaced by a new one, which has no memory of earlier writes.
    pub fn manager_restarted(&mut self) {
        self.consecutive_writes = 0;
        self.sync_triggers += self.model.count_objects();
    }

    /// Records a change by another client than the manager at time `now`.
    pub fn observe_change(&mut self, change: Change<'_>, now: Timestamp) {
        self.sync_triggers += 1;
        if let Some(state) = ObjectState::of(change.object()) {
            self.consecutive_writes = 0;
            self.apply(&state, change, now, None);
        }
    }

    /// Checks a write of the manager that caused `changes`.
    pub fn check_write(&mut self, write: &Entry, changes: &[Change<'_>], basis: Basis) {
        self.sync_triggers += 1;
        let mut findings = Vec::new();
        for change in changes {
            let Some(state) = ObjectState::of(change.object()) else { continue };
            let before = self.apply(&state, *change, basis.now, Some(basis));
            findings.extend(rules::check_change(&self.model, &before, &state, *change, write, basis));
        }
        findings.extend(rules::check_request(&self.model, write, changes));
        if rules::counts_as_effort(write, changes) {
            self.consecutive_writes += 1;
            findings.extend(rules::check_consecutive_writes(&self.model, write, self.consecutive_writes));
        }
        self.report(findings, &describe(write));
    }

    /// Reports a write after the cluster had settled, or `None` if it never settled.
    pub fn report_unsettled(&mut self, write: Option<&Entry>) {
        let (description, write) = match write {
            Some(write) => ("write after eleven minutes without writes and other changes", describe(write)),
            None => ("no eleven minutes without a write within two hours", "the last write".to_owned()),
        };
        let finding = Finding {
            invariant: Invariant::Silence,
            object: "the manager".to_owned(),
            description: description.to_owned(),
        };
        self.report([finding], &write);
    }

    /// Ends the checks at time `now`. Reports rollouts without progress that have not been marked as timed out.
    pub fn end(&mut self, now: Timestamp) {
        let findings: Vec<_> = self
            .model
            .unscaled_deployments()
            .filter_map(|state| rules::missed_timeout(&state, now))
            .collect();
        self.report(findings, "none");
    }

    /// Violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Updates the model. Returns the previous state.
    fn apply(
        &mut self,
        state: &ObjectState,
        change: Change<'_>,
        now: Timestamp,
        by_manager: Option<Basis>,
    ) -> Before {
        let two = rules::two_controllers(state);
        self.report(two, "any client");
        let before = self.model.apply(state, matches!(change, Change::Deleted(_)), now, by_manager);
        self.report(rules::missed_timeout(&before, now), "none");
        before
    }

    fn report(&mut self, findings: impl IntoIterator<Item = Finding>, write: &str) {
        let step = &self.step;
        self.violations.extend(findings.into_iter().map(|Finding { invariant, object, description }| {
            Violation { invariant, object, description, write: write.to_owned(), step: step.clone() }
        }));
    }
}

impl<'a> Change<'a> {
    fn object(self) -> &'a Value {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }
}

/// Violation without the write and the step.
#[derive(Debug)]
struct Finding {
    invariant: Invariant,
    object: String,
    description: String,
}

fn describe(write: &Entry) -> String {
    let Entry { verb, resource, subresource, name, code, body, .. } = write;
    let part = if subresource.is_empty() { "" } else { "/" };
    let generated = || body.as_ref().and_then(|body| body["metadata"]["generateName"].as_str());
    let name = if name.is_empty() { generated().unwrap_or_default() } else { name };
    format!("{verb} {resource}{part}{subresource} {name} ({code})")
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, object, description, write, step } = self;
        write!(f, "{step}: {invariant:?} is violated: {object}: {description}; by {write}")
    }
}
