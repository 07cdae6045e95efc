#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use std::{
    io,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use kcm_apiserver::{
    ApiStatus, DeleteOptions, Object, Patch, Resource, WatchEvent, WatchStart, WriteOptions,
};
use redb::StorageBackend;
use serde_json::{Value, json};

use super::*;

/// A disk in memory that can be full.
#[derive(Debug, Clone, Default)]
struct Medium {
    bytes: Arc<Mutex<Vec<u8>>>,
    full: Arc<AtomicBool>,
}

impl Medium {
    fn server(&self) -> Arc<ApiServer> {
        let medium = self.clone();
        let opener = move || Database::builder().create_with_backend(medium.clone());
        let file = DatabaseFile::with(PathBuf::from("medium"), Box::new(opener)).unwrap();
        file.into_server(ApiServerConfig::default()).unwrap()
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

const RESOURCE: Resource = Resource::CONFIG_MAPS;

/// Creates an object, or changes its data.
fn put(server: &ApiServer, name: &str, data: Value) -> Result<Arc<Object>, ApiStatus> {
    let (object, options) = (json!({"metadata": {"name": name}, "data": data}), WriteOptions::default());
    match get(server, name) {
        None => server.create(RESOURCE, "default", object, &options),
        Some(_) => server.patch(RESOURCE, "default", name, None, Patch::merge(object), &options),
    }
}

fn get(server: &ApiServer, name: &str) -> Option<Arc<Object>> {
    server.get(RESOURCE, "default", name).ok()
}

#[test]
fn reopened_server_has_objects_and_continues_revisions() {
    let medium = Medium::default();
    let before = medium.server();
    let kept = put(&before, "kept", json!({"a": "b"})).unwrap();
    put(&before, "removed", json!({})).unwrap();
    before.delete(RESOURCE, "default", "removed", &DeleteOptions::default()).unwrap();
    let last = before.revision();
    drop(before);

    let after = medium.server();
    assert_eq!(get(&after, "kept").as_deref(), Some(&*kept));
    assert_eq!(get(&after, "removed"), None);
    assert_eq!(after.by_uid(kept.uid()).unwrap().name(), "kept");
    assert_eq!(after.revision(), last);
    assert_eq!(put(&after, "new", json!({})).unwrap().revision(), last + 1);
}

#[test]
fn watch_from_before_restart_expires() {
    let medium = Medium::default();
    let before = medium.server();
    put(&before, "one", json!({})).unwrap();
    put(&before, "two", json!({})).unwrap();
    let last = before.revision();
    drop(before);

    let after = medium.server();
    let watch = |from| after.watch(RESOURCE, None, WatchStart::After(from)).try_next();
    assert_eq!(watch(last - 1).unwrap_err().code(), 410);
    assert_eq!(watch(last).unwrap(), None);
}

#[test]
fn full_disk_fails_writes_but_not_reads() {
    let medium = Medium::default();
    let server = medium.server();
    let one = put(&server, "one", json!({"a": "old"})).unwrap();
    let mut watch = server.watch(RESOURCE, None, WatchStart::After(server.revision()));

    medium.full.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let refused = put(&server, "one", json!({"a": "new"})).unwrap_err();
        assert_eq!(refused.code(), 500);
        assert!(refused.message.contains("failed to write medium"), "{refused}");
    }
    assert!(put(&server, "two", json!({})).is_err());
    assert_eq!(get(&server, "one"), Some(Arc::clone(&one)));
    assert_eq!(server.revision(), one.revision());
    assert_eq!(watch.try_next().unwrap(), None);

    medium.full.store(false, Ordering::SeqCst);
    let written = put(&server, "one", json!({"a": "newest"})).unwrap();
    assert_eq!(written.revision(), one.revision() + 1);
    assert_eq!(watch.try_next().unwrap(), Some(WatchEvent::Modified(Arc::clone(&written))));
    drop((server, watch));
    let again = medium.server();
    assert_eq!(again.revision(), written.revision());
    assert_eq!(get(&again, "one"), Some(written));
    assert_eq!(get(&again, "two"), None);
}

#[test]
fn concurrent_writers_lose_no_update() {
    let medium = Medium::default();
    let server = medium.server();
    let first = put(&server, "n", json!({})).unwrap().revision();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for number in 0..25 {
                    put(server, "n", json!({format!("{writer}-{number}"): "x"})).unwrap();
                }
            });
        }
    });
    let count = |server: &ApiServer| get(server, "n").unwrap().value()["data"].as_object().unwrap().len();
    assert_eq!(count(&server), 200);
    assert_eq!(server.revision(), first + 200);
    drop(server);
    assert_eq!(count(&medium.server()), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_are_published_in_order() {
    let medium = Medium::default();
    let server = medium.server();
    let mut watch = server.watch(RESOURCE, None, WatchStart::After(server.revision()));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..100 {
        let server = Arc::clone(&server);
        writers.spawn(async move { put(&server, &format!("c-{number}"), json!({})).unwrap().revision() });
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
    drop(open(ApiServerConfig::default(), folder.path()).unwrap());
    let file = folder.path().join("objects.redb");
    let whole = fs::read(&file).unwrap();

    let mut noise = whole.clone();
    noise.iter_mut().for_each(|byte| *byte ^= 0x5a);
    let mut scratched = whole.clone();
    let end = scratched.len().min(64 << 10);
    scratched[64..end].iter_mut().for_each(|byte| *byte = 0xff);
    for damaged in [&noise, &scratched, &whole[..1000].to_vec()] {
        fs::write(&file, damaged).unwrap();
        let error = open(ApiServerConfig::default(), folder.path()).expect_err("opened a damaged file");
        assert!(matches!(error, DataError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("objects.redb is damaged"), "{error}");
    }
}

#[test]
fn directory_in_use_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let _first = open(ApiServerConfig::default(), folder.path()).unwrap();
    let second = open(ApiServerConfig::default(), folder.path());
    assert!(matches!(second.err(), Some(DataError::InUse { .. })));
}
