//! Pure functions on Deployments and their ReplicaSets.
//!
//! *Upstream counterpart:* `pkg/controller/deployment/util`. *Behaviour:* `docs/behaviour/deployment.md`.
//!
//! | Module | Subject |
//! |---|---|
//! | [`annotations`] | annotations of the controller, and those copied from the Deployment |
//! | [`conditions`] | conditions of a Deployment |
//! | [`fenceposts`] | bounds of a rolling update |
//! | [`names`] | name of a new ReplicaSet |
//! | [`proportions`] | proportional scaling |
//! | [`replica_sets`] | new and old ReplicaSets, and their totals |
//! | [`revisions`] | revisions and their history |
//! | [`rollout`] | complete, progressing, timed out |
//! | [`sort`] | orders of ReplicaSets |
//!
//! Numbers of replicas are `i32` and wrap on overflow, as upstream (US-4.15). Formulas use [`std::num::Wrapping`].
//!
//! This crate contains no I/O and no logging. The current time is a parameter.

#![warn(missing_debug_implementations)]

pub mod annotations;
pub mod conditions;
pub mod fenceposts;
pub mod names;
pub mod proportions;
pub mod replica_sets;
pub mod revisions;
pub mod rollout;
pub mod sort;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(test)]
mod fixtures;
