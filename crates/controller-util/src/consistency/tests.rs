//! Upstream's consistency_test.go.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::*;

const OTHER: GroupResource = GroupResource { group: "example.org", resource: "others" };

/// Caches whose versions a test sets.
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
    store.wrote_at(&owner(), &uid("u"), GroupResource::PODS, "100");
    if let Some(read) = read {
        caches.read(GroupResource::PODS, read);
    }
    (store, caches)
}

#[test]
fn test_owner_record_is_ready() {
    // Newer, equal, and longer and so newer.
    for read in ["101", "100", "1000"] {
        assert_eq!(after_write(Some(read)).0.ensure_ready(&owner()), Ok(()), "{read}");
    }
    // Older, and shorter and so older.
    for read in ["99", "9"] {
        let behind = after_write(Some(read)).0.ensure_ready(&owner()).unwrap_err();
        assert_eq!(
            behind.to_string(),
            format!("read version: {read} is not as new as written version: 100 for group resource pods")
        );
    }
    // A cache that cannot say, or says something that is no version.
    assert_eq!(after_write(None).0.ensure_ready(&owner()), Ok(()));
    for read in ["", "abc", "0100", "-1"] {
        assert_eq!(after_write(Some(read)).0.ensure_ready(&owner()), Ok(()), "{read}");
    }
}

#[test]
fn test_owner_record_wrote_at_keeps_the_highest_version() {
    let (store, caches) = after_write(Some("100"));
    store.wrote_at(&owner(), &uid("u"), GroupResource::PODS, "99");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
    store.wrote_at(&owner(), &uid("u"), GroupResource::PODS, "99");
    store.wrote_at(&owner(), &uid("u"), GroupResource::PODS, "102");
    store.wrote_at(&owner(), &uid("u"), GroupResource::PODS, "abc");
    assert!(store.ensure_ready(&owner()).is_err());
    caches.read(GroupResource::PODS, "102");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
}

#[test]
fn every_resource_written_must_have_been_read() {
    let (store, caches) = after_write(Some("100"));
    store.wrote_at(&owner(), &uid("u"), GroupResource::REPLICA_SETS, "200");
    caches.read(GroupResource::REPLICA_SETS, "199");
    let behind = store.ensure_ready(&owner()).unwrap_err();
    assert_eq!(behind.resource, GroupResource::REPLICA_SETS);
    assert_eq!(behind.resource.to_string(), "replicasets.apps");
    caches.read(GroupResource::REPLICA_SETS, "200");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
}

#[test]
fn what_was_read_once_is_not_asked_for_again() {
    let (store, caches) = after_write(Some("100"));
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
    caches.read(GroupResource::PODS, "1");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
}

#[test]
fn owners_do_not_wait_for_each_other() {
    let (store, _caches) = after_write(Some("1"));
    assert_eq!(store.ensure_ready(&ObjectKey::new("default", "other")), Ok(()));
    assert_eq!(store.ensure_ready(&ObjectKey::new("elsewhere", "web")), Ok(()));
}

#[test]
fn test_ensure_written_record_with_another_uid_starts_anew() {
    let (store, _caches) = after_write(Some("50"));
    store.wrote_at(&owner(), &uid("later"), GroupResource::PODS, "40");
    assert_eq!(store.ensure_ready(&owner()), Ok(()));
}

#[test]
fn test_clear_forgets_only_what_that_owner_wrote() {
    let cleared = |owner_uid| {
        let (store, _caches) = after_write(Some("1"));
        store.clear(&owner(), owner_uid);
        store.ensure_ready(&owner()).is_ok()
    };
    assert!(cleared(Some("u")));
    assert!(!cleared(Some("other")));
    assert!(cleared(None));
    let (store, _caches) = after_write(Some("1"));
    store.clear(&ObjectKey::new("default", "unknown"), None);
    assert!(store.ensure_ready(&owner()).is_err());
}

#[test]
fn writes_to_resources_without_a_cache_are_forgotten() {
    let store = Caches::default().store();
    store.wrote_at(&owner(), &uid("u"), OTHER, "100");
    assert!(store.records.is_empty());
    let disabled = ConsistencyStore::disabled();
    disabled.wrote_at(&owner(), &uid("u"), GroupResource::PODS, "100");
    assert_eq!(disabled.ensure_ready(&owner()), Ok(()));
}

#[test]
fn test_ensure_written_record_concurrent() {
    let (store, caches) = after_write(Some("100"));
    std::thread::scope(|scope| {
        for version in 101..=200_u32 {
            let store = &store;
            scope.spawn(move || {
                store.wrote_at(&owner(), &uid("u"), GroupResource::PODS, &version.to_string());
            });
        }
    });
    caches.read(GroupResource::PODS, "199");
    assert_eq!(store.ensure_ready(&owner()).unwrap_err().written, "200");
}

#[test]
fn versions_compare_as_numbers_of_any_length() {
    assert_eq!(compare_versions("9", "10"), Some(Ordering::Less));
    assert_eq!(compare_versions("123456789012345678901234567890", "5"), Some(Ordering::Greater));
    assert_eq!(compare_versions("5", "5"), Some(Ordering::Equal));
    assert_eq!(compare_versions("", "5"), None);
    assert_eq!(compare_versions("5", "05"), None);
}
