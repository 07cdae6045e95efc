//! Simulated resource quota controller: maintains the status of ResourceQuotas.
//!
//! *Upstream counterpart:* `pkg/controller/resourcequota`. The embedded API server calculates the usage.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kcm_apiserver::{Object, Resource};
use serde_json::{Map, Value, json};
use tracing::debug;

use crate::api::{Api, Change};

/// Delay between a change and the calculation, so that a burst of changes causes one calculation.
pub(crate) const DELAY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Quotas {
    /// Delay between a change and the calculation.
    delay: Duration,
    /// Namespaces with quotas.
    limited: BTreeSet<String>,
    /// Namespaces with changed objects.
    changed: BTreeSet<String>,
}

impl Quotas {
    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay, limited: BTreeSet::new(), changed: BTreeSet::new() }
    }

    /// Updates quotas until the server has stopped.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        while changes.next_all(|change| self.handle_change(change)).await {
            if self.changed.is_empty() {
                continue;
            }
            api.sleep(self.delay).await;
            changes.budget().reset();
            changes.drain(|change| self.handle_change(change)).await;
            for namespace in std::mem::take(&mut self.changed) {
                let quotas = api.list(Resource::RESOURCE_QUOTAS, &namespace);
                if quotas.is_empty() {
                    self.limited.remove(&namespace);
                }
                for quota in quotas {
                    changes.budget().spend(1).await;
                    update_status(&api, &quota);
                }
            }
        }
    }

    fn handle_change(&mut self, change: &Change) {
        let (object, namespace) = (&change.object, change.object.namespace());
        if object.resource() == Resource::RESOURCE_QUOTAS {
            self.limited.insert(namespace.to_owned());
        }
        if self.limited.contains(namespace) && !self.changed.contains(namespace) {
            self.changed.insert(namespace.to_owned());
        }
    }
}

/// Updates the status of a quota if it has changed.
fn update_status(api: &Api, quota: &Object) {
    let hard = quota.value().pointer("/spec/hard").and_then(Value::as_object).cloned().unwrap_or_default();
    let status = &quota.value()["status"];
    let patch = json!({
        "hard": replacement(&status["hard"], hard),
        "used": replacement(&status["used"], api.quota_usage(quota)),
    });
    // The server skips writes without a change.
    if let Err(error) = api.patch_status(quota, &json!({ "status": patch })) {
        debug!(?quota, %error, "Failed to update ResourceQuota status");
    }
}

/// Returns a patch that replaces the map `old` by `new`.
fn replacement(old: &Value, mut new: Map<String, Value>) -> Map<String, Value> {
    for name in old.as_object().into_iter().flat_map(Map::keys) {
        new.entry(name.clone()).or_insert(Value::Null);
    }
    new
}
