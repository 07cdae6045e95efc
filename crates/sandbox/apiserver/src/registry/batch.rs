//! Deletion of many objects in batches: delete collection, and expiry.
//!
//! A batch reads and deletes a bounded number of objects. Callers yield between batches, so that other requests are
//! served meanwhile.

use std::{collections::VecDeque, sync::Arc, vec};

use jiff::{SignedDuration, Timestamp};

use super::Registry;
use crate::{
    ApiStatus, DeleteOptions, ListOptions, Object, ObjectList, Resource, Selection,
    admission::Admission,
    store::{self, Key},
};

/// Maximum number of objects that a batch reads or deletes.
const BATCH: usize = 64;

/// Minimum time between the starts of two sweeps.
const SWEEP_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// A delete collection in progress.
///
/// Upstream counterpart: `registry.Store.DeleteCollection`.
pub(crate) struct DeleteCollection<'a> {
    registry: &'a Registry,
    resource: Resource,
    namespace: &'a str,
    options: &'a DeleteOptions,
    admission: Option<&'a Admission<'a>>,
    source: Source<'a>,
    /// Objects of the current batch that are not deleted yet.
    batch: VecDeque<Arc<Object>>,
    /// `true` if objects follow those of the batch.
    remaining: bool,
    /// The list of the deleted objects, as they were before.
    deleted: ObjectList,
}

/// Objects that remain to be deleted.
enum Source<'a> {
    /// Matching objects in key order, read batch by batch. `after` is the last key that was read.
    Scan { selection: &'a Selection, after: Option<Key> },
    /// Objects of a list with a limit or a resource version.
    List(vec::IntoIter<Arc<Object>>),
}

impl DeleteCollection<'_> {
    /// Deletes the objects of the next batch. Returns `true` if objects may remain.
    ///
    /// # Errors
    ///
    /// As [`Registry::delete`]. The objects before the failed one are deleted, and it is the first of the next batch.
    pub(crate) fn delete_batch(&mut self) -> Result<bool, ApiStatus> {
        if self.batch.is_empty() {
            self.read_batch();
        }
        let Self { registry, resource, options, admission, .. } = *self;
        while let Some(object) = self.batch.front() {
            match registry.delete(resource, object.namespace(), object.name(), options, admission) {
                // As upstream, as the object was before. Without the decoded form, which takes ten times the memory.
                Ok(_) => self.deleted.items.push(object.compact()),
                // Deleted concurrently.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            self.batch.pop_front();
        }
        Ok(self.remaining)
    }

    fn read_batch(&mut self) {
        match &mut self.source {
            Source::Scan { selection, after } => {
                let store = &self.registry.store;
                let batch = store.scan(self.resource, self.namespace, after.as_ref(), BATCH);
                self.remaining = batch.len() == BATCH;
                *after = batch.last().map(|object| store::key_of(object));
                self.batch.extend(batch.into_iter().filter(|object| selection.matches(object)));
            }
            Source::List(objects) => {
                self.batch.extend(objects.by_ref().take(BATCH));
                self.remaining = objects.len() > 0;
            }
        }
    }

    /// Returns the deleted objects, as they were before.
    pub(crate) fn into_deleted(self) -> ObjectList {
        self.deleted
    }
}

/// Progress of the removal of expired objects.
pub(super) struct Expiry {
    /// Start of the latest sweep.
    started: Timestamp,
    /// Position of the sweep. `None` if it is complete, or a batch is in progress.
    position: Option<Position>,
}

/// Resource, and last key of it that a sweep has read.
struct Position {
    resource: Resource,
    time_to_live: SignedDuration,
    after: Option<Key>,
}

impl Position {
    /// Beginning of the first resource with a time to live whose index is at least `index`.
    fn from_index(index: usize) -> Option<Self> {
        Resource::all().skip(index).find_map(|resource| {
            let time_to_live = resource.strategy().time_to_live()?;
            Some(Self { resource, time_to_live, after: None })
        })
    }

    /// Position after `batch` was read from this one. `None` at the end of the sweep.
    fn after(self, batch: &[Arc<Object>]) -> Option<Self> {
        match batch.last() {
            Some(last) if batch.len() == BATCH => Some(Self { after: Some(store::key_of(last)), ..self }),
            _ => Self::from_index(self.resource.index() + 1),
        }
    }
}

impl Expiry {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { started: now, position: None }
    }

    /// Takes the position of the next batch, if one is due.
    fn take(&mut self, now: Timestamp) -> Option<Position> {
        if self.position.is_none() && now.duration_since(self.started) >= SWEEP_INTERVAL {
            self.started = now;
            return Position::from_index(0);
        }
        self.position.take()
    }
}

impl Registry {
    /// Begins the deletion of the objects that `selected` selects.
    ///
    /// Objects that are created meanwhile are deleted too if their keys have not been reached.
    pub(crate) fn delete_collection<'a>(
        &'a self,
        resource: Resource,
        namespace: &'a str,
        selected: &'a ListOptions,
        options: &'a DeleteOptions,
        admission: Option<&'a Admission<'a>>,
    ) -> Result<DeleteCollection<'a>, ApiStatus> {
        let ListOptions { selection, limit, continue_token, resource_version, .. } = selected;
        let mut deleted = ObjectList { revision: self.store.revision(), ..ObjectList::default() };
        let source = if *limit == 0 && continue_token.is_none() && resource_version.is_none() {
            Source::Scan { selection, after: None }
        } else {
            let list = self.store.list(resource, namespace, selected)?;
            deleted = ObjectList { items: Vec::new(), ..list };
            Source::List(list.items.into_iter())
        };
        Ok(DeleteCollection {
            registry: self,
            resource,
            namespace,
            options,
            admission,
            source,
            batch: VecDeque::new(),
            remaining: true,
            deleted,
        })
    }

    /// Removes a batch of objects that were not written for the time to live of their kind.
    ///
    /// Every create calls this, so no task is required. A sweep over all objects starts at most once a minute.
    /// DEVIATION: upstream's objects expire in etcd, without a create.
    pub(super) fn expire_batch(&self) {
        let now = self.clock.now();
        let Some(position) = self.expiry.lock().take(now) else { return };
        let Position { resource, time_to_live, .. } = position;
        let batch = self.store.scan(resource, "", position.after.as_ref(), BATCH);
        let next = position.after(&batch);
        for object in batch {
            if now.duration_since(object.written()) > time_to_live {
                let options = DeleteOptions::with_uid(object.uid());
                // Fails only if the object was deleted or replaced concurrently.
                let _ = self.delete(resource, object.namespace(), object.name(), &options, None);
            }
        }
        self.expiry.lock().position = next;
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, StatusCode};
    use http_body_util::{BodyExt, Empty};
    use kcm_clock::FakeClock;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;
    use crate::{
        ApiServer, ApiServerConfig, WriteOptions,
        store::{Commit, Decision, Store},
    };

    /// Stores objects without validation.
    fn fill(store: &Store, resource: Resource, count: usize) {
        for number in 0..count {
            let name = format!("object-{number}");
            let value = json!({
                "apiVersion": resource.api_version(),
                "kind": resource.kind(),
                "metadata": {"namespace": "default", "name": name, "uid": name},
            });
            let decide = |_: Option<&Arc<Object>>| Ok(Decision::Put(value.clone()));
            let key = store::key("default", &name);
            store.update(resource, &key, Commit::Real, Timestamp::UNIX_EPOCH, decide, |_| Ok(())).unwrap();
        }
    }

    fn count(server: &ApiServer, resource: Resource) -> usize {
        server.registry.store.read(|state| state.iter(resource, "").count())
    }

    async fn status(server: &Arc<ApiServer>, method: &str, path: &str) -> StatusCode {
        let request = Request::builder().method(method).uri(path).body(Empty::<bytes::Bytes>::new()).unwrap();
        let response = server.service().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        body.collect().await.unwrap();
        parts.status
    }

    #[tokio::test]
    async fn readyz_is_served_between_batches() {
        const OBJECTS: usize = 100_000;
        let server = ApiServer::new(ApiServerConfig::default());
        fill(&server.registry.store, Resource::CONFIG_MAPS, OBJECTS);
        let deletion = tokio::spawn({
            let server = Arc::clone(&server);
            async move { status(&server, "DELETE", "/api/v1/namespaces/default/configmaps").await }
        });
        let (mut probes, mut before) = (0, server.revision());
        let last = before + OBJECTS as u64;
        while !deletion.is_finished() {
            tokio::task::yield_now().await;
            assert_eq!(status(&server, "GET", "/readyz").await, StatusCode::OK);
            let now = server.revision();
            assert!(now - before <= BATCH as u64, "{} deletions between two probes", now - before);
            (probes, before) = (probes + 1, now);
        }
        assert_eq!((deletion.await.unwrap(), before), (StatusCode::OK, last));
        assert_eq!(count(&server, Resource::CONFIG_MAPS), 0);
        assert!(probes >= OBJECTS / BATCH, "{probes} probes");
    }

    #[test]
    fn deleted_objects_are_not_kept_decoded() {
        let server = ApiServer::new(ApiServerConfig::default());
        fill(&server.registry.store, Resource::CONFIG_MAPS, BATCH + 1);
        let (selected, options) = (ListOptions::default(), DeleteOptions::default());
        let mut deletion = server
            .registry
            .delete_collection(Resource::CONFIG_MAPS, "default", &selected, &options, None)
            .unwrap();
        while deletion.delete_batch().unwrap() {}
        let deleted = deletion.into_deleted().items;
        assert_eq!(deleted.len(), BATCH + 1);
        assert!(!deleted.iter().any(|object| object.is_decoded()));
    }

    #[test]
    fn expiry_is_spread_over_creates() {
        const EVENTS: usize = 3 * BATCH + 1;
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let config = ApiServerConfig { clock: Arc::new(clock.clone()), ..ApiServerConfig::default() };
        let server = ApiServer::new(config);
        fill(&server.registry.store, Resource::EVENTS, EVENTS);
        clock.step(std::time::Duration::from_secs(3601));
        let mut left = vec![];
        for name in ["a", "b", "c", "d", "e"] {
            let config_map = json!({"metadata": {"name": name}});
            server.create(Resource::CONFIG_MAPS, "default", config_map, &WriteOptions::default()).unwrap();
            left.push(count(&server, Resource::EVENTS));
        }
        assert_eq!(left, [2 * BATCH + 1, BATCH + 1, 1, 0, 0]);
    }
}
