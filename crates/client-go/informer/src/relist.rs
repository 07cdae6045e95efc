use tokio::sync::watch;

/// Relists that were requested of a reflector, and those that are complete. Both are numbered from 1 on.
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
        // It fails if the sender is dropped, and `self` holds that.
        let _ = self.completed.subscribe().wait_for(|completed| *completed >= number).await;
    }

    /// Number of the last relist requested.
    pub(crate) fn requested(&self) -> watch::Receiver<u64> {
        self.requested.subscribe()
    }

    /// `true` if a relist is requested and not complete.
    pub(crate) fn is_pending(&self) -> bool {
        *self.completed.borrow() < *self.requested.borrow()
    }

    /// Completes all relists up to `number`.
    pub(crate) fn complete(&self, number: u64) {
        self.completed.send_replace(number);
    }
}
