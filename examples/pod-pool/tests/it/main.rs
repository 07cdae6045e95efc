//! The operator on the embedded API server, in simulated time.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

mod cluster;
mod comparison;
mod faults;
mod lifecycle;
mod lines;
mod readme;
