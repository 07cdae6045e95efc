//! Owner references: adopts orphans that match a selector, and releases owned objects that do not.
//!
//! Upstream counterpart: `pkg/controller/controller_ref_manager.go`.
//!
//! [`classify`] is pure and decides for one object. [`claim`] performs the decisions of a sync with an [`OwnerControl`].
//! [`OwnerPatch`] is the change of a request. Owner and objects can be of any type that implements
//! [`Object`](kcm_meta::Object), custom resources included.
//!
//! Not part of this crate: the number of objects, caches, HTTP, events.

#![warn(missing_debug_implementations)]

mod claim;
mod classify;
mod error;
mod patch;

pub use claim::{Claimed, LiveOwner, OwnerControl, claim};
pub use classify::{Claim, Ignored, OwnerIdentity, classify};
pub use error::{AdoptionRefused, ClaimError, ClaimErrors};
pub use patch::OwnerPatch;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(test)]
mod tests;
