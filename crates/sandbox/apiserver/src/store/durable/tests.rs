use std::{
    io,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use jiff::Timestamp;
use redb::{Database, StorageBackend};
use serde_json::json;

use super::super::{
    Commit, DataError, Decision, HistoryLimits, Store, UpdateResult, WatchEvent, WatchStart, key,
};
use super::*;
use crate::{Resource, Selection};

const LIMITS: HistoryLimits = HistoryLimits { events: 1000, bytes: 1 << 20 };

/// A disk in memory that can be full.
#[derive(Debug, Clone, Default)]
struct Medium {
    bytes: Arc<Mutex<Vec<u8>>>,
    full: Arc<AtomicBool>,
}

impl Medium {
    fn store(&self) -> Store {
        let medium = self.clone();
        let opener = move || Database::builder().create_with_backend(medium.clone());
        let disk = Disk::with(PathBuf::from("medium"), Box::new(opener)).unwrap();
        Store::open(disk, 1, LIMITS).unwrap()
    }

    fn check(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.bytes.lock().unwrap()[offset..offset + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.bytes.lock().unwrap().resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        let offset = usize::try_from(offset).unwrap();
        let mut bytes = self.bytes.lock().unwrap();
        // Writes behind the end extend the file.
        let end = bytes.len().max(offset + data.len());
        bytes.resize(end, 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn put(store: &Store, name: &str, app: &str) -> Result<Arc<Object>, ApiStatus> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "a", "name": name, "uid": name, "labels": {"app": app}},
    });
    update(store, name, |_| Ok(Decision::Put(pod.clone()))).map(|outcome| match outcome {
        UpdateResult::Put(object) => object,
        other => panic!("{other:?}"),
    })
}

fn update(
    store: &Store,
    name: &str,
    decide: impl FnMut(Option<&Arc<Object>>) -> Result<Decision, ApiStatus>,
) -> Result<UpdateResult, ApiStatus> {
    store.update(Resource::PODS, &key("a", name), Commit::Real, Timestamp::UNIX_EPOCH, decide, |_| Ok(()))
}

fn get(store: &Store, name: &str) -> Option<Arc<Object>> {
    store.get(Resource::PODS, &format!("a/{name}"))
}

#[test]
fn reopened_store_has_objects_and_continues_revisions() {
    let medium = Medium::default();
    let before = medium.store();
    put(&before, "kept", "web").unwrap();
    put(&before, "removed", "web").unwrap();
    update(&before, "removed", |old| Ok(Decision::Remove(old.unwrap().value().clone()))).unwrap();
    let (kept, last) = (get(&before, "kept").unwrap(), before.revision());
    drop(before);

    let after = medium.store();
    assert_eq!(*get(&after, "kept").unwrap(), *kept);
    assert_eq!(get(&after, "removed"), None);
    assert_eq!(after.by_uid("kept").unwrap().name(), "kept");
    assert_eq!(after.revision(), last);
    assert_eq!(put(&after, "new", "web").unwrap().revision(), last + 1);
}

#[test]
fn watch_from_before_restart_expires() {
    let medium = Medium::default();
    let before = medium.store();
    put(&before, "one", "web").unwrap();
    put(&before, "two", "web").unwrap();
    let last = before.revision();
    drop(before);

    let after = medium.store();
    let watch = |from| {
        after.watch(Some(Resource::PODS), "", Selection::default(), WatchStart::After(from)).try_next()
    };
    assert_eq!(watch(last - 1).unwrap_err().code(), 410);
    assert_eq!(watch(last).unwrap(), None);
}

#[test]
fn full_disk_fails_writes_but_not_reads() {
    let medium = Medium::default();
    let store = medium.store();
    let one = put(&store, "one", "old").unwrap();
    let mut watch =
        store.watch(Some(Resource::PODS), "", Selection::default(), WatchStart::After(store.revision()));

    medium.full.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let refused = put(&store, "one", "new").unwrap_err();
        assert_eq!(refused.code(), 500);
        assert!(refused.message.contains("failed to write medium"), "{refused}");
    }
    assert!(put(&store, "two", "new").is_err());
    assert_eq!(get(&store, "one"), Some(Arc::clone(&one)));
    assert_eq!(store.revision(), one.revision());
    assert_eq!(watch.try_next().unwrap(), None);

    medium.full.store(false, Ordering::SeqCst);
    let written = put(&store, "one", "newest").unwrap();
    assert_eq!(written.revision(), one.revision() + 1);
    assert_eq!(watch.try_next().unwrap(), Some(WatchEvent::Modified(Arc::clone(&written))));
    drop(store);
    let again = medium.store();
    assert_eq!(again.revision(), written.revision());
    assert_eq!(get(&again, "one"), Some(written));
    assert_eq!(get(&again, "two"), None);
}

#[test]
fn concurrent_writers_lose_no_update() {
    let medium = Medium::default();
    let store = medium.store();
    let count = |object: Option<&Arc<Object>>| {
        object.and_then(|object| object.value()["count"].as_u64()).unwrap_or_default()
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let next = |old: Option<&Arc<Object>>| {
                        Ok(Decision::Put(json!({
                            "metadata": {"namespace": "a", "name": "n", "uid": "n"}, "count": count(old) + 1,
                        })))
                    };
                    update(&store, "n", next).unwrap();
                }
            });
        }
    });
    assert_eq!(count(get(&store, "n").as_ref()), 200);
    assert_eq!(store.revision(), 201);
    drop(store);
    assert_eq!(count(get(&medium.store(), "n").as_ref()), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_are_published_in_order() {
    let medium = Medium::default();
    let store = medium.store();
    let mut watch =
        store.watch(Some(Resource::PODS), "", Selection::default(), WatchStart::After(store.revision()));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..100 {
        let store = store.clone();
        writers.spawn(async move { put(&store, &format!("pod-{number}"), "web").unwrap().revision() });
    }
    let mut revisions = writers.join_all().await;
    revisions.sort_unstable();
    let mut seen = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        seen.push(event.revision());
    }
    assert_eq!(seen, revisions);
}

#[test]
fn damaged_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(Disk::open(folder.path()).unwrap(), 1, LIMITS).unwrap());
    let file = folder.path().join("objects.redb");
    let whole = std::fs::read(&file).unwrap();

    let mut noise = whole.clone();
    noise.iter_mut().for_each(|byte| *byte ^= 0x5a);
    let mut scratched = whole.clone();
    let end = scratched.len().min(64 << 10);
    scratched[64..end].iter_mut().for_each(|byte| *byte = 0xff);
    for damaged in [&noise, &scratched, &whole[..1000].to_vec()] {
        std::fs::write(&file, damaged).unwrap();
        let error = Disk::open(folder.path()).err().expect("opened a damaged file");
        assert!(matches!(error, DataError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("objects.redb is damaged"), "{error}");
    }
}

#[test]
fn directory_in_use_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Disk::open(folder.path()).unwrap();
    assert!(matches!(Disk::open(folder.path()).err(), Some(DataError::InUse { .. })));
}
