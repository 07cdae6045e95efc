//! Log of the requests of the manager.

use std::sync::Arc;

use kcm_clock::Clock;
use kcm_invariants::Entry;
use tokio::sync::mpsc;

/// Sending half of a [`WriteLog`].
#[derive(Debug, Clone)]
pub struct WriteLogSender(mpsc::UnboundedSender<Entry>);

impl WriteLogSender {
    /// Appends an entry. Ignored if the log was dropped.
    pub fn send(&self, entry: Entry) {
        let _ = self.0.send(entry);
    }
}

/// Requests of the manager that have not been read yet, in order.
#[derive(Debug)]
pub struct WriteLog {
    entries: mpsc::UnboundedReceiver<Entry>,
    clock: Arc<dyn Clock>,
}

impl WriteLog {
    /// Returns an empty log and its sender.
    pub fn new(clock: Arc<dyn Clock>) -> (WriteLogSender, Self) {
        let (sender, entries) = mpsc::unbounded_channel();
        (WriteLogSender(sender), Self { entries, clock })
    }

    /// Waits for the next entry until the monotonic time `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no entry is lost.
    pub async fn next_before(&mut self, deadline: std::time::Duration) -> Option<Entry> {
        let left = deadline.saturating_sub(self.clock.monotonic());
        tokio::select! {
            biased;
            entry = self.entries.recv() => entry,
            () = self.clock.sleep(left) => None,
        }
    }

    /// Returns the next entry if one is available.
    pub fn try_next(&mut self) -> Option<Entry> {
        self.entries.try_recv().ok()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        while self.try_next().is_some() {}
    }
}
