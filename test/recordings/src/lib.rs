//! The controllers' results for recorded cases of upstream, and new recordings. `README.md` describes the format.

pub mod answer;
pub mod input;
pub mod record;
