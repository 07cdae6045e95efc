//! placeholder
mod patch;
pub use patch::OwnerPatch;
