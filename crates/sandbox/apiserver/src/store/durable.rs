//! Group commit: writes are durable before they are published.
//!
//! Writers decide from the published state and append to the queue of the *head*, the published state plus all pending
//! writes. One writer commits the whole queue to the disk in one transaction while the others wait, then publishes it.
//! A hundred concurrent clients therefore cost about as many fsyncs as one. Reads do not wait for the disk. If the
//! disk fails, the head is reset to the published state and all queued writes fail.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Change, Key, Shared, State, Write, key};
use crate::{ApiStatus, Object, Resource, custom, encoded::SharedTexts, json::str_at, object::Version};

/// Object on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `resource.group/namespace/name`, or `resource.group/name` for cluster-scoped objects.
    pub name: String,
    /// Time of the last write, in microseconds since 1970, and JSON text. `None` for a removed object.
    pub content: Option<(i64, Vec<u8>)>,
}

/// Durable copy of the objects.
pub trait Disk: Send {
    /// Makes `rows` and the revision of the last of them durable, all or none. After a failure the rows may or may not be
    /// written; the next commit contains them again, with their published content.
    ///
    /// # Errors
    ///
    /// The reason why nothing is durable.
    fn commit(&mut self, revision: u64, rows: &[Row]) -> Result<(), String>;
}

impl Row {
    fn new(resource: Resource, key: &Key, version: Option<&Version>) -> Self {
        let content = version.map(|version| (version.written().as_microsecond(), version.text()));
        Self { name: format!("{}/{key}", resource.qualified()), content }
    }
}

/// Disk with the keys of failed writes.
struct Committer {
    disk: Box<dyn Disk>,
    uncertain: Vec<(Resource, Key)>,
}

impl Committer {
    /// Commits `changes`. `present` returns the published version of an object.
    fn commit(
        &mut self,
        changes: &[Change],
        present: impl Fn(Resource, &Key) -> Option<Arc<Version>>,
    ) -> Result<(), String> {
        let repaired = self
            .uncertain
            .iter()
            .map(|(resource, key)| Row::new(*resource, key, present(*resource, key).as_deref()));
        let changed = changes.iter().map(|change| {
            let version = (!change.removed).then_some(&*change.object);
            Row::new(change.resource(), change.object.key(), version)
        });
        let rows: Vec<Row> = repaired.chain(changed).collect();
        let written = self.disk.commit(changes.last().map_or(0, Change::revision), &rows);
        if written.is_ok() {
            self.uncertain.clear();
        } else {
            let keys = changes.iter().map(|change| (change.resource(), Arc::clone(change.object.key())));
            self.uncertain.extend(keys);
        }
        written
    }
}

/// Result of a queued write, set once it is known.
type Ticket = Arc<OnceLock<Result<(), ApiStatus>>>;

/// Disk and queue. Locks are acquired in the order disk, head, published state.
pub(super) struct Durable {
    disk: Mutex<Committer>,
    head: Mutex<Head>,
}

struct Head {
    /// Published state plus pending writes. Commit guards check this state.
    state: State,
    /// Pending writes, in order.
    queue: Vec<(Change, Ticket)>,
}

impl Durable {
    pub(super) fn new(state: &State, disk: Box<dyn Disk>) -> Self {
        let head = Head { state: state.without_history(), queue: Vec::new() };
        let disk = Committer { disk, uncertain: Vec::new() };
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

/// Returns the versions in `rows`.
///
/// # Errors
///
/// Returns the name of an invalid row.
pub(super) fn decode(rows: Vec<Row>, texts: &SharedTexts) -> Result<Vec<Arc<Version>>, String> {
    // Objects of custom resources may precede their definitions.
    let (built_in, custom): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| resource_of(&row.name).is_some());
    let mut versions = Vec::new();
    for row in built_in {
        let version = resource_of(&row.name).and_then(|resource| decode_row(resource, &row, texts));
        versions.push(version.ok_or(row.name)?);
    }
    let defined = defined_resources(&versions);
    for row in custom {
        let resource = row.name.split_once('/').and_then(|(qualified, _)| defined.get(qualified));
        let version = resource.and_then(|resource| decode_row(*resource, &row, texts));
        versions.push(version.ok_or(row.name)?);
    }
    Ok(versions)
}

/// Returns the built-in resource of a row.
fn resource_of(name: &str) -> Option<Resource> {
    let (qualified, _) = name.split_once('/')?;
    let (plural, group) = qualified.split_once('.').unwrap_or((qualified, ""));
    Resource::find(group, plural)
}

/// Returns the custom resources that are defined in `objects`, by qualified name.
fn defined_resources(objects: &[Arc<Version>]) -> HashMap<String, Resource> {
    let definitions =
        objects.iter().filter(|version| version.resource() == Resource::CUSTOM_RESOURCE_DEFINITIONS);
    definitions
        .filter_map(|version| {
            let definition = Object::new(Arc::clone(version));
            Some((definition.name().to_owned(), custom::resource_of(&definition)?))
        })
        .collect()
}

fn decode_row(resource: Resource, row: &Row, texts: &SharedTexts) -> Option<Arc<Version>> {
    let (_, row_key) = row.name.split_once('/')?;
    let (written, text) = row.content.as_ref()?;
    let value: Value = serde_json::from_slice(text).ok()?;
    let metadata = |field| str_at(&value, &["metadata", field]);
    if *key(metadata("namespace"), metadata("name")) != *row_key {
        return None;
    }
    let revision = metadata("resourceVersion").parse().ok()?;
    let written = Timestamp::from_microsecond(*written).ok()?;
    Some(Arc::new(
        Version::new(resource, &row_key.into(), &value, None, written, texts).with_revision(revision),
    ))
}
