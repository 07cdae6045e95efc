//! Time and chance as inputs.
//!
//! *Upstream counterpart:* `k8s.io/utils/clock`, and `math/rand` where upstream reaches for it.
//!
//! Nothing in this workspace reads the operating system's clock or rolls dice on its own: a component takes
//! an [`Arc<dyn Clock>`](Clock) and, where it needs jitter or names, an [`Arc<dyn Random>`](Random). A binary
//! passes [`RealClock`]; a unit test passes [`FakeClock`] and steps it; a test of a whole cluster passes
//! [`SimulatedClock`] under tokio's paused time, where an hour of waiting costs nothing.
//!
//! *What must not live here:* anything that knows Kubernetes, any policy (back-off, jitter factors, time-outs).

mod fake;
mod random;
mod real;
mod simulated;

pub use fake::FakeClock;
pub use random::{Random, SeededRandom, generate_name, is_generated_name, jitter};
pub use real::RealClock;
pub use simulated::SimulatedClock;

use std::{fmt, future::Future, pin::Pin, time::Duration};

/// A wall-clock instant, re-exported so that users need not name the time library.
pub use jiff::Timestamp;

/// A sleep that a clock hands out. Dropping it cancels it.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Where a component gets the time from, and how it waits.
///
/// Upstream counterpart: `clock.WithTicker`.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall clock, for times that go into objects. It may jump; never subtract two of these to measure.
    fn now(&self) -> Timestamp;

    /// Monotonic time since an arbitrary origin, for measuring and for deadlines. It never goes back.
    fn monotonic(&self) -> Duration;

    /// A future that is ready once [`monotonic`](Self::monotonic) has advanced by `duration`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect but to cancel the wait.
    fn sleep(&self, duration: Duration) -> Sleep;
}
