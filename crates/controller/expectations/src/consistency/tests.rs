//! Upstream's consistency_test.go.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::*;

const OTHER: GroupResource = GroupResource { group: "example.org", resource: "others" };

/// Caches with resource versions that a test sets.
#[derive(Clone, Default)]
struct Caches(Arc<Mutex<HashMap<GroupResource, String>>>);

impl Caches {
    fn read(&self, resource: GroupResource, version: &str) {
        self.0.lock().insert(resource, version.to_owned());
    }

    fn store(&self) -> ConsistencyStore {
        let cache = |resource| {
            let caches = self.0.clone();
            let read: ReadVersion = Arc::new(move || caches.lock().get(&resource).cloned());
            (resource, read)
        };
        ConsistencyStore::new([cache(GroupResource::PODS), cache(GroupResource::REPLICA_SETS)])
    }
}

fn owner() -> ObjectKey {
    ObjectKey::new("default", "web")
}

fn uid(text: &str) -> Arc<str> {
    text.into()
}

/// A store after one write of pods at version 100, with a cache that is at `read`.
fn after_write(read: Option<&str>) -> (ConsistencyStore, Caches) {
    let caches = Caches::default();
    let store = caches.store();
    store.wrote_at(&owner(), uid("u"), GroupResource::PODS, "100");
    if let Some(read) = read {
        caches.read(GroupResource::PODS, read);
    }
    (store, caches)
}

#[test]
fn owner_is_listed_until_its_writes_are_found() {
    let (store, caches) = after_write(Some("99"));
    assert!(store.ensure_ready(&owner()).is_err());
    assert_eq!(store.owners(), [owner()]);
    assert!(!store.all_ready());
    caches.read(GroupResource::PODS, "100");
    assert_eq!(store.owners(), [owner()], "no sync has begun");
    assert!(store.all_ready());
    store.ensure_ready(&owner()).unwrap();
    assert_eq!(store.owners(), []);
}

/// Upstream: TestOwnerRecord_IsReady, and versions of different lengths.
#[test]
fn test_owner_record_is_ready() {
    struct Case {
        name: &'static str,
        read_version: Option<&'static str>,
        is_ready: bool,
    }

    let cases = [
        Case { name: "newer", read_version: Some("101"), is_ready: true },
        Case { name: "newer, for it is longer", read_version: Some("1000"), is_ready: true },
        Case { name: "equal", read_version: Some("100"), is_ready: true },
        Case { name: "older", read_version: Some("99"), is_ready: false },
        Case { name: "older, for it is shorter", read_version: Some("9"), is_ready: false },
        Case { name: "missing store", read_version: None, is_ready: true },
        Case { name: "unparsable: empty", read_version: Some(""), is_ready: true },
        Case { name: "unparsable: letters", read_version: Some("abc"), is_ready: true },
        Case { name: "unparsable: a leading zero", read_version: Some("0100"), is_ready: true },
        Case { name: "unparsable: below zero", read_version: Some("-1"), is_ready: true },
    ];
    for Case { name, read_version, is_ready } in cases {
        let answer = after_write(read_version).0.ensure_ready(&owner()).map_err(|behind| behind.to_string());
        let read = read_version.unwrap_or_default();
        let behind =
            format!("read version: {read} is not as new as written version: 100 for group resource pods");
        assert_eq!(answer, if is_ready { Ok(()) } else { Err(behind) }, "{name}");
    }
}

/// Upstream: TestOwnerRecord_WroteAt, with its versions.
#[test]
fn test_owner_record_wrote_at() {
    let caches = Caches::default();
    let store = caches.store();
    caches.read(GroupResource::PODS, "1");
    for (version, highest) in [("5", "5"), ("10", "10"), ("8", "10"), ("abc", "10")] {
        store.wrote_at(&owner(), uid("u"), GroupResource::PODS, version);
        assert_eq!(store.ensure_ready(&owner()).unwrap_err().written, highest, "after {version}");
    }
    // A write of another resource does not change this one.
    store.wrote_at(&owner(), uid("u"), GroupResource::REPLICA_SETS, "1");
    assert_eq!(store.ensure_ready(&owner()).unwrap_err().written, "10");
}

/// Upstream: TestConsistencyStore_WroteAt: the owner has no record before its first write.
#[test]
fn test_consistency_store_wrote_at() {
    let caches = Caches::default();
    let store = caches.store();
    caches.read(GroupResource::PODS, "1");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
    for version in ["10", "20"] {
        store.wrote_at(&owner(), uid("u"), GroupResource::PODS, version);
        assert_eq!(store.ensure_ready(&owner()).unwrap_err().written, version);
    }
}

/// Upstream: TestConsistencyStore_New.
#[test]
fn test_consistency_store_new() {
    assert!(Caches::default().store().records.is_empty());
    assert!(ConsistencyStore::new([]).records.is_empty());
}

/// Upstream: TestConsistencyStore_IsReady.
#[test]
fn test_consistency_store_is_ready() {
    let caches = Caches::default();
    let store = caches.store();
    assert_eq!(store.ensure_ready(&owner()), Ok(()), "no record");
    caches.read(GroupResource::PODS, "5");
    store.wrote_at(&owner(), uid("u"), GroupResource::PODS, "10");
    assert!(store.ensure_ready(&owner()).is_err(), "read < write");
    caches.read(GroupResource::PODS, "10");
    assert_eq!(store.ensure_ready(&owner()), Ok(()), "read == write");
    caches.read(GroupResource::PODS, "15");
    assert_eq!(store.ensure_ready(&owner()), Ok(()), "read > write");
    assert!(store.records.is_empty(), "there is nothing left to wait for");
}

#[test]
fn waits_for_all_written_resources() {
    let (store, caches) = after_write(Some("100"));
    store.wrote_at(&owner(), uid("u"), GroupResource::REPLICA_SETS, "200");
    caches.read(GroupResource::REPLICA_SETS, "199");
    let behind = store.ensure_ready(&owner()).unwrap_err();
    assert_eq!(behind.resource, GroupResource::REPLICA_SETS);
    assert_eq!(behind.resource.to_string(), "replicasets.apps");
    caches.read(GroupResource::REPLICA_SETS, "200");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
}

#[test]
fn removes_the_record_once_ready() {
    let (store, caches) = after_write(Some("100"));
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
    caches.read(GroupResource::PODS, "1");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
}

#[test]
fn owners_are_independent() {
    let (store, _caches) = after_write(Some("1"));
    assert_eq!(store.ensure_ready(&ObjectKey::new("default", "other")), Ok(()));
    assert_eq!(store.ensure_ready(&ObjectKey::new("elsewhere", "web")), Ok(()));
}

/// Upstream: TestConsistencyStore_EnsureWrittenRecord: a change of UID resets.
#[test]
fn test_consistency_store_ensure_written_record() {
    let (store, _caches) = after_write(Some("50"));
    store.wrote_at(&owner(), uid("later"), GroupResource::PODS, "40");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
}

/// Upstream: TestConsistencyStore_Clear.
#[test]
fn test_consistency_store_clear() {
    struct Case {
        name: &'static str,
        owner_uid: Option<&'static str>,
        is_cleared: bool,
    }

    let cases = [
        Case { name: "UID match", owner_uid: Some("u"), is_cleared: true },
        Case { name: "UID mismatch", owner_uid: Some("other"), is_cleared: false },
        Case { name: "UID empty", owner_uid: None, is_cleared: true },
    ];
    for Case { name, owner_uid, is_cleared } in cases {
        let (store, _caches) = after_write(Some("1"));
        store.clear(&owner(), owner_uid);
        assert_eq!(store.ensure_ready(&owner()).is_ok(), is_cleared, "{name}");
    }
    let (store, _caches) = after_write(Some("1"));
    store.clear(&ObjectKey::new("default", "unknown"), None);
    assert!(store.ensure_ready(&owner()).is_err());
}

#[test]
fn not_ready_keeps_the_record() {
    let (store, caches) = after_write(Some("1"));
    let behind = store.not_ready(&owner()).unwrap();
    assert_eq!(store.ensure_ready(&owner()), Err(behind));
    caches.read(GroupResource::PODS, "1000000");
    assert_eq!((store.not_ready(&owner()), store.records.len()), (None, 1));
}

#[test]
fn ignores_writes_of_other_resources() {
    let store = Caches::default().store();
    store.wrote_at(&owner(), uid("u"), OTHER, "100");
    assert!(store.records.is_empty());
}

/// Upstream: TestConsistencyStore_EnsureWrittenRecord_Concurrent.
#[test]
fn test_consistency_store_ensure_written_record_concurrent() {
    let (store, caches) = after_write(Some("100"));
    std::thread::scope(|scope| {
        for version in 101..=200_u32 {
            let store = &store;
            scope.spawn(move || {
                store.wrote_at(&owner(), uid("u"), GroupResource::PODS, &version.to_string());
            });
        }
    });
    caches.read(GroupResource::PODS, "199");
    assert_eq!(store.ensure_ready(&owner()).unwrap_err().written, "200");
}
