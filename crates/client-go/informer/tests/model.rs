//! Model tests of the store's read path: shuttle chooses the thread that runs next at each lock.
//!
//! A test fails if an assertion fails, or if all threads wait, in any schedule. The schedules come from fixed seeds. The
//! feature `shuttle` replaces the locks of parking_lot with those of shuttle.
//!
//! Run with `cargo test -p kcm-informer --features shuttle --test model`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

use std::{fmt::Debug, sync::Arc};

use kcm_clock::Timestamp;
use kcm_informer::{ControllerRef, IndexName, Indexers, Object, ObjectKey, Store, StoreWriter};
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    thread::{self, JoinHandle},
};

/// Schedules per scheduler and test.
const SCHEDULES: usize = 1000;

const OWNER: IndexName = IndexName("owner");

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    name: Arc<str>,
    version: String,
    owner: Arc<str>,
}

impl Object for Item {
    fn key(&self) -> ObjectKey {
        key(&self.name)
    }

    fn uid_str(&self) -> &str {
        &self.name
    }

    fn resource_version_str(&self) -> &str {
        &self.version
    }

    fn label(&self, _: &str) -> Option<&str> {
        None
    }

    fn creation_time(&self) -> Option<Timestamp> {
        None
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        None
    }

    fn controller(&self) -> Option<ControllerRef<'_>> {
        None
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn item(name: &str, version: &str, owner: &str) -> Item {
    Item { name: name.into(), version: version.to_owned(), owner: owner.into() }
}

/// State of the store.
struct State {
    version: Option<&'static str>,
    synced: bool,
    /// Name, version and owner of each object, in the order of the names.
    objects: &'static [(&'static str, &'static str, &'static str)],
}

/// States of [`write_history`], in order.
const HISTORY: [State; 7] = [
    State { version: None, synced: false, objects: &[] },
    State { version: Some("2"), synced: true, objects: &[("a", "1", "x"), ("b", "2", "x")] },
    State { version: Some("3"), synced: true, objects: &[("a", "3", "y"), ("b", "2", "x")] },
    State { version: Some("4"), synced: true, objects: &[("a", "3", "y")] },
    State { version: Some("5"), synced: true, objects: &[("a", "3", "y"), ("b", "5", "y")] },
    State { version: Some("8"), synced: true, objects: &[("a", "7", "x"), ("c", "6", "x")] },
    State { version: Some("9"), synced: true, objects: &[("a", "7", "x"), ("c", "6", "x")] },
];

/// Writes as a reflector does: a list, events of a watch, a relist, and a bookmark.
fn write_history(writer: &mut StoreWriter<Item>) {
    let mut list = writer.snapshot();
    list.insert(item("a", "1", "x"));
    list.insert(item("b", "2", "x"));
    writer.commit(list, "2");
    writer.apply(Arc::new(item("a", "3", "y")));
    writer.remove(&key("b"), Some("4"));
    writer.apply(Arc::new(item("b", "5", "y")));
    let mut list = writer.snapshot();
    list.insert(item("a", "7", "x"));
    list.insert(item("c", "6", "x"));
    writer.commit(list, "8");
    writer.bookmark("9");
}

impl State {
    fn items(&self) -> impl Iterator<Item = Item> {
        self.objects.iter().map(|(name, version, owner)| item(name, version, owner))
    }

    fn owned_by(&self, owner: &str) -> Vec<Item> {
        self.items().filter(|item| &*item.owner == owner).collect()
    }

    fn get(&self, name: &str) -> Option<Item> {
        self.items().find(|item| &*item.name == name)
    }
}

/// Last state that a reader has read.
#[derive(Default)]
struct Position(usize);

impl Position {
    /// Advances to the first state for which `view` returns `read`.
    ///
    /// # Panics
    ///
    /// If there is no such state, or only an earlier one.
    fn advance<T: Debug + PartialEq>(&mut self, read: &T, view: impl Fn(&State) -> T) {
        let later = HISTORY.iter().skip(self.0).position(|state| view(state) == *read);
        match later {
            Some(steps) => self.0 += steps,
            None => panic!("{read:?} is not a state from {} on", self.0),
        }
    }
}

fn sorted<'a>(found: impl IntoIterator<Item = &'a Arc<Item>>) -> Vec<Item> {
    let mut items: Vec<_> = found.into_iter().map(|item| Item::clone(item)).collect();
    items.sort();
    items
}

/// Runs a writer beside two readers, under schedules drawn uniformly, then under schedules with few preemptions.
fn check(read: fn(&Store<Item>)) {
    let run = move || {
        let mut writer =
            StoreWriter::new(Indexers::new().with(OWNER, |item: &Item| Some(item.owner.clone())));
        let readers: Vec<JoinHandle<()>> = (0..2)
            .map(|_| {
                let store = writer.reader();
                thread::spawn(move || read(&store))
            })
            .collect();
        write_history(&mut writer);
        for reader in readers {
            reader.join().unwrap();
        }
    };
    let mut config = Config::new();
    // Room for the backtrace of a failure.
    config.stack_size = 1 << 18;
    Runner::new(RandomScheduler::new_from_seed(1, SCHEDULES), config.clone()).run(run);
    Runner::new(PctScheduler::new_from_seed(1, 3, SCHEDULES), config).run(run);
}

/// Each read returns one state of the store, and none older than that of an earlier read.
///
/// Fails if a commit inserts its objects one at a time, and if an index lookup releases the lock before it reads the
/// objects.
#[test]
fn reads_return_complete_states_in_order() {
    check(|store| {
        let mut position = Position::default();
        for _ in 0..2 {
            position.advance(&sorted(&store.list()), |state| state.items().collect());
            position.advance(&sorted(&store.by_index(OWNER, "x")), |state| state.owned_by("x"));
            position.advance(&sorted(&store.by_index(OWNER, "y")), |state| state.owned_by("y"));
            position.advance(&store.get(&key("a")).as_deref().cloned(), |state| state.get("a"));
            position.advance(&store.is_synced(), |state| state.synced);
        }
    });
}

/// A store at a version contains all changes up to that version.
///
/// Fails if a write changes the version before it changes the objects, or after, under a separate lock.
#[test]
fn version_and_objects_change_together() {
    check(|store| {
        let mut position = Position::default();
        for _ in 0..3 {
            let version = store.last_sync_resource_version();
            position.advance(&version, |state| state.version.map(str::to_owned));
            position.advance(&sorted(&store.list()), |state| state.items().collect());
        }
    });
}

/// All lookups of one guard read the same state.
///
/// Fails if `read` locks for each lookup.
#[test]
fn guard_reads_one_state() {
    check(|store| {
        let mut position = Position::default();
        for _ in 0..2 {
            let guard = store.read();
            let view = (
                sorted(guard.by_index(OWNER, "x")),
                guard.last_sync_resource_version().map(str::to_owned),
                sorted(guard.by_index(OWNER, "y")),
                guard.get(&key("a")).map(|item| Item::clone(item)),
            );
            drop(guard);
            position.advance(&view, |state| {
                (state.owned_by("x"), state.version.map(str::to_owned), state.owned_by("y"), state.get("a"))
            });
        }
    });
}
