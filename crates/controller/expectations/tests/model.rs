//! Model tests of the consistency store: shuttle chooses the thread that runs next at each lock.
//!
//! A test fails if an assertion fails or if all threads wait in any schedule. The schedules come from fixed seeds. The
//! feature `shuttle` replaces the locks of dashmap and of the informer's store by shuttle's. Its map has one lock, where
//! dashmap has one per shard; operations on one key exclude each other in both.
//!
//! Run with `cargo test -p kcm-expectations --features shuttle --test model`.

use std::sync::Arc;

use kcm_clock::Timestamp;
use kcm_expectations::{ConsistencyStore, GroupResource, ReadVersion};
use kcm_informer::{ControllerRef, Indexers, Object, Store, StoreWriter};
use kcm_meta::ObjectKey;
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};

/// Schedules per scheduler and test.
const SCHEDULES: usize = 1000;

/// Runs `test` under schedules drawn uniformly, then under schedules with few preemptions.
fn check(test: fn()) {
    let mut config = Config::new();
    // Room for the backtrace of a failure.
    config.stack_size = 1 << 18;
    Runner::new(RandomScheduler::new_from_seed(1, SCHEDULES), config.clone()).run(test);
    Runner::new(PctScheduler::new_from_seed(1, 3, SCHEDULES), config).run(test);
}

/// The one pod of these tests.
struct Pod {
    uid: Arc<str>,
    version: String,
}

impl Object for Pod {
    fn key(&self) -> ObjectKey {
        ObjectKey::new("default", "web-0")
    }

    fn uid_str(&self) -> &str {
        &self.uid
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

fn apply(writer: &mut StoreWriter<Pod>, version: u32) {
    writer.apply(Arc::new(Pod { uid: "pod".into(), version: version.to_string() }));
}

/// A cache at version 1, and a consistency store that reads its version.
fn world() -> (StoreWriter<Pod>, Store<Pod>, Arc<ConsistencyStore>) {
    let mut writer = StoreWriter::new(Indexers::new());
    apply(&mut writer, 1);
    let (cache, read) = (writer.reader(), writer.reader());
    let version: ReadVersion = Arc::new(move || read.last_sync_resource_version());
    (writer, cache, Arc::new(ConsistencyStore::new([(GroupResource::PODS, version)])))
}

fn owner() -> ObjectKey {
    ObjectKey::new("default", "web")
}

/// A sync that passes the check reads each write before it from the cache.
///
/// Fails if `wrote_at` keeps the lower or the later of two versions, and if it replaces a record that another thread adds
/// at the same time.
#[test]
fn sync_reads_its_own_writes() {
    check(|| {
        let (mut writer, cache, consistency) = world();
        let uid: Arc<str> = "uid".into();
        let reflector = thread::spawn(move || {
            for version in 2..=4 {
                apply(&mut writer, version);
            }
        });
        // Two writes at once, as a batch of creates.
        let writes = [4, 3].map(|version: u32| {
            let (consistency, uid) = (Arc::clone(&consistency), Arc::clone(&uid));
            thread::spawn(move || {
                consistency.wrote_at(&owner(), uid, GroupResource::PODS, &version.to_string());
            })
        });
        for write in writes {
            write.join().unwrap();
        }
        while consistency.ensure_ready(&owner()).is_err() {
            thread::yield_now();
        }
        let pod = cache.read().get(&ObjectKey::new("default", "web-0")).map(|pod| pod.version.clone());
        assert_eq!(pod.as_deref(), Some("4"));
        reflector.join().unwrap();
    });
}

/// A write that is noted while `ensure_ready` removes the record of an earlier write is kept.
///
/// Fails if `ensure_ready` compares and removes under two locks.
#[test]
fn write_noted_during_the_check_is_kept() {
    check(|| {
        let (_writer, _cache, consistency) = world();
        let uid: Arc<str> = "uid".into();
        consistency.wrote_at(&owner(), Arc::clone(&uid), GroupResource::PODS, "1");
        let check = {
            let consistency = Arc::clone(&consistency);
            thread::spawn(move || drop(consistency.ensure_ready(&owner())))
        };
        consistency.wrote_at(&owner(), uid, GroupResource::PODS, "2");
        check.join().unwrap();
        assert!(consistency.ensure_ready(&owner()).is_err(), "the write at version 2 was forgotten");
    });
}

/// A write of a new owner survives the deletion of the old owner of that name.
///
/// Fails if `clear` compares the UID and removes under two locks.
#[test]
fn write_of_a_new_owner_survives_the_deletion_of_the_old_one() {
    check(|| {
        let (_writer, _cache, consistency) = world();
        consistency.wrote_at(&owner(), "old", GroupResource::PODS, "3");
        let handler = {
            let consistency = Arc::clone(&consistency);
            thread::spawn(move || consistency.clear(&owner(), Some("old")))
        };
        consistency.wrote_at(&owner(), "new", GroupResource::PODS, "2");
        handler.join().unwrap();
        assert!(consistency.ensure_ready(&owner()).is_err(), "the write of the new owner was forgotten");
    });
}
