//! Streams of an informer for kube_runtime.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::Arc,
};

use futures_util::{Stream, StreamExt, stream};
use kcm_informer::{Deleted, EventHandler, HandlerRegistration, ObjectKey, SharedInformer, Store};
use kcm_meta::Object;
use kube_runtime::watcher::{self, Event};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Returns the changes of an informer as `kube_runtime::watcher` reports them.
///
/// The stream begins when the informer has [synced](SharedInformer::has_synced), with all objects. It never fails and
/// never ends: the informer retries failed requests. If a consumer is slower than the changes, it gets the last state of
/// each object, so the stream holds at most one change per object.
///
/// A `kube_runtime::reflector` copies each object into its own store. For owned and watched objects use
/// [`touched_objects`], which copies none.
///
/// ```no_run
/// use std::{sync::Arc, time::Duration};
///
/// use futures_util::StreamExt;
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use kcm_informer::SharedInformer;
/// use kube_runtime::{Controller, WatchStreamExt, controller::Action, reflector};
///
/// async fn run(settings: SharedInformer<ConfigMap>, pods: SharedInformer<Pod>) {
///     let (reader, writer) = reflector::store();
///     let trigger = reflector(writer, kcm_kube::watcher(&settings)).touched_objects();
///     let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, std::io::Error>(Action::await_change());
///     Controller::for_stream(trigger, reader)
///         .owns_shared_stream(kcm_kube::touched_objects(&pods))
///         .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(5)), Arc::new(()))
///         .for_each(|_| std::future::ready(()))
///         .await;
/// }
/// ```
///
/// # Cancel safety
///
/// Dropping the stream removes its handler from the informer.
pub fn watcher<K: Object + Clone>(
    informer: &SharedInformer<K>,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + use<K> {
    let subscription = Subscription::new(informer);
    let initial = async move {
        let objects = subscription.initial().await;
        (subscription, objects)
    };
    stream::once(initial).flat_map(|(subscription, objects)| {
        let objects = stream::iter(objects).map(|object| Event::InitApply(K::clone(&object)));
        let changes = stream::unfold(subscription, async |subscription| {
            let event = match subscription.next().await {
                Change::Applied(object) => Event::Apply(K::clone(&object)),
                Change::Deleted(object) => Event::Delete(K::clone(&object)),
            };
            Some((event, subscription))
        });
        let list = stream::iter([Event::Init]).chain(objects).chain(stream::iter([Event::InitDone]));
        list.chain(changes).map(Ok)
    })
}

/// Returns the objects of an informer that exist, change or are deleted, without copying them.
///
/// For `Controller::owns_shared_stream` and `watches_shared_stream`. As [`watcher`](fn@watcher), the stream holds at most one change
/// per object, and never ends.
///
/// # Cancel safety
///
/// Dropping the stream removes its handler from the informer.
pub fn touched_objects<K: Object>(
    informer: &SharedInformer<K>,
) -> impl Stream<Item = Arc<K>> + Send + use<K> {
    stream::unfold(Subscription::new(informer), async |subscription| {
        let (Change::Applied(object) | Change::Deleted(object)) = subscription.next().await;
        Some((object, subscription))
    })
}

enum Change<K> {
    Applied(Arc<K>),
    Deleted(Arc<K>),
}

/// Handler of an informer that keeps the last change of each object until it is read.
struct Subscription<K: Object> {
    informer: SharedInformer<K>,
    registration: HandlerRegistration,
    changes: Arc<Changes<K>>,
}

struct Changes<K> {
    store: Store<K>,
    pending: Mutex<Pending<K>>,
    changed: Notify,
}

struct Pending<K> {
    /// Keys of `changes` in the order of their first change.
    order: VecDeque<ObjectKey>,
    changes: HashMap<ObjectKey, Change<K>>,
    /// `true` once `changes` has contained the complete state.
    synced: bool,
}

impl<K: Object> Subscription<K> {
    fn new(informer: &SharedInformer<K>) -> Self {
        let pending = Pending { order: VecDeque::new(), changes: HashMap::new(), synced: false };
        let changes = Arc::new(Changes {
            store: informer.store(),
            pending: Mutex::new(pending),
            changed: Notify::new(),
        });
        let registration = informer.add_handler(changes.clone());
        // `on_replace` was called before the handler was added.
        changes.pending.lock().synced |= registration.has_synced();
        Self { informer: informer.clone(), registration, changes }
    }

    /// Waits for the complete state and returns it.
    async fn initial(&self) -> Vec<Arc<K>> {
        loop {
            {
                let mut pending = self.changes.pending.lock();
                if pending.synced {
                    let changes = std::iter::from_fn(|| pending.pop());
                    return changes.filter_map(Change::into_applied).collect();
                }
            }
            self.changes.changed.notified().await;
        }
    }

    async fn next(&self) -> Change<K> {
        loop {
            if let Some(change) = self.changes.pending.lock().pop() {
                return change;
            }
            self.changes.changed.notified().await;
        }
    }
}

impl<K: Object> Drop for Subscription<K> {
    fn drop(&mut self) {
        self.informer.remove_handler(&self.registration);
    }
}

impl<K> Change<K> {
    fn into_applied(self) -> Option<Arc<K>> {
        match self {
            Self::Applied(object) => Some(object),
            Self::Deleted(_) => None,
        }
    }
}

impl<K> Pending<K> {
    fn pop(&mut self) -> Option<Change<K>> {
        self.changes.remove(&self.order.pop_front()?)
    }
}

impl<K: Object> Changes<K> {
    fn push(&self, object: &Arc<K>, change: Change<K>) {
        let mut pending = self.pending.lock();
        let Pending { order, changes, .. } = &mut *pending;
        match changes.entry(object.key()) {
            Entry::Occupied(mut entry) => drop(entry.insert(change)),
            Entry::Vacant(entry) => {
                order.push_back(entry.key().clone());
                entry.insert(change);
            }
        }
        self.changed.notify_one();
    }
}

impl<K: Object> EventHandler<K> for Changes<K> {
    fn on_add(&self, object: &Arc<K>, _initial: bool) {
        self.push(object, Change::Applied(Arc::clone(object)));
    }

    fn on_update(&self, _old: &Arc<K>, new: &Arc<K>) {
        self.push(new, Change::Applied(Arc::clone(new)));
    }

    fn on_delete(&self, deleted: &Deleted<K>) {
        self.push(deleted.object(), Change::Deleted(Arc::clone(deleted.object())));
    }

    fn on_replace(&self) {
        self.pending.lock().synced |= self.store.is_synced();
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kcm_clock::{SeededRandom, SimulatedClock, Timestamp};
    use kcm_informer::{InformerConfig, testing::FakeSource};
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn config_map(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object
    }

    fn informer() -> (SharedInformer<ConfigMap>, FakeSource<ConfigMap>) {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let source = FakeSource::new(clock.clone());
        let random = Arc::new(SeededRandom::new(1));
        (SharedInformer::new(InformerConfig::new("tests", Arc::new(source.clone()), clock, random)), source)
    }

    #[test]
    fn dropped_subscription_removes_its_handler() {
        let (informer, _) = informer();
        let subscription = Subscription::new(&informer);
        let changes = Arc::downgrade(&subscription.changes);
        assert!(changes.upgrade().is_some());
        drop(subscription);
        assert!(changes.upgrade().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn initial_state_is_complete_also_if_the_informer_has_synced_before() {
        let (informer, source) = informer();
        source.apply(config_map("a"));
        source.apply(config_map("b"));
        let before = Subscription::new(&informer);
        let cancel = CancellationToken::new();
        let scenario = async {
            assert_eq!(before.initial().await.len(), 2);
            assert!(informer.wait_for_sync(&cancel).await);
            assert_eq!(Subscription::new(&informer).initial().await.len(), 2);
            source.delete(&ObjectKey::new("", "a"));
            assert!(matches!(before.next().await, Change::Deleted(object) if *object.key().name == *"a"));
            cancel.cancel();
        };
        tokio::join!(informer.run(cancel.clone()), scenario);
    }
}
