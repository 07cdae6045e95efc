//! What a Deployment's state means, as pure functions: which ReplicaSet is the new one, how many pods may be
//! missing, how a change of size is shared out, whether a rollout moves, is done or is stuck.
//!
//! *Upstream counterpart:* `pkg/controller/deployment/util`.
//!
//! One file, one subject:
//!
//! | module | subject |
//! |---|---|
//! | [`annotations`] | what the controller keeps on ReplicaSets, and what travels there from the Deployment |
//! | [`revisions`] | numbering of ReplicaSets and the history of their numbers |
//! | [`conditions`] | conditions, their reasons, and how they replace one another |
//! | [`fenceposts`] | how many pods there may be at most, and must be at least |
//! | [`proportions`] | how a change of size in mid-rollout is shared out |
//! | [`replica_sets`] | which ReplicaSet is new, which are old, which count |
//! | [`sort`] | orders of ReplicaSets |
//! | [`rollout`] | complete, progressing, timed out |
//! | [`names`] | the name of a new ReplicaSet |
//!
//! Counts are `i32` and wrap as upstream's do, so that no spec, however absurd, is decided differently or ends
//! in a panic (US-4.15).
//!
//! *What must not live here:* async, I/O, clocks (the time is an argument), decisions about what to write.

pub mod annotations;
pub mod conditions;
pub mod fenceposts;
pub mod names;
pub mod proportions;
pub mod replica_sets;
pub mod revisions;
pub mod rollout;
pub mod sort;

#[cfg(test)]
mod fixtures;
