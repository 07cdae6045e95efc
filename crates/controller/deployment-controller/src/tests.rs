//! Tests of the plan as a whole.

mod coalescing;
mod properties;
mod stories;
