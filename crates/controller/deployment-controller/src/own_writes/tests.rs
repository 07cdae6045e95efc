use std::sync::atomic::{AtomicU64, Ordering};

use kcm_controller_util::replica_set_indexers;
use kcm_informer::StoreWriter;

use super::*;
use crate::testing::{deployment, replica_set};

fn set_at(version: &str) -> Arc<ReplicaSet> {
    let mut set = replica_set("web-1", "web:1", 0, 1, 1);
    set.metadata.resource_version = version.to_owned();
    Arc::new(set)
}

fn deployment_at(version: &str) -> Arc<Deployment> {
    let mut d = deployment(1);
    d.metadata.resource_version = version.to_owned();
    Arc::new(d)
}

/// The versions that a sync sees when `cached` is in a cache that has seen everything up to `seen`.
fn overlaid(writes: &OwnWrites, cached: Option<&str>, seen: &str) -> Vec<String> {
    let mut store = StoreWriter::new(replica_set_indexers());
    if let Some(version) = cached {
        store.apply(set_at(version));
    }
    store.bookmark(seen);
    let sets = writes.claimable(&OwnerIdentity::from(&deployment(1)), &store.reader().read());
    sets.iter().map(|set| set.metadata.resource_version.clone()).collect()
}

fn written(version: &str) -> OwnWrites {
    let writes = OwnWrites::default();
    writes.replica_set(&deployment(1).metadata.key(), &set_at(version));
    writes
}

#[test]
fn written_replica_set_stands_in_for_an_older_one_and_gives_way_to_a_newer_one() {
    let writes = written("10");
    assert_eq!(overlaid(&writes, Some("9"), "9"), ["10"]);
    assert_eq!(overlaid(&writes, Some("11"), "11"), ["11"]);
    assert!(writes.0.lock().is_empty(), "what has been caught up with is forgotten");
    assert_eq!(overlaid(&writes, Some("9"), "9"), ["9"]);
}

/// The cache still contains an orphan that was deleted, and whose name the created ReplicaSet has.
#[test]
fn created_replica_set_replaces_an_older_one_of_its_name() {
    let orphan = |version: &str| {
        let mut set = replica_set("web-1", "web:1", 0, 1, 1);
        set.metadata.uid = "orphan".into();
        set.metadata.resource_version = version.to_owned();
        set.metadata.owner_references.clear();
        set
    };
    let writes = written("10");
    let seen_with = |version: &str| {
        let mut store = StoreWriter::new(replica_set_indexers());
        store.apply(Arc::new(orphan(version)));
        let sets = writes.claimable(&OwnerIdentity::from(&deployment(1)), &store.reader().read());
        sets.iter().map(|set| set.metadata.resource_version.clone()).collect::<Vec<_>>()
    };
    assert_eq!(seen_with("9"), ["10"]);
    assert_eq!(seen_with("11"), ["11"], "the created one was deleted since");
    assert!(writes.is_empty());
}

#[test]
fn record_of_a_deployment_that_was_written_outlasts_its_replica_sets() {
    let writes = written("10");
    writes.deployment(&deployment_at("12"));
    assert_eq!(overlaid(&writes, Some("11"), "11"), ["11"]);
    assert_eq!(writes.newest(deployment_at("11")).metadata.resource_version, "12");
}

#[test]
fn created_replica_set_is_there_until_the_cache_has_seen_more_and_not_it() {
    let writes = written("10");
    assert_eq!(overlaid(&writes, None, "9"), ["10"]);
    assert_eq!(overlaid(&writes, None, "12"), [""; 0], "it was created, seen and deleted");
    assert_eq!(overlaid(&writes, None, "9"), [""; 0]);
}

#[test]
fn version_that_is_no_number_leaves_the_last_word_to_the_cache() {
    assert_eq!(overlaid(&written("b"), Some("a"), "a"), ["a"]);
}

#[test]
fn written_deployment_stands_in_only_for_an_older_state_of_itself() {
    let writes = OwnWrites::default();
    writes.deployment(&deployment_at("10"));
    let version = |cached: Arc<Deployment>| writes.newest(cached).metadata.resource_version.clone();
    assert_eq!(version(deployment_at("9")), "10");
    let mut another = deployment(1);
    another.metadata.uid = "another".into();
    another.metadata.resource_version = "9".to_owned();
    assert_eq!(version(Arc::new(another)), "9");
    assert!(writes.0.lock().is_empty(), "nothing is kept that is not needed");
}

#[test]
fn deployment_that_is_gone_leaves_nothing_behind() {
    let writes = written("10");
    writes.forget(&deployment(1).metadata.key());
    assert!(writes.0.lock().is_empty());
}

/// A writer adopts and releases a ReplicaSet all the time. Every view contains it once, in a version that is at least the
/// one that the cache contained before, and the one that was written.
#[test]
fn replica_set_that_is_adopted_and_released_is_in_each_view_once() {
    const VERSIONS: u64 = 30_000;
    let owner = OwnerIdentity::from(&deployment(1));
    let version_of = |version: u64| {
        let mut set = replica_set("web-1", "web:1", 0, 1, 1);
        set.metadata.resource_version = version.to_string();
        if version.is_multiple_of(2) {
            set.metadata.owner_references.clear();
        }
        Arc::new(set)
    };
    let mut writer = StoreWriter::new(replica_set_indexers());
    writer.apply(version_of(1));
    let (store, cached, writes) = (writer.reader(), AtomicU64::new(1), OwnWrites::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 2..=VERSIONS {
                writer.apply(version_of(version));
                cached.store(version, Ordering::Release);
            }
        });
        loop {
            let before = cached.load(Ordering::Acquire);
            // As if a patch had just been answered, which the cache does not contain yet.
            let written = if before.is_multiple_of(3) { before + 1 } else { before };
            if written > before {
                writes.replica_set(&owner.key(), &version_of(written));
            }
            let versions: Vec<u64> = writes
                .claimable(&owner, &store.read())
                .iter()
                .map(|set| set.metadata.resource_version.parse().unwrap())
                .collect();
            assert!(matches!(versions[..], [version] if version >= written), "{written}: {versions:?}");
            if before == VERSIONS {
                break;
            }
        }
    });
}
