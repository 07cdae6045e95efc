//! Controllers of kinds whose controller does not run, as functions of an object.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{
    ApiServer, ListOptions, Object, Patch, Subresource, WatchEvent, WatchStart, WriteOptions,
};
use kcm_clock::Clock;
use serde_json::{Value, json};

use crate::{engine::observer::Observer as _, recorder::Recorder, scenario::resource};

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
    /// Runs until the store is gone.
    pub(crate) async fn run(self, server: Arc<ApiServer>, clock: Arc<dyn Clock>, recorder: Arc<Recorder>) {
        let write_later = |object: Arc<Object>| {
            let (controller, server) = (self.clone(), Arc::clone(&server));
            let (clock, recorder) = (Arc::clone(&clock), Arc::clone(&recorder));
            tokio::spawn(async move {
                clock.sleep(controller.delay).await;
                controller.write(&server, &object, &recorder);
            });
        };
        let is_of_kind =
            |object: &Object| resource(&server, &self.kind).is_ok_and(|own| own == object.resource());
        loop {
            let mut changes = server.watch_everything(WatchStart::Now);
            let list = |resource| server.list(resource, None, &ListOptions::default());
            if let Ok(list) = resource(&server, &self.kind).and_then(list) {
                list.items.into_iter().for_each(&write_later);
            }
            // Until the history does not contain the next change.
            while let Ok(event) = changes.next().await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && is_of_kind(&object)
                {
                    write_later(object);
                }
            }
        }
    }

    fn write(&self, server: &ApiServer, changed: &Object, recorder: &Recorder) {
        let (resource, namespace, name) = (changed.resource(), changed.namespace(), changed.name());
        let object =
            server.get(resource, namespace, name).ok().filter(|object| object.uid() == changed.uid());
        let Some(object) = object else { return };
        let Some(status) = (self.status)(&object) else { return };
        let line = format!("status of {} {namespace}/{name} becomes {status}", resource.plural());
        let patch = Patch::merge(json!({ "status": status }));
        let options = WriteOptions::default();
        match server.patch(resource, namespace, name, Some(Subresource::Status), patch, &options) {
            Ok(after) if after.revision() == object.revision() => {}
            Ok(_) => recorder.note(&line),
            Err(error) => recorder.find("action", &format!("{line}: {error}")),
        }
    }
}
