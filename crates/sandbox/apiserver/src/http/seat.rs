//! Seats of writes.

use parking_lot::Mutex;

use super::program::WriteGate;

/// Seat of a write at a [gate](WriteGate), and the warnings that webhooks have given.
///
/// The seat is free while a webhook is called, so that a slow webhook delays its own request only.
#[derive(Default)]
pub(super) struct Seat {
    gate: Option<WriteGate>,
    taken: Mutex<Option<Box<dyn Send>>>,
    warnings: Mutex<Vec<String>>,
}

impl Seat {
    pub(super) fn new(gate: Option<WriteGate>) -> Self {
        Self { gate, ..Self::default() }
    }

    /// Waits for the seat.
    pub(super) async fn take(&self) {
        if let Some(gate) = &self.gate {
            let seat = gate().await;
            *self.taken.lock() = Some(seat);
        }
    }

    /// Admits the next write.
    pub(super) fn leave(&self) {
        drop(self.taken.lock().take());
    }

    /// Adds warnings. Those of a repeated write are not added again.
    pub(super) fn warn(&self, warnings: Vec<String>) {
        let mut given = self.warnings.lock();
        for warning in warnings {
            if !given.contains(&warning) {
                given.push(warning);
            }
        }
    }

    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }
}
