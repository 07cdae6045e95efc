//! Writes that are on the disk before anybody sees them.
//!
//! Writers decide from the published state, like readers, and queue at the *head*, which is the published
//! state with all writes under way. One of them takes the whole queue to the disk in one transaction while the
//! others wait (so a hundred clients cost about as many fsyncs as one), publishes it, and the next goes on
//! with what has gathered meanwhile. Reads never wait for the disk. If the disk fails, the head becomes the
//! published state again and all who queue get an error.

use std::{
    mem,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Change, Disk, Key, Shared, State, Write};
use crate::{ApiStatus, Object};

/// What came of a write, once that is known.
type Ticket = Arc<OnceLock<Result<(), ApiStatus>>>;

/// The disk and the queue before it. Locks are taken in the order disk, head, published state.
pub(super) struct Durable {
    disk: Mutex<Disk>,
    head: Mutex<Head>,
}

struct Head {
    /// What will be published if the disk does not fail. Guards of commits see this.
    state: State,
    /// What it has more than the published state, in order.
    queue: Vec<(Change, Ticket)>,
}

impl Durable {
    pub(super) fn new(state: &State, disk: Disk) -> Self {
        let head = Head { state: state.without_history(), queue: Vec::new() };
        Self { disk: Mutex::new(disk), head: Mutex::new(head) }
    }

    /// Carries out a write and waits until it is durable and published; `None` if somebody else changes the
    /// object.
    pub(super) fn commit(
        &self,
        shared: &Shared,
        write: Write<'_>,
        guard: &impl Fn(&State) -> Result<(), ApiStatus>,
    ) -> Result<Option<Arc<Object>>, ApiStatus> {
        let mut head = self.head.lock();
        if !head.state.is_still_as_read(&write) {
            drop(head);
            // The other write may be under way still. It has to be seen before there is a point in trying again.
            blocking(|| self.flush(shared, None));
            return Ok(None);
        }
        guard(&head.state)?;
        let change = head.state.next_change(write);
        let object = Arc::clone(&change.object);
        head.state.install(change.clone());
        let ticket = Ticket::default();
        head.queue.push((change, Arc::clone(&ticket)));
        drop(head);

        blocking(|| self.flush(shared, Some(&ticket)));
        match ticket.get() {
            Some(Ok(())) => Ok(Some(object)),
            Some(Err(status)) => Err(status.clone()),
            None => Err(ApiStatus::internal("a write was lost on its way to the disk")),
        }
    }

    /// Returns when all that was queued before, or the write of `ticket`, is published or has failed.
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
        let present = |resource, key: &Key| shared.state.read().get(resource, key).cloned();
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
                // What came since stands on what has failed.
                tickets.extend(mem::take(&mut head.queue).into_iter().map(|(_, ticket)| ticket));
                head.state = shared.state.read().without_history();
                Err(ApiStatus::internal(why))
            }
        };
        for ticket in tickets {
            // Each is set here only, and once.
            let _ = ticket.set(outcome.clone());
        }
    }
}

/// Waits without keeping the runtime's other tasks from running, where the runtime can be told so.
fn blocking(wait: impl FnOnce()) {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

#[cfg(test)]
mod tests;
