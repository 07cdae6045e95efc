//! Tests of the plan as a whole.

mod properties;
mod stories;
