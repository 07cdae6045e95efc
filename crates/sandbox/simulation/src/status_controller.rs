//! Functions that set the status of objects, in place of the controller of their kind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kcm_apiserver::{Object, Patch, Subresource, WatchEvent, WatchStart, WriteOptions};
use kcm_clock::Clock;
use serde_json::{Value, json};

use crate::{engine::observer::Observer as _, recorder::Recorder, rules::caught, world::World};

/// Writes of statuses of a kind in one run after which no more are made. Two functions that set different values would write at one
/// instant without an end.
const MAX_WRITES: usize = 2_000;

/// Status of an object. `None` leaves it unchanged.
pub(crate) type Status = dyn Fn(&Object) -> Option<Value> + Send + Sync;

/// Sets the status of the objects of a kind.
#[derive(Clone)]
pub(crate) struct StatusController {
    /// Kind, which may have a group.
    pub(crate) kind: String,
    /// Time from a change of an object to the write of its status.
    pub(crate) delay: Duration,
    pub(crate) status: Arc<Status>,
}

impl StatusController {
    /// Runs the controller until the runtime ends.
    pub(crate) fn start<X: Send + Sync + 'static>(
        &self,
        world: &World<X>,
        clock: &Arc<dyn Clock>,
        recorder: &Arc<Recorder>,
    ) {
        let run = StatusControllerRun {
            controller: self.clone(),
            world: world.clone(),
            clock: Arc::clone(clock),
            recorder: Arc::clone(recorder),
            writes: AtomicUsize::new(0),
        };
        tokio::spawn(Arc::new(run).watch());
    }
}

/// A [`StatusController`] in one run.
struct StatusControllerRun<X> {
    controller: StatusController,
    world: World<X>,
    clock: Arc<dyn Clock>,
    recorder: Arc<Recorder>,
    /// Number of writes so far.
    writes: AtomicUsize,
}

impl<X: Send + Sync + 'static> StatusControllerRun<X> {
    async fn watch(self: Arc<Self>) {
        let write_later = |object: Arc<Object>| {
            let this = Arc::clone(&self);
            tokio::spawn(async move {
                this.clock.sleep(this.controller.delay).await;
                this.write(&object);
            });
        };
        let (server, kind) = (&self.world.server, &*self.controller.kind);
        loop {
            let mut changes = server.watch_everything(WatchStart::Now);
            self.world.objects(kind).into_iter().for_each(write_later);
            // Until the history does not contain the next change.
            while let Ok(event) = changes.next().await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && self.world.resource(kind) == Some(object.resource())
                {
                    write_later(object);
                }
            }
        }
    }

    fn write(&self, changed: &Object) {
        let (resource, namespace, name) = (changed.resource(), changed.namespace(), changed.name());
        let object = self.world.server.get(resource, namespace, name);
        let Some(object) = object.ok().filter(|object| object.uid() == changed.uid()) else { return };
        let of = format!("status of {} {namespace}/{name}", resource.plural());
        let status = match caught(|| (self.controller.status)(&object)) {
            Ok(Some(status)) => status,
            Ok(None) => return,
            Err(message) => return self.recorder.find("panic", &format!("{of}: {message}")),
        };
        match self.writes.fetch_add(1, Ordering::Relaxed) {
            ..MAX_WRITES => {}
            MAX_WRITES => return self.recorder.find("effort", &format!("{of}: {MAX_WRITES} writes")),
            _ => return,
        }
        let line = format!("{of} becomes {status}");
        let (patch, options) = (Patch::merge(json!({ "status": status })), WriteOptions::default());
        match self.world.server.patch(resource, namespace, name, Some(Subresource::Status), patch, &options) {
            Ok(after) if after.revision() == object.revision() => {}
            Ok(_) => self.recorder.note(&line),
            Err(error) => self.recorder.find("action", &format!("{line}: {error}")),
        }
    }
}
