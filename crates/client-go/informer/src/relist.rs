use tokio::sync::watch;

/// Relists requested of a reflector. Requests are numbered from 1.
pub(crate) struct Relists {
    requested: watch::Sender<u64>,
    completed: watch::Sender<u64>,
}

impl Relists {
    pub(crate) fn new() -> Self {
        Self { requested: watch::Sender::new(0), completed: watch::Sender::new(0) }
    }

    /// Requests a relist and waits until it, or a later one, is complete.
    pub(crate) async fn relist(&self) {
        let mut number = 0;
        self.requested.send_modify(|requested| {
            *requested += 1;
            number = *requested;
        });
        // Fails only if the sender is dropped, which `self` holds.
        let _ = self.completed.subscribe().wait_for(|completed| *completed >= number).await;
    }

    /// Returns a receiver of the number of the last request.
    pub(crate) fn requested(&self) -> watch::Receiver<u64> {
        self.requested.subscribe()
    }

    /// Returns `true` if a requested relist is not complete.
    pub(crate) fn is_pending(&self) -> bool {
        *self.completed.borrow() < *self.requested.borrow()
    }

    /// Completes all requests up to `number`.
    pub(crate) fn complete(&self, number: u64) {
        self.completed.send_replace(number);
    }
}
