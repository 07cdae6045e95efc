//! Empties namespaces that are going away, and gives new ones their default service account.

use std::{collections::HashSet, sync::Arc};

use kcm_api::ObjectKey;
use kcm_apiserver::{Object, Propagation, Resource};
use serde_json::json;
use tracing::{debug, warn};

use crate::api::{Api, Change};

#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    /// Those on their way out.
    terminating: HashSet<String>,
}

impl Namespaces {
    /// Looks after namespaces until the server is gone.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        while let Some(change) = changes.next().await {
            self.see(&api, &change);
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
            } else if self.terminating.insert(name.to_owned()) {
                empty(api, object);
            }
        } else if change.gone && self.terminating.contains(object.namespace()) {
            // It may have been the last.
            if let Ok(namespace) = api.get(Resource::NAMESPACES, &ObjectKey::new("", object.namespace())) {
                empty(api, &namespace);
            }
        }
    }
}

fn make_service_account(api: &Api, namespace: &str) {
    let account = json!({ "metadata": { "name": "default", "namespace": namespace } });
    match api.create(Resource::SERVICE_ACCOUNTS, namespace, account) {
        Ok(_) => {}
        Err(error) if error.is_already_exists() => {}
        Err(error) => warn!(namespace, %error, "cannot create the default service account"),
    }
}

/// Asks everything in the namespace to go; when nothing is left, lets the namespace go.
fn empty(api: &Api, namespace: &Object) {
    let left = api.all_in(namespace.name());
    if left.is_empty()
        && let Err(error) = api.finalize(namespace)
    {
        debug!(?namespace, %error, "namespace not finalized");
    }
    for object in left.iter().filter(|object| !object.is_deleting()) {
        if let Err(error) = api.delete(object, Propagation::Background) {
            debug!(?object, %error, "object not deleted with its namespace");
        }
    }
}
