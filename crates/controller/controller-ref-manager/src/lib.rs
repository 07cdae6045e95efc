//! Owner references: adopts orphans that match a selector, and releases owned objects that do not.
//!
//! Upstream counterpart: `pkg/controller/controller_ref_manager.go`.
//!
//! [`classify`] is pure and decides for one object. [`claim`] performs the decisions of a sync with an [`OwnerControl`].
//! [`OwnerPatch`] is the body of a request. Any type that implements [`Claimable`] can be claimed; pods and ReplicaSets
//! implement it.
//!
//! Not part of this crate: the number of objects, caches, HTTP, events.

mod claim;
mod classify;
mod error;
mod patch;

pub use claim::{Claimable, Claimed, LiveOwner, OwnerControl, claim};
pub use classify::{Claim, Ignored, ObjectView, OwnerIdentity, classify};
pub use error::{AdoptionRefused, ClaimError, ClaimErrors};
pub use patch::OwnerPatch;

#[cfg(test)]
mod tests;
