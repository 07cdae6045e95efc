use std::{fmt, future::Future, pin::Pin, time::Duration};

/// Instant of the wall clock.
pub use jiff::Timestamp;

/// Future of [`Clock::sleep`]. Dropping it cancels the sleep.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Source of time.
///
/// Upstream counterpart: `clock.WithTicker`.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the time of the wall clock, for timestamps in objects. The wall clock may be adjusted: use
    /// [`monotonic`](Self::monotonic) to measure durations.
    fn now(&self) -> Timestamp;

    /// Returns the time since an arbitrary origin, for durations and deadlines. It never decreases.
    fn monotonic(&self) -> Duration;

    /// Waits until [`monotonic`](Self::monotonic) has advanced by `duration`, or longer if the machine is suspended in
    /// the meantime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the sleep and has no other effect.
    fn sleep(&self, duration: Duration) -> Sleep;

    /// Waits like [`sleep`](Self::sleep) before the next step of a component. `_name` identifies the timer in simulations,
    /// which can let it expire later. Timeouts use `sleep`.
    fn timer(&self, _name: &'static str, duration: Duration) -> Sleep {
        self.sleep(duration)
    }
}
