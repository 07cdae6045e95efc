//! Controller of pods that uses `OwnWrites`.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{mem, sync::Arc, time::Duration};

use kcm_api::{Pod, PodDecoder, ReplicaSet};
use kcm_clock::{Clock, FakeClock, SeededRandom, Timestamp};
use kcm_informer::{InformerConfig, SharedInformer, Store, testing::FakeSource};
use kcm_meta::SetResourceVersion;
use kcm_runtime::{
    Controller, DeletedObject, ErrorClass, NotReady, ObjectKey, OwnWrites, Reconciler, Requeue, owner_of,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Creates and deletes the pods of ReplicaSets.
struct Pool {
    sets: Store<ReplicaSet>,
    pods: Store<Pod>,
    own_writes: Arc<OwnWrites>,
    /// API server of the pods.
    server: FakeSource<Pod>,
    /// Requests, and `pending` for each sync that creates and deletes nothing.
    log: Mutex<Vec<String>>,
}

impl Reconciler for Pool {
    type Error = NotReady;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, NotReady> {
        let may_create_and_delete = self.own_writes.begin(key, |pod| self.pods.get(pod).is_some())?;
        let Some(set) = self.sets.get(key) else {
            self.own_writes.forget(key);
            return Ok(Requeue::Done);
        };
        let expectations = &self.own_writes.expectations;
        if !may_create_and_delete {
            self.log.lock().push("pending".to_owned());
            return Ok(expectations.expires_in(key).map_or(Requeue::Done, Requeue::After));
        }
        let mut active = self.pods.list();
        active.retain(|pod| pod.is_active() && owner_of(&self.sets, &**pod).is_some());
        let wanted = usize::try_from(set.replicas()).unwrap_or_default();
        let missing = wanted.saturating_sub(active.len());
        if missing > 0 {
            expectations.expect_creations(key, missing);
            for _ in 0..missing {
                let name = format!("pod-{}", self.server.version());
                self.server.apply(pod(&name, false));
                self.log.lock().push(format!("create {name}"));
            }
        } else if active.len() > wanted {
            let surplus = active.split_off(wanted);
            expectations.expect_deletions(key, surplus.iter().map(|pod| DeletedObject::of(&**pod)));
            for surplus in surplus {
                // The kubelet stops the containers later.
                self.server.apply(pod(&surplus.key.name, true));
                self.log.lock().push(format!("delete {}", surplus.key.name));
            }
        }
        Ok(Requeue::Done)
    }

    fn classify(_: &NotReady) -> ErrorClass {
        ErrorClass::StaleCache
    }
}

fn set(replicas: i32) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "web-uid"}, "spec": {"replicas": replicas},
    }))
    .unwrap()
}

fn pod(name: &str, is_terminating: bool) -> Pod {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web-uid", "controller": true});
    let deletion = is_terminating.then_some("2026-01-01T00:00:30Z");
    let object = json!({"metadata": {
        "namespace": "shop", "name": name, "uid": format!("{name}-uid"), "ownerReferences": [owner],
        "deletionTimestamp": deletion,
    }});
    PodDecoder::default().decode_value(&object).unwrap()
}

struct TestEnv {
    clock: FakeClock,
    sets: FakeSource<ReplicaSet>,
    pods: FakeSource<Pod>,
    informers: (SharedInformer<ReplicaSet>, SharedInformer<Pod>),
    controller: Controller<Pool>,
}

impl TestEnv {
    fn new() -> Self {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let (sets, set_informer) = cache("replicasets", &clock);
        let (pods, pod_informer) = cache("pods", &clock);
        let own_writes = Arc::new(OwnWrites::new(Arc::new(clock.clone()), []));
        let controller = Controller::builder("pool", Arc::new(clock.clone()))
            .reconciles(&set_informer)
            .owns(&pod_informer)
            .own_writes(Arc::clone(&own_writes))
            .build(Pool {
                sets: set_informer.store(),
                pods: pod_informer.store(),
                own_writes,
                server: pods.clone(),
                log: Mutex::default(),
            });
        Self { clock, sets, pods, informers: (set_informer, pod_informer), controller }
    }

    /// Reconciles while the cache of pods contains no later change.
    async fn reconcile_with_old_cache(&self) -> Vec<String> {
        self.controller.queue().add(ObjectKey::new("shop", "web"));
        self.controller.step().await.unwrap();
        mem::take(&mut *self.controller.reconciler().log.lock())
    }

    /// Reconciles until the caches contain all changes and no key is due.
    async fn reconcile(&self) -> Vec<String> {
        loop {
            settle(&self.sets, &self.informers.0).await;
            settle(&self.pods, &self.informers.1).await;
            if self.controller.drain().await.is_empty() {
                return mem::take(&mut *self.controller.reconciler().log.lock());
            }
        }
    }
}

fn cache<K: SetResourceVersion + Clone>(
    name: &'static str,
    clock: &FakeClock,
) -> (FakeSource<K>, SharedInformer<K>) {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let source = FakeSource::new(Arc::clone(&clock));
    let random = Arc::new(SeededRandom::new(1));
    let informer = SharedInformer::new(InformerConfig::new(name, Arc::new(source.clone()), clock, random));
    let running = informer.clone();
    tokio::spawn(async move { running.run(CancellationToken::new()).await });
    (source, informer)
}

/// Waits until the informer has all changes.
async fn settle<K: SetResourceVersion + Clone>(source: &FakeSource<K>, informer: &SharedInformer<K>) {
    let version = source.version().to_string();
    while informer.store().last_sync_resource_version().as_ref() != Some(&version) {
        tokio::task::yield_now().await;
    }
}

/// 4, 2 and 6 pods with a grace period that does not end: no sync waits for it, and none creates a pod twice.
#[tokio::test]
async fn pods_that_terminate_slowly() {
    let env = TestEnv::new();
    env.sets.apply(set(4));
    settle(&env.sets, &env.informers.0).await;
    let created = env.reconcile_with_old_cache().await;
    assert_eq!(created.len(), 4, "{created:?}");
    assert_eq!(env.reconcile_with_old_cache().await, ["pending"]);
    assert_eq!(env.reconcile().await, [""; 0]);

    env.sets.apply(set(2));
    settle(&env.sets, &env.informers.0).await;
    let deleted = env.reconcile_with_old_cache().await;
    assert_eq!(deleted.len(), 2, "{deleted:?}");
    assert_eq!(env.reconcile_with_old_cache().await, ["pending"]);
    assert_eq!(env.reconcile().await, [""; 0]);

    env.sets.apply(set(6));
    let created = env.reconcile().await;
    assert_eq!(created.len(), 4, "{created:?}");
    assert_eq!((env.pods.objects().len(), env.clock.monotonic()), (8, Duration::ZERO));
    for terminating in env.pods.objects().iter().filter(|pod| pod.is_terminating()) {
        env.pods.delete(&terminating.key);
    }
    assert_eq!(env.reconcile().await, [""; 0]);
    assert_eq!(env.pods.objects().len(), 6);
}

/// A creation that no event reports is awaited until it expires, and then no longer.
#[tokio::test]
async fn lost_creation() {
    let env = TestEnv::new();
    env.sets.apply(set(1));
    env.reconcile().await;
    let key = ObjectKey::new("shop", "web");
    let expectations = &env.controller.reconciler().own_writes.expectations;
    expectations.expect_creations(&key, 1);
    env.sets.apply(set(2));
    assert_eq!(env.reconcile().await, ["pending"]);
    env.clock.step(expectations.expires_in(&key).unwrap());
    assert_eq!(env.reconcile().await.len(), 1, "creates the missing pod");
}
