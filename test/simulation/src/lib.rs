//! Tasks that run the simulation: on many seeds, on all schedules of small scenarios, and with planted bugs. See
//! `docs/simulation.md`.

pub mod explore;
mod page;
pub mod planted_bugs;
pub mod simulate;
