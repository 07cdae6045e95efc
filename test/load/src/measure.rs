//! Common parts of benchmarks: programs, process statistics, tables.

pub(crate) mod process;
pub mod program;
mod table;

pub use program::ProgramError;
pub(crate) use table::{Measure, table};
