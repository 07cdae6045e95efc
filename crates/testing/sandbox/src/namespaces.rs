//! Empties namespaces that are going away, and gives new ones their default service account.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use kcm_api::ObjectKey;
use kcm_apiserver::{Object, Propagation, Resource};
use kcm_clock::Clock;
use serde_json::json;
use tracing::{debug, warn};

use crate::{
    api::{Api, Change},
    pace::Pace,
    timers::Timers,
};

/// From a namespace's deletion to that of its content. Whoever deletes a namespace and what is in it from one file
/// must find both there. (Upstream waits for five seconds, so that all API servers have heard of it.)
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Namespaces {
    /// Those whose content is on its way out.
    terminating: HashSet<String>,
    /// Those of `terminating` from which an object is gone.
    dirty: BTreeSet<String>,
    /// Those that come next, by name.
    due: Timers<String>,
}

impl Namespaces {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { terminating: HashSet::new(), dirty: BTreeSet::new(), due: Timers::new(clock) }
    }

    /// Looks after namespaces until the server is gone.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        let mut seen = Vec::new();
        loop {
            tokio::select! {
                biased;
                is_served = changes.next_all(|change| seen.push(change.clone())) => if !is_served {
                    return;
                },
                name = self.due.next() => self.begin(&api, name),
            }
            for change in seen.drain(..) {
                changes.pace().spend(1).await;
                self.see(&api, &change);
            }
            // Once for all objects that are gone: each may have been the last.
            for name in std::mem::take(&mut self.dirty) {
                empty(&api, &name, changes.pace()).await;
            }
        }
    }

    fn begin(&mut self, api: &Api, name: String) {
        if get(api, &name).is_some_and(|namespace| namespace.is_deleting()) {
            self.dirty.insert(name.clone());
            self.terminating.insert(name);
        }
    }

    fn see(&mut self, api: &Api, change: &Change) {
        let object = &change.object;
        if object.resource() == Resource::NAMESPACES {
            let name = object.name();
            if change.gone {
                self.terminating.remove(name);
            } else if !object.is_deleting() {
                make_service_account(api, name);
            } else if !self.terminating.contains(name) {
                self.due.add(PAUSE, name.to_owned());
            }
        } else if change.gone && self.terminating.contains(object.namespace()) {
            self.dirty.insert(object.namespace().to_owned());
        }
    }
}

/// Deletes everything in the namespace. Once nothing is left, lets the namespace go.
async fn empty(api: &Api, name: &str, pace: &mut Pace) {
    let Some(namespace) = get(api, name) else { return };
    let left = api.all_in(name);
    if left.is_empty()
        && let Err(error) = api.finalize(&namespace)
    {
        debug!(?namespace, %error, "namespace not finalized");
    }
    for object in left {
        pace.spend(1).await;
        if !object.is_deleting()
            && let Err(error) = api.delete(&object, Propagation::Background)
        {
            debug!(?object, %error, "object not deleted with its namespace");
        }
    }
}

fn get(api: &Api, name: &str) -> Option<Arc<Object>> {
    api.get(Resource::NAMESPACES, &ObjectKey::new("", name)).ok()
}

fn make_service_account(api: &Api, namespace: &str) {
    let account = json!({ "metadata": { "name": "default", "namespace": namespace } });
    match api.create(Resource::SERVICE_ACCOUNTS, namespace, account) {
        Ok(_) => {}
        Err(error) if error.is_already_exists() => {}
        Err(error) => warn!(namespace, %error, "cannot create the default service account"),
    }
}

#[cfg(test)]
mod tests {
    use kcm_apiserver::{ApiServer, Config, DeleteOptions, WriteOptions};
    use kcm_clock::SimulatedClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn namespace_keeps_its_content_for_a_second_and_then_goes_with_it() {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let server = ApiServer::new(Config { clock: Arc::clone(&clock), ..Config::default() });
        let api = Arc::new(Api::new(Arc::clone(&server), Arc::clone(&clock)));
        tokio::spawn(Namespaces::new(Arc::clone(&clock)).run(api));

        let named = |name: &str| json!({ "metadata": { "name": name } });
        let options = WriteOptions::default();
        server.create(Resource::NAMESPACES, "", named("team"), &options).unwrap();
        server.create(Resource::CONFIG_MAPS, "team", named("settings"), &options).unwrap();
        clock.sleep(Duration::from_millis(1)).await;
        server.get(Resource::SERVICE_ACCOUNTS, "team", "default").unwrap();

        server.delete(Resource::NAMESPACES, "", "team", &DeleteOptions::default()).unwrap();
        clock.sleep(Duration::from_millis(900)).await;
        server.get(Resource::CONFIG_MAPS, "team", "settings").unwrap();
        clock.sleep(Duration::from_millis(200)).await;
        assert!(server.get(Resource::CONFIG_MAPS, "team", "settings").unwrap_err().is_not_found());
        assert!(server.get(Resource::NAMESPACES, "", "team").unwrap_err().is_not_found());
    }
}
