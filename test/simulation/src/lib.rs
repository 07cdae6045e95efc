//! Tasks that run the simulation: on many seeds, and with planted bugs. See `docs/simulation.md`.

pub mod planted_bugs;
pub mod simulate;
