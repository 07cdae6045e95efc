//! Development tasks of the project. A library, so that tests can use them.

pub mod acceptance;
pub mod answer;
pub mod beside;
pub mod budget;
pub mod e2e_report;
pub mod input;
pub mod load;
pub mod manager_load;
pub mod manager_memory;
pub mod measure;
pub mod planted_bugs;
pub mod record;
pub mod simulate;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFromDoctests;
