//! What the tasks that measure have in common: programs to start, processes to look at, tables to print.

pub(crate) mod process;
pub(crate) mod program;
mod table;

pub use program::ProgramError;
pub(crate) use table::{Measure, table};
