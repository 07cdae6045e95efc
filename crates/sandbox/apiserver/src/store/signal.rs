//! Wake-up signals for watchers.
//!
//! Waiters are woken in the order in which they began to wait, so simulations are deterministic.
//! `tokio::sync::watch` wakes receivers in random order.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

/// A sender of wake-ups.
#[derive(Debug, Default)]
pub(super) struct Signal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Number of wake-ups so far, and [`GONE`] once the sender is dropped.
    sent: AtomicU64,
    notify: Notify,
}

/// Value of `sent` once the sender is dropped.
const GONE: u64 = u64::MAX;

/// A receiver of wake-ups.
#[derive(Debug)]
pub(super) struct Listener {
    shared: Arc<Shared>,
    seen: u64,
}

/// The sender was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

impl Signal {
    /// Wakes all listeners.
    pub(super) fn send(&self) {
        self.0.sent.fetch_add(1, Ordering::AcqRel);
        self.0.notify.notify_waiters();
    }

    /// Returns a listener for wake-ups from now on.
    pub(super) fn listen(&self) -> Listener {
        Listener { shared: Arc::clone(&self.0), seen: self.0.sent.load(Ordering::Acquire) }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.0.sent.store(GONE, Ordering::Release);
        self.0.notify.notify_waiters();
    }
}

impl Listener {
    /// Waits for a wake-up that has not been seen.
    ///
    /// # Errors
    ///
    /// The sender was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no wake-up.
    pub(super) async fn changed(&mut self) -> Result<(), Gone> {
        loop {
            let mut notified = pin!(self.shared.notify.notified());
            // From here on, no wake-up is missed.
            notified.as_mut().enable();
            match self.shared.sent.load(Ordering::Acquire) {
                GONE => return Err(Gone),
                sent if sent == self.seen => notified.await,
                sent => {
                    self.seen = sent;
                    return Ok(());
                }
            }
        }
    }

    /// Marks all wake-ups so far as seen.
    pub(super) fn mark_unchanged(&mut self) {
        let sent = self.shared.sent.load(Ordering::Acquire);
        if sent != GONE {
            self.seen = sent;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn listener_is_woken_once_per_unseen_signal() {
        let signal = Signal::default();
        let mut listener = signal.listen();
        signal.send();
        signal.send();
        assert_eq!(listener.changed().await, Ok(()));
        signal.send();
        listener.mark_unchanged();
        drop(signal);
        assert_eq!(listener.changed().await, Err(Gone));
    }

    #[tokio::test]
    async fn listeners_are_woken_in_order() {
        let (signal, woken) = (Signal::default(), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..20 {
            let (mut listener, woken) = (signal.listen(), Arc::clone(&woken));
            tasks.push(tokio::spawn(async move {
                listener.changed().await.unwrap();
                woken.lock().unwrap().push(number);
            }));
        }
        tokio::task::yield_now().await;
        signal.send();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }
}
