use std::sync::atomic::{AtomicU64, Ordering};

use kcm_api::{Deployment, ObjectKey};
use kcm_clock::{FakeClock, Timestamp};
use kcm_controller_util::replica_set_indexers;
use kcm_expectations::OwnWrites;
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

/// Returns the versions that a sync uses. The cache contains `cached` and has received events up to version `seen`.
fn claimable_versions(writes: &WrittenObjects, cached: Option<&str>, seen: &str) -> Vec<String> {
    let mut store = StoreWriter::new(replica_set_indexers());
    if let Some(version) = cached {
        store.apply(set_at(version));
    }
    store.bookmark(seen);
    let sets = claimable(writes, &OwnerIdentity::from(&deployment(1)), &store.reader().read());
    sets.iter().map(|set| set.metadata.resource_version.clone()).collect()
}

fn key() -> ObjectKey {
    deployment(1).metadata.key()
}

fn written(version: &str) -> WrittenObjects {
    let writes = WrittenObjects::default();
    writes.wrote(&key(), &set_at(version));
    writes
}

#[test]
fn newer_version_is_used() {
    let writes = written("10");
    assert_eq!(claimable_versions(&writes, Some("9"), "9"), ["10"]);
    assert_eq!(claimable_versions(&writes, Some("11"), "11"), ["11"]);
    assert!(writes.is_empty(), "removed once the cache contains it");
    assert_eq!(claimable_versions(&writes, Some("9"), "9"), ["9"]);
}

/// The cache contains a deleted orphan with the name of the created ReplicaSet.
#[test]
fn created_replica_set_replaces_one_with_its_name() {
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
        let sets = claimable(&writes, &OwnerIdentity::from(&deployment(1)), &store.reader().read());
        sets.iter().map(|set| set.metadata.resource_version.clone()).collect::<Vec<_>>()
    };
    assert_eq!(seen_with("9"), ["10"]);
    assert_eq!(seen_with("11"), ["11"], "the created ReplicaSet was deleted");
    assert!(writes.is_empty());
}

#[test]
fn deployment_remains_after_its_replica_sets() {
    let writes = written("10");
    writes.wrote(&key(), &deployment_at("12"));
    assert_eq!(claimable_versions(&writes, Some("11"), "11"), ["11"]);
    assert_eq!(writes.newest(&key(), deployment_at("11")).metadata.resource_version, "12");
}

#[test]
fn created_replica_set_is_used_until_the_cache_is_newer() {
    let writes = written("10");
    assert_eq!(claimable_versions(&writes, None, "9"), ["10"]);
    assert_eq!(claimable_versions(&writes, None, "12"), [""; 0], "created and deleted");
    assert_eq!(claimable_versions(&writes, None, "9"), [""; 0]);
}

#[test]
fn incomparable_version_is_not_used() {
    assert_eq!(claimable_versions(&written("b"), Some("a"), "a"), ["a"]);
}

#[test]
fn deployment_is_used_for_the_same_uid_only() {
    let writes = WrittenObjects::default();
    writes.wrote(&key(), &deployment_at("10"));
    let version = |cached: Arc<Deployment>| writes.newest(&key(), cached).metadata.resource_version.clone();
    assert_eq!(version(deployment_at("9")), "10");
    let mut another = deployment(1);
    another.metadata.uid = "another".into();
    another.metadata.resource_version = "9".to_owned();
    assert_eq!(version(Arc::new(another)), "9");
    assert!(writes.is_empty(), "removed");
}

#[test]
fn deleted_deployment_is_removed() {
    let own_writes = OwnWrites::new(Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH)), []);
    own_writes.objects.wrote(&key(), &set_at("10"));
    own_writes.forget(&key());
    assert!(own_writes.objects.is_empty());
}

/// The cache adopts and releases a ReplicaSet concurrently. Each call returns it once, in a version that is at least as new
/// as the cached one and the written one.
#[test]
fn concurrently_adopted_replica_set_is_returned_once() {
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
    let (store, cached, writes) = (writer.reader(), AtomicU64::new(1), WrittenObjects::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 2..=VERSIONS {
                writer.apply(version_of(version));
                cached.store(version, Ordering::Release);
            }
        });
        loop {
            let before = cached.load(Ordering::Acquire);
            // The response of a patch that the cache does not contain yet.
            let written = if before.is_multiple_of(3) { before + 1 } else { before };
            if written > before {
                writes.wrote(&owner.key(), &version_of(written));
            }
            let versions: Vec<u64> = claimable(&writes, &owner, &store.read())
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

/// `web-1` of generation 2, with 0 replicas.
fn empty_set(version: &str, observed: i64) -> ReplicaSet {
    let mut set = (*set_at(version)).clone();
    set.metadata.generation = 2;
    set.spec.replicas = Some(0);
    set.status.observed_generation = observed;
    set
}

/// A scale-down of `web-1` at version 10, with a response of version 11 or without one.
struct ScaleDown {
    name: &'static str,
    has_response: bool,
    cached: Option<ReplicaSet>,
    /// Version that the cache has reached.
    seen: &'static str,
    is_unobserved: bool,
}

#[test]
fn scale_down_is_unobserved_until_the_cache_reports_it() {
    let cached = |version, observed| Some(empty_set(version, observed));
    let former = || Some((*set_at("10")).clone());
    let mut another = empty_set("12", 1);
    another.metadata.uid = "another".into();
    let case = |name, has_response, cached, seen, is_unobserved| ScaleDown {
        name,
        has_response,
        cached,
        seen,
        is_unobserved,
    };
    for case in [
        case("former size", true, former(), "10", true),
        case("former size, no response", false, former(), "10", true),
        case("not observed", true, cached("11", 1), "11", true),
        case("not observed, no response", false, cached("11", 1), "11", true),
        case("observed", true, cached("12", 2), "12", false),
        case("observed, no response", false, cached("12", 2), "12", false),
        case("0 replicas before they were raised and lowered again", true, cached("9", 2), "9", true),
        case("not cached yet", true, None, "9", true),
        case("deleted", true, None, "12", false),
        case("replaced", true, Some(another), "12", false),
    ] {
        let writes = WrittenObjects::default();
        writes.sent(&key(), &empty_set("10", 1));
        if case.has_response {
            writes.wrote(&key(), &Arc::new(empty_set("11", 1)));
        }
        let mut store = StoreWriter::new(replica_set_indexers());
        if let Some(set) = case.cached {
            store.apply(Arc::new(set));
        }
        store.bookmark(case.seen);
        claimable(&writes, &OwnerIdentity::from(&deployment(1)), &store.reader().read());
        assert_eq!(writes.unobserved(&key()).len(), usize::from(case.is_unobserved), "{}", case.name);
        assert_eq!(writes.is_empty(), !case.is_unobserved, "{}", case.name);
    }
}

#[test]
fn scale_up_ends_the_scale_down() {
    let writes = WrittenObjects::default();
    let set = empty_set("10", 1);
    writes.sent(&key(), &set);
    writes.replaced(&key(), &set.metadata.uid);
    assert!(writes.unobserved(&key()).is_empty());
}
