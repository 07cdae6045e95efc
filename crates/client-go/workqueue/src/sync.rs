//! Locks, wake-ups and atomics of the queues.
//!
//! For the model tests in `tests/model.rs` the feature `shuttle` replaces them: shuttle then chooses the thread that runs
//! next at each of them.

#[cfg(not(feature = "shuttle"))]
pub(crate) use {parking_lot::Mutex, std::sync::atomic::AtomicU64, tokio::sync::Notify};

#[cfg(feature = "shuttle")]
pub(crate) use {shuttle::sync::atomic::AtomicU64, shuttle_parking_lot::Mutex, step::Notify};

#[cfg(feature = "shuttle")]
mod step {
    use shuttle::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::futures::Notified;

    /// `Notify` of tokio. Shuttle may switch threads before each call.
    #[derive(Debug)]
    pub(crate) struct Notify(tokio::sync::Notify);

    impl Notify {
        pub(crate) fn new() -> Self {
            Self(tokio::sync::Notify::new())
        }

        pub(crate) fn notified(&self) -> Notified<'_> {
            step();
            self.0.notified()
        }

        pub(crate) fn notify_one(&self) {
            step();
            self.0.notify_one();
        }

        pub(crate) fn notify_last(&self) {
            step();
            self.0.notify_last();
        }

        pub(crate) fn notify_waiters(&self) {
            step();
            self.0.notify_waiters();
        }
    }

    /// Lets shuttle choose the next thread.
    fn step() {
        AtomicBool::new(false).load(Ordering::SeqCst);
    }
}
