//! Changes of the objects that a diagnosis needs, from watches.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, Node, ResourceQuota};
use kcm_api::{Deployment, Pod, ReplicaSet};
use kcm_client::{ApiClient, Decode, Kind, ListParams};
use kcm_clock::{Clock, RealClock, SeededRandom};
use kcm_informer::{Deleted, EventHandler, InformerConfig, Object, SharedInformer};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::reading::Reading;

/// Watches the objects of a namespace, or of all namespaces, until dropped.
pub(super) struct Changes {
    changed: Arc<Notify>,
    stop: CancellationToken,
    _guard: DropGuard,
    /// `true` for each watch whose first list has arrived.
    synced: Vec<Box<dyn Fn() -> bool + Send + Sync>>,
    has_optional: bool,
}

/// `true` if the change to an object, from the old one if there is one, can change a diagnosis.
type IsRelevant<K> = Box<dyn Fn(Option<&K>, &K) -> bool + Send + Sync>;

/// Handler of an informer that reports relevant changes.
struct Signal<K> {
    changed: Arc<Notify>,
    is_relevant: IsRelevant<K>,
}

impl<K> Signal<K> {
    fn report(&self, old: Option<&K>, new: &K) {
        if (self.is_relevant)(old, new) {
            self.changed.notify_one();
        }
    }
}

impl<K: Object> EventHandler<K> for Signal<K> {
    fn on_add(&self, object: &Arc<K>, _: bool) {
        self.report(None, object);
    }

    fn on_update(&self, old: &Arc<K>, new: &Arc<K>) {
        self.report(Some(old), new);
    }

    fn on_delete(&self, _: &Deleted<K>) {
        self.changed.notify_one();
    }
}

impl Changes {
    /// Without watches.
    pub(super) fn none() -> Self {
        let stop = CancellationToken::new();
        Self {
            changed: Arc::default(),
            _guard: stop.clone().drop_guard(),
            stop,
            synced: Vec::new(),
            has_optional: false,
        }
    }

    /// Starts the watches of Deployments, ReplicaSets and pods. An informer retries a watch that fails.
    pub(super) fn watch(client: &ApiClient, namespace: Option<&str>) -> Self {
        let mut this = Self::none();
        this.start::<Deployment>("deployments", client, namespace, Box::new(|_, _| true));
        this.start::<ReplicaSet>("replicasets", client, namespace, Box::new(|_, _| true));
        this.start::<Pod>("pods", client, namespace, Box::new(|_, _| true));
        this
    }

    /// Starts the watches of the resources that only some causes need, if the caller may read them. Only the first call has
    /// an effect. Of one Deployment, `name`, only its own events are relevant; of nodes, those that become ready or not.
    pub(super) fn watch_optional(
        &mut self,
        client: &ApiClient,
        namespace: Option<&str>,
        name: Option<&str>,
        reading: &Reading,
    ) {
        if std::mem::replace(&mut self.has_optional, true) {
            return;
        }
        if !reading.is_unreadable("events") {
            let name = name.map(str::to_owned);
            let is_relevant = move |_: Option<&Event>, event: &Event| is_of(event, name.as_deref());
            self.start::<Event>("events", client, namespace, Box::new(is_relevant));
        }
        if !reading.is_unreadable("resourcequotas") {
            self.start::<ResourceQuota>("resourcequotas", client, namespace, Box::new(|_, _| true));
        }
        if !reading.is_unreadable("nodes") {
            let is_relevant =
                |old: Option<&Node>, new: &Node| old.is_none_or(|old| is_ready(old) != is_ready(new));
            self.start::<Node>("nodes", client, None, Box::new(is_relevant));
        }
    }

    fn start<K: Kind<Decoder: Decode<K>>>(
        &mut self,
        name: &str,
        client: &ApiClient,
        namespace: Option<&str>,
        is_relevant: IsRelevant<K>,
    ) {
        let api = client.api::<K>().namespaced(namespace.unwrap_or_default());
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let random = Arc::new(SeededRandom::from_entropy());
        let informer = SharedInformer::new(InformerConfig::new(
            name,
            api.list_watch(ListParams::default()),
            clock,
            random,
        ));
        informer.add_handler(Arc::new(Signal { changed: Arc::clone(&self.changed), is_relevant }));
        let (running, stop) = (informer.clone(), self.stop.clone());
        tokio::spawn(async move { running.run(stop).await });
        self.add(move || informer.has_synced());
    }

    /// Adds a watch. `has_synced` returns `true` when its first list has arrived.
    pub(super) fn add(&mut self, has_synced: impl Fn() -> bool + Send + Sync + 'static) {
        self.synced.push(Box::new(has_synced));
    }

    /// `true` if all watches have started. Otherwise changes are missed.
    pub(super) fn is_complete(&self) -> bool {
        self.synced.iter().all(|has_synced| has_synced())
    }

    /// Waits for a change since the last call.
    ///
    /// # Cancel safety
    ///
    /// A change is not lost.
    pub(super) async fn next(&self) {
        self.changed.notified().await;
    }
}

/// `true` for an event of the Deployment, its ReplicaSets or their pods, whose names begin with that of the Deployment.
fn is_of(event: &Event, deployment: Option<&str>) -> bool {
    let object = event.involved_object.name.as_deref().unwrap_or_default();
    deployment.is_none_or(|name| object.starts_with(name))
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_other_objects() {
        let event = |name: &str| -> Event {
            serde_json::from_value(json!({ "metadata": {}, "involvedObject": { "name": name } })).unwrap()
        };
        assert!(is_of(&event("web-7c9d-x2k8v"), Some("web")) && is_of(&event("api"), None));
        assert!(!is_of(&event("api-5f6b"), Some("web")));
    }

    #[test]
    fn readiness_of_nodes() {
        let node = |status: &str| -> Node {
            let conditions = json!([{ "type": "Ready", "status": status }]);
            serde_json::from_value(json!({ "metadata": {}, "status": { "conditions": conditions } })).unwrap()
        };
        assert!(is_ready(&node("True")) && !is_ready(&node("Unknown")));
    }
}
