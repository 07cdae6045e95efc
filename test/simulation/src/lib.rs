//! Tasks that run the simulation: on many seeds, on all schedules of small scenarios, and with planted bugs. See
//! `docs/simulation.md`.

pub mod explore;
mod page;
pub mod planted_bugs;
pub mod simulate;

use std::path::{Path, PathBuf};

/// The root of the tree that the program is built from.
fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
