//! Who owns what: claiming the objects of a controller, adopting orphans, letting go of strays.
//!
//! *Upstream counterpart:* `pkg/controller/controller_ref_manager.go`.
//!
//! [`classify`] decides for one object and touches nothing. [`claim`] carries the decisions of a sync out over
//! an [`OwnerControl`], which a transport or a test implements, and asks the server once whether the owner is
//! still there before the first adoption. [`OwnerPatch`] is the body of the request.
//!
//! It works for any owner and any [`Claimable`] object; Pods and ReplicaSets come with it.
//!
//! *What must not live here:* how many objects there should be, caches, HTTP, events.

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
