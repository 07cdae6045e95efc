//! Group commit: writes are durable before they are published.
//!
//! Writers decide from the published state and append to the queue of the *head*, the published state plus all pending
//! writes. One writer commits the whole queue to the disk in one transaction while the others wait, then publishes it.
//! A hundred concurrent clients therefore cost about as many fsyncs as one. Reads do not wait for the disk. If the
//! disk fails, the head is reset to the published state and all queued writes fail.

use std::{
    mem,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Change, Disk, Key, Shared, State, Write};
use crate::{ApiStatus, Object};

/// Result of a queued write, set once it is known.
type Ticket = Arc<OnceLock<Result<(), ApiStatus>>>;

/// Disk and queue. Locks are acquired in the order disk, head, published state.
pub(super) struct Durable {
    disk: Mutex<Disk>,
    head: Mutex<Head>,
}

struct Head {
    /// Published state plus pending writes. Commit guards check this state.
    state: State,
    /// Pending writes, in order.
    queue: Vec<(Change, Ticket)>,
}

impl Durable {
    pub(super) fn new(state: &State, disk: Disk) -> Self {
        let head = Head { state: state.without_history(), queue: Vec::new() };
        Self { disk: Mutex::new(disk), head: Mutex::new(head) }
    }

    /// Performs a write and waits until it is durable and published. Returns `None` if the object is no longer at the
    /// version that the write is based on.
    pub(super) fn commit(
        &self,
        shared: &Shared,
        write: Write<'_>,
        guard: &impl Fn(&State) -> Result<(), ApiStatus>,
    ) -> Result<Option<Arc<Object>>, ApiStatus> {
        let mut head = self.head.lock();
        if !head.state.is_current(&write) {
            drop(head);
            // The conflicting write may be pending. A retry makes sense only after it is published.
            blocking(|| self.flush(shared, None));
            return Ok(None);
        }
        guard(&head.state)?;
        let (change, object) = head.state.next_change(write);
        shared.recent.insert(&object);
        head.state.install(change.clone());
        let ticket = Ticket::default();
        head.queue.push((change, Arc::clone(&ticket)));
        drop(head);

        blocking(|| self.flush(shared, Some(&ticket)));
        match ticket.get() {
            Some(Ok(())) => Ok(Some(object)),
            Some(Err(status)) => Err(status.clone()),
            None => Err(ApiStatus::internal("write was not committed to disk")),
        }
    }

    /// Waits until all writes queued before, or the write of `ticket`, are published or failed.
    fn flush(&self, shared: &Shared, ticket: Option<&Ticket>) {
        let mut disk = self.disk.lock();
        if ticket.is_some_and(|ticket| ticket.get().is_some()) {
            return;
        }
        let (changes, mut tickets): (Vec<Change>, Vec<Ticket>) =
            mem::take(&mut self.head.lock().queue).into_iter().unzip();
        if changes.is_empty() {
            return;
        }
        let present = |resource, key: &Key| shared.state.read().version(resource, key).cloned();
        let outcome = match disk.commit(&changes, present) {
            Ok(()) => {
                let mut state = shared.state.write();
                let forgotten: Vec<_> =
                    changes.into_iter().map(|change| shared.publish(&mut state, change)).collect();
                drop(state);
                drop(forgotten);
                Ok(())
            }
            Err(why) => {
                tracing::error!("{why}");
                let mut head = self.head.lock();
                // Later writes are based on the failed ones.
                tickets.extend(mem::take(&mut head.queue).into_iter().map(|(_, ticket)| ticket));
                head.state = shared.state.read().without_history();
                Err(ApiStatus::internal(why))
            }
        };
        for ticket in tickets {
            // Each ticket is set only here, and only once.
            let _ = ticket.set(outcome.clone());
        }
    }
}

/// Runs `wait` without blocking other tasks, if the runtime is multi-threaded.
fn blocking(wait: impl FnOnce()) {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

#[cfg(test)]
mod tests;
