//! Simulated namespace controller: deletes the content of terminating namespaces and creates default service accounts.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use kcm_api::ObjectKey;
use kcm_apiserver::{DeletionPropagation, Object, Resource};
use kcm_clock::Clock;
use serde_json::json;
use tracing::{debug, warn};

use crate::{
    api::{Api, Change},
    namespace_conditions,
    timers::Timers,
    yield_budget::YieldBudget,
};

/// Delay between the deletion of a namespace and the deletion of its content. `kubectl delete -f` of a file with a
/// namespace and its objects must find both. (Upstream waits five seconds for all API servers to observe the deletion.)
const DELETION_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Namespaces {
    /// Terminating namespaces.
    terminating: HashSet<String>,
    /// Namespaces of `terminating` in which an object was deleted.
    dirty: BTreeSet<String>,
    /// Deleted namespaces that wait for the delay.
    timers: Timers<String>,
}

impl Namespaces {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { terminating: HashSet::new(), dirty: BTreeSet::new(), timers: Timers::new(clock) }
    }

    /// Runs until the server has stopped.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        let mut seen = Vec::new();
        loop {
            tokio::select! {
                biased;
                is_served = changes.next_all(|change| seen.push(change.clone())) => if !is_served {
                    return;
                },
                name = self.timers.next() => self.start_deletion(&api, name),
            }
            for change in seen.drain(..) {
                changes.budget().spend(1).await;
                self.handle_change(&api, &change);
            }
            // Once per batch: any of the deleted objects may have been the last.
            for name in std::mem::take(&mut self.dirty) {
                delete_content(&api, &name, changes.budget()).await;
            }
        }
    }

    fn start_deletion(&mut self, api: &Api, name: String) {
        if get(api, &name).is_some_and(|namespace| namespace.is_deleting()) {
            self.dirty.insert(name.clone());
            self.terminating.insert(name);
        }
    }

    fn handle_change(&mut self, api: &Api, change: &Change) {
        let object = &change.object;
        if object.resource() == Resource::NAMESPACES {
            let name = object.name();
            if change.deleted {
                self.terminating.remove(name);
            } else if !object.is_deleting() {
                create_default_service_account(api, name);
            } else if !self.terminating.contains(name) {
                self.timers.add(DELETION_DELAY, name.to_owned());
            }
        } else if change.deleted && self.terminating.contains(object.namespace()) {
            self.dirty.insert(object.namespace().to_owned());
        }
    }
}

/// Deletes all objects in the namespace, pods first, or finalizes the namespace if it is empty.
async fn delete_content(api: &Api, name: &str, budget: &mut YieldBudget) {
    let Some(namespace) = get(api, name) else { return };
    let content = api.all_in(name);
    if content.is_empty() {
        if let Err(error) = api.finalize(&namespace) {
            debug!(?namespace, %error, "Failed to finalize namespace");
        }
        return;
    }
    let has_pods = content.iter().any(|object| object.resource() == Resource::PODS);
    for object in &content {
        budget.spend(1).await;
        let is_next = !has_pods || object.resource() == Resource::PODS;
        if is_next
            && !object.is_deleting()
            && let Err(error) = api.delete(object, DeletionPropagation::Background)
        {
            debug!(?object, %error, "Failed to delete object of a terminating namespace");
        }
    }
    let remaining =
        content.iter().map(AsRef::as_ref).filter(|object: &&Object| api.by_uid(object.uid()).is_some());
    if let Some(patch) = namespace_conditions::patch(namespace.value(), remaining, api.now())
        && let Err(error) = api.patch_status(&namespace, &patch)
    {
        debug!(?namespace, %error, "Failed to update conditions of a terminating namespace");
    }
}

fn get(api: &Api, name: &str) -> Option<Arc<Object>> {
    api.get(Resource::NAMESPACES, &ObjectKey::new("", name)).ok()
}

fn create_default_service_account(api: &Api, namespace: &str) {
    let account = json!({ "metadata": { "name": "default", "namespace": namespace } });
    match api.create(Resource::SERVICE_ACCOUNTS, namespace, account) {
        Ok(_) => {}
        Err(error) if error.is_already_exists() => {}
        Err(error) => warn!(namespace, %error, "Failed to create default service account"),
    }
}

#[cfg(test)]
mod tests {
    use kcm_apiserver::{ApiServer, ApiServerConfig, DeleteOptions, Patch, WriteOptions};
    use kcm_clock::SimulatedClock;

    use super::*;
    use crate::api::condition;

    #[tokio::test(start_paused = true)]
    async fn terminating_namespace_is_emptied_after_a_second() {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let server =
            ApiServer::new(ApiServerConfig { clock: Arc::clone(&clock), ..ApiServerConfig::default() });
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

    #[tokio::test(start_paused = true)]
    async fn pods_are_deleted_first_and_what_remains_is_reported() {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let server =
            ApiServer::new(ApiServerConfig { clock: Arc::clone(&clock), ..ApiServerConfig::default() });
        let api = Arc::new(Api::new(Arc::clone(&server), Arc::clone(&clock)));
        tokio::spawn(Namespaces::new(Arc::clone(&clock)).run(api));

        let named = |name: &str| json!({ "metadata": { "name": name } });
        let options = WriteOptions::default();
        server.create(Resource::NAMESPACES, "", named("team"), &options).unwrap();
        server.create(Resource::CONFIG_MAPS, "team", named("settings"), &options).unwrap();
        let pod = json!({
            "metadata": { "name": "web", "finalizers": ["example.com/wait"] },
            "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
        });
        server.create(Resource::PODS, "team", pod, &options).unwrap();
        server.delete(Resource::NAMESPACES, "", "team", &DeleteOptions::default()).unwrap();
        clock.sleep(Duration::from_secs(2)).await;
        server.get(Resource::CONFIG_MAPS, "team", "settings").unwrap();
        assert!(server.get(Resource::PODS, "team", "web").unwrap().is_deleting());
        let namespace = server.get(Resource::NAMESPACES, "", "team").unwrap();
        let message = |type_: &str| condition(namespace.value(), type_).unwrap()["message"].clone();
        assert_eq!(
            message("NamespaceContentRemaining"),
            "Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances"
        );
        assert_eq!(
            message("NamespaceFinalizersRemaining"),
            "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances"
        );
        assert_eq!(
            condition(namespace.value(), "NamespaceDeletionContentFailure").unwrap()["status"],
            "False"
        );

        let without = json!({ "metadata": { "finalizers": null } });
        server.patch(Resource::PODS, "team", "web", None, Patch::merge(without), &options).unwrap();
        clock.sleep(Duration::from_secs(1)).await;
        assert!(server.get(Resource::NAMESPACES, "", "team").unwrap_err().is_not_found());
    }
}
