//! Clock and random source as traits, so that tests control time and randomness.
//!
//! *Upstream counterparts:* `k8s.io/utils/clock`, `math/rand`, and `names.SimpleNameGenerator`.
//!
//! | Clock | Use |
//! |---|---|
//! | [`RealClock`] | programs |
//! | [`FakeClock`] | unit tests; moves only when it is stepped |
//! | [`SimulatedClock`] | tests of whole clusters; follows tokio's paused time |
//!
//! Components take an [`Arc<dyn Clock>`](Clock) and an [`Arc<dyn Random>`](Random). No other crate of the workspace reads
//! the clock of the operating system or a random source.
//!
//! *Not part of this crate:* Kubernetes types; policies such as back-off and timeouts.

#![warn(missing_debug_implementations)]

#[cfg(target_os = "linux")]
mod boot_time;
mod clock;
mod fake;
mod name;
mod random;
mod real;
mod simulated;

pub use clock::{Clock, Sleep, Timestamp};
pub use fake::FakeClock;
pub use name::{generate_name, is_generated_name};
pub use random::{Random, SeededRandom, jitter};
pub use real::RealClock;
pub use simulated::SimulatedClock;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
