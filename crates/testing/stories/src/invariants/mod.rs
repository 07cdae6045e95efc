//! What must hold after every write, whatever the story.
//!
//! An [`Invariants`] is told of everything that changes, in order, and of every request of the manager; what it knows
//! of the cluster it knows from that alone. It waits for nothing and asks nobody.
//!
//! Each rule is about what the manager *does*, given what it can know: a user who scales down makes pods superfluous
//! that nobody created in error, and a controller that was told of that a moment later is no worse for it. So a
//! request is measured by every state of the object since the one that the controller has said it has observed, and
//! by how things were a moment before.

mod facts;
mod model;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use self::{
    facts::Facts,
    model::{Before, Model},
};
use crate::write_log::Entry;

/// Something that must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// No ReplicaSet is given more pods than its replicas; pods on their way out are not counted.
    SurplusPods,
    /// The replicas of a Deployment's ReplicaSets together are not raised above its own and the surge.
    SurplusReplicas,
    /// No pod is deleted that is needed: neither one too many, nor a ready one where another would do.
    NeededPods,
    /// A rolling update does not take away what leaves fewer available than replicas less maxUnavailable. Scaling
    /// in the middle of a rollout is not a rolling update: it is in proportion, and promises nothing (US-4.8b). As
    /// upstream counts (US-4.9), a ReplicaSet that was scaled down has as many available pods as its status reports, until
    /// the ReplicaSet controller has deleted the surplus and written the status.
    Availability,
    /// With the strategy Recreate no new pod is asked for while an old one is there.
    RecreateOverlap,
    /// Nothing has two controllers, or is taken from one by another.
    TwoControllers,
    /// Revisions only grow, and each new ReplicaSet's is the highest.
    Revisions,
    /// Collision counts only grow.
    Collisions,
    /// What was observed is never ahead of what there is, and never goes back.
    ObservedGeneration,
    /// No write leaves everything as it was.
    IdleWrite,
    /// Nothing is created that is there already.
    CreatedTwice,
    /// Nothing is deleted that is in use, or somebody else's.
    DeletedInUse,
    /// So many writes in a row, with nobody else doing anything, are enough to settle; and so many syncs, for what
    /// happens in a step.
    Effort,
    /// Who has settled writes nothing for ten minutes.
    Silence,
}

/// An invariant that a story is spared.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exemption {
    /// Which.
    pub invariant: Invariant,
    /// Why it does not hold, with upstream's controllers either.
    pub reason: String,
}

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What should have held.
    pub invariant: Invariant,
    /// What it is about, such as `replicaset t0x/web-1`.
    pub object: String,
    /// How it is broken.
    pub how: String,
    /// The write that broke it.
    pub write: String,
    /// Where the story was at the time.
    pub step: String,
}

/// What has become of an object.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// It came to be, or was changed; this is its state.
    Is(&'a Value),
    /// It is gone; this was its last state.
    Gone(&'a Value),
}

/// Time of a write, and age of the state that it may be based on.
///
/// A write is judged by every state of the cluster between the two: it is a violation only if it is wrong by all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Basis {
    /// Time of the write.
    pub now: Timestamp,
    /// Oldest state of the cluster that the writer may have acted on. Not after `now`.
    pub since: Timestamp,
}

impl Basis {
    /// Basis of a write that is based on the current state.
    pub fn current(now: Timestamp) -> Self {
        Self { now, since: now }
    }

    /// `true` if the writer may have acted on an old state.
    pub(crate) fn is_old(self) -> bool {
        self.since < self.now
    }
}

/// Looks after the invariants of one cluster.
#[derive(Debug, Default)]
pub struct Invariants {
    model: Model,
    /// Requests of the manager since somebody else did something.
    in_a_row: usize,
    /// What a sync can be for: changes and requests since the step began, and objects that a new manager finds.
    occasions: usize,
    /// All syncs, when the step began.
    syncs: u64,
    step: String,
    violations: Vec<Violation>,
}

impl Invariants {
    /// Of an empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// The story has got to `place`; up to here the manager has begun so many syncs in all.
    pub fn begin_step(&mut self, place: &str, syncs: u64) {
        self.end_step(syncs);
        place.clone_into(&mut self.step);
        self.in_a_row = 0;
    }

    /// The step is over; up to here the manager has begun so many syncs in all.
    pub fn end_step(&mut self, syncs: u64) {
        let found = rules::of_syncs(syncs.saturating_sub(self.syncs), self.occasions);
        self.report(found, "none");
        (self.syncs, self.occasions) = (syncs, 0);
    }

    /// The manager is a new one, which cannot know what the last one did.
    pub fn restarted(&mut self) {
        self.in_a_row = 0;
        self.occasions += self.model.count_objects();
    }

    /// Somebody other than the manager has changed something at the time `now`.
    pub fn others(&mut self, change: Change<'_>, now: Timestamp) {
        self.occasions += 1;
        if let Some(facts) = Facts::of(change.object()) {
            self.in_a_row = 0;
            self.take_in(&facts, change, now, false);
        }
    }

    /// The manager has sent `write`, which has changed this.
    pub fn manager(&mut self, write: &Entry, changes: &[Change<'_>], basis: Basis) {
        self.occasions += 1;
        let mut found = Vec::new();
        for change in changes {
            let Some(facts) = Facts::of(change.object()) else { continue };
            let before = self.take_in(&facts, *change, basis.now, true);
            found.extend(rules::of_change(&self.model, &before, &facts, *change, write, basis));
        }
        found.extend(rules::of_request(&self.model, write, changes));
        if rules::is_effort(write, changes) {
            self.in_a_row += 1;
            found.extend(rules::of_effort(&self.model, write, self.in_a_row));
        }
        self.report(found, &describe(write));
    }

    /// The manager has sent `write` after it had settled; `None` if it has never settled.
    pub fn unsettled(&mut self, write: Option<&Entry>) {
        let (how, write) = match write {
            Some(write) => {
                ("it had written nothing for eleven minutes, and nobody did anything", describe(write))
            }
            None => {
                ("there were no eleven minutes without a write within two hours", "the last one".to_owned())
            }
        };
        let found =
            Found { invariant: Invariant::Silence, object: "the manager".to_owned(), how: how.to_owned() };
        self.report([found], &write);
    }

    /// What did not hold so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Brings the model up to date; answers how things were.
    fn take_in(&mut self, facts: &Facts, change: Change<'_>, now: Timestamp, by_manager: bool) -> Before {
        let two = rules::two_controllers(facts);
        self.report(two, "whoever wrote it");
        self.model.apply(facts, matches!(change, Change::Gone(_)), now, by_manager)
    }

    fn report(&mut self, found: impl IntoIterator<Item = Found>, write: &str) {
        let step = &self.step;
        self.violations.extend(found.into_iter().map(|Found { invariant, object, how }| Violation {
            invariant,
            object,
            how,
            write: write.to_owned(),
            step: step.clone(),
        }));
    }
}

impl<'a> Change<'a> {
    fn object(self) -> &'a Value {
        match self {
            Self::Is(object) | Self::Gone(object) => object,
        }
    }
}

/// What a rule has found, before it is known where.
#[derive(Debug)]
struct Found {
    invariant: Invariant,
    object: String,
    how: String,
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
        let Self { invariant, object, how, write, step } = self;
        write!(f, "{step}: {invariant:?} is violated: {object}: {how}; by {write}")
    }
}
