use kcm_clock::{Clock, FakeClock, SeededRandom};
use kcm_expectations::OwnWrites;
use kcm_informer::{
    Deleted, EventHandler, InformerConfig,
    testing::{FakeSource, SetResourceVersion},
};
use kcm_runtime::{KeyQueue, mapped_handler, owned_handler, primary_handler};
use kcm_workqueue::QueueConfig;
use serde_json::json;

use super::*;

use crate::testing::{Caches, START, deployment, pod_of, replica_set, set_recreate};

/// Handlers of the controller's watches, and their queue.
struct Handlers {
    queue: KeyQueue,
    deployments: Arc<dyn EventHandler<Deployment>>,
    replica_sets: Arc<dyn EventHandler<ReplicaSet>>,
    pods: Arc<dyn EventHandler<Pod>>,
    own_writes: Arc<OwnWrites>,
}

fn handlers(caches: &Caches) -> Handlers {
    let clock: Arc<dyn Clock> = Arc::new(FakeClock::new(kcm_api::Time::from_unix(START).timestamp()));
    let queue = KeyQueue::new(QueueConfig::new("test", Arc::clone(&clock)));
    let own_writes = Arc::new(OwnWrites::new(Arc::clone(&clock), []));
    let records = Some(Arc::clone(&own_writes));
    let deployments = caches.deployments.reader();
    let recreates = Recreates {
        deployments: deployments.clone(),
        replica_sets: caches.replica_sets.reader(),
        pods: caches.pods.reader(),
    };
    let replica_sets = replica_sets(&idle_informer(&clock), deployments.clone());
    Handlers {
        deployments: primary_handler(Watch::new(&idle_informer(&clock)), queue.clone(), records.clone()),
        replica_sets: owned_handler(
            replica_sets,
            caches.replica_sets.reader(),
            deployments,
            queue.clone(),
            records,
        ),
        pods: mapped_handler(
            pods(&idle_informer(&clock)),
            move |pod| recreates.continued_by(pod),
            queue.clone(),
        ),
        queue,
        own_writes,
    }
}

/// Returns an informer that does not run.
fn idle_informer<K: SetResourceVersion + Clone>(clock: &Arc<dyn Clock>) -> SharedInformer<K> {
    let source = Arc::new(FakeSource::new(Arc::clone(clock)));
    SharedInformer::new(InformerConfig::new(
        "idle",
        source,
        Arc::clone(clock),
        Arc::new(SeededRandom::new(1)),
    ))
}

/// Returns the names of the queued Deployments.
async fn queued(handlers: &Handlers) -> Vec<String> {
    let mut names = Vec::new();
    while !handlers.queue.is_empty() {
        let key = handlers.queue.get().await.unwrap();
        names.push(key.name.to_string());
    }
    names.sort();
    names
}

fn deployment_named(name: &str) -> Deployment {
    let mut d = deployment(1);
    d.metadata.name = name.into();
    d.metadata.uid = format!("uid-of-{name}").into();
    d
}

fn owned_by(d: &Deployment, name: &str) -> ReplicaSet {
    let mut set = replica_set(name, "web:1", 0, 1, 1);
    set.metadata.owner_references = vec![OwnerIdentity::from(d).controller_reference()];
    set
}

fn orphan(name: &str) -> ReplicaSet {
    let mut set = replica_set(name, "web:1", 0, 1, 1);
    set.metadata.owner_references.clear();
    set
}

/// Returns `set` with another resource version and a change.
fn changed(set: &ReplicaSet, change: impl FnOnce(&mut ReplicaSet)) -> Arc<ReplicaSet> {
    let mut set = set.clone();
    set.metadata.resource_version = "11".to_owned();
    change(&mut set);
    Arc::new(set)
}

#[tokio::test]
async fn deployment_events_enqueue() {
    let handlers = handlers(&Caches::new());
    let d = Arc::new(deployment(1));
    handlers.deployments.on_add(&d, true);
    assert_eq!(queued(&handlers).await, ["web"]);
    handlers.deployments.on_update(&d, &d);
    assert_eq!(queued(&handlers).await, ["web"]);
    handlers.deployments.on_delete(&Deleted::FinalStateUnknown(d));
    assert_eq!(queued(&handlers).await, ["web"]);
}

/// `TestAddReplicaSet`.
#[tokio::test]
async fn add_replica_set_enqueues_its_owner() {
    let (d1, d2) = (deployment_named("d1"), deployment_named("d2"));
    let handlers = handlers(&Caches::with(&[&d1, &d2], &[]));
    for d in [&d1, &d2] {
        handlers.replica_sets.on_add(&Arc::new(owned_by(d, "rs")), false);
        assert_eq!(queued(&handlers).await, [&*d.metadata.name]);
    }
}

#[tokio::test]
async fn add_replica_set_compares_the_uid_of_the_owner() {
    let d = deployment_named("d1");
    let handlers = handlers(&Caches::with(&[&d], &[]));
    let mut other_uid = owned_by(&d, "rs");
    other_uid.metadata.owner_references[0].uid = "other".into();
    let mut other_group = owned_by(&d, "rs");
    other_group.metadata.owner_references[0].api_version = "example.com/v1".to_owned();
    handlers.replica_sets.on_add(&Arc::new(other_uid), false);
    assert_eq!(queued(&handlers).await, [""; 0]);
    // US-9.27: the API group is not compared.
    handlers.replica_sets.on_add(&Arc::new(other_group), false);
    assert_eq!(queued(&handlers).await, ["d1"]);
}

/// `TestAddReplicaSetOrphan`.
#[tokio::test]
async fn add_replica_set_orphan_enqueues_matching_deployments() {
    let (d1, d2, mut d3) = (deployment_named("d1"), deployment_named("d2"), deployment_named("d3"));
    d3.spec.selector.as_mut().unwrap().match_labels.insert("more".to_owned(), "labels".to_owned());
    let mut elsewhere = deployment_named("d4");
    elsewhere.metadata.namespace = "elsewhere".into();
    let handlers = handlers(&Caches::with(&[&d1, &d2, &d3, &elsewhere], &[]));
    handlers.replica_sets.on_add(&Arc::new(orphan("rs")), false);
    assert_eq!(queued(&handlers).await, ["d1", "d2"]);
}

#[tokio::test]
async fn add_of_terminating_replica_set_enqueues_only_its_owner() {
    let d = deployment_named("d1");
    let handlers = handlers(&Caches::with(&[&d], &[]));
    let terminating = |set: ReplicaSet| {
        changed(&set, |set| set.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START)))
    };
    handlers.replica_sets.on_add(&terminating(owned_by(&d, "rs")), false);
    assert_eq!(queued(&handlers).await, ["d1"]);
    handlers.replica_sets.on_add(&terminating(orphan("rs")), false);
    assert_eq!(queued(&handlers).await, [""; 0]);
}

/// `TestUpdateReplicaSet`. A resync enqueues nothing.
#[tokio::test]
async fn update_replica_set_enqueues_its_owner() {
    let (d1, d2) = (deployment_named("d1"), deployment_named("d2"));
    let handlers = handlers(&Caches::with(&[&d1, &d2], &[]));
    let old = Arc::new(owned_by(&d1, "rs"));
    handlers.replica_sets.on_update(&old, &changed(&old, |set| set.spec.replicas = Some(5)));
    assert_eq!(queued(&handlers).await, ["d1"]);
    handlers.replica_sets.on_update(&old, &old);
    assert_eq!(queued(&handlers).await, [""; 0]);
}

/// `TestUpdateReplicaSetOrphanWithNewLabels`.
#[tokio::test]
async fn update_replica_set_orphan_with_new_labels_enqueues_matching_deployments() {
    let (d1, d2) = (deployment_named("d1"), deployment_named("d2"));
    let handlers = handlers(&Caches::with(&[&d1, &d2], &[]));
    let new = orphan("rs");
    let old = changed(&new, |set| set.metadata.labels.clear());
    handlers.replica_sets.on_update(&old, &Arc::new(new.clone()));
    assert_eq!(queued(&handlers).await, ["d1", "d2"]);
    let resized = changed(&new, |set| set.spec.replicas = Some(5));
    handlers.replica_sets.on_update(&Arc::new(new), &resized);
    assert_eq!(queued(&handlers).await, [""; 0], "unchanged labels");
}

/// `TestUpdateReplicaSetChangeControllerRef`.
#[tokio::test]
async fn update_replica_set_change_controller_ref_enqueues_both_owners() {
    let (d1, d2) = (deployment_named("d1"), deployment_named("d2"));
    let handlers = handlers(&Caches::with(&[&d1, &d2], &[]));
    let new = owned_by(&d1, "rs");
    let old = changed(&owned_by(&d2, "rs"), |_| {});
    handlers.replica_sets.on_update(&old, &Arc::new(new));
    assert_eq!(queued(&handlers).await, ["d1", "d2"]);
}

/// `TestUpdateReplicaSetRelease`.
#[tokio::test]
async fn update_replica_set_release_enqueues_old_owner_and_matching_deployments() {
    let (d1, d2) = (deployment_named("d1"), deployment_named("d2"));
    let handlers = handlers(&Caches::with(&[&d1, &d2], &[]));
    let old = owned_by(&d1, "rs");
    let new = changed(&old, |set| set.metadata.owner_references.clear());
    handlers.replica_sets.on_update(&Arc::new(old), &new);
    assert_eq!(queued(&handlers).await, ["d1", "d2"]);
}

/// `TestDeleteReplicaSet`. The watch may have missed the deletion.
#[tokio::test]
async fn delete_replica_set_enqueues_its_owner() {
    let d = deployment_named("d1");
    let handlers = handlers(&Caches::with(&[&d], &[]));
    for deleted in [Deleted::FinalState as fn(_) -> _, Deleted::FinalStateUnknown] {
        handlers.replica_sets.on_delete(&deleted(Arc::new(owned_by(&d, "rs"))));
        assert_eq!(queued(&handlers).await, ["d1"]);
    }
}

/// `TestDeleteReplicaSetOrphan`.
#[tokio::test]
async fn delete_replica_set_orphan_enqueues_nothing() {
    let handlers = handlers(&Caches::with(&[&deployment_named("d1"), &deployment_named("d2")], &[]));
    handlers.replica_sets.on_delete(&Deleted::FinalState(Arc::new(orphan("rs"))));
    assert_eq!(queued(&handlers).await, [""; 0]);
}

/// Deletes a pod of the first ReplicaSet while the pods `remaining` exist. Returns the names of the queued Deployments.
async fn after_pod_deletion(d: &Deployment, sets: &[&ReplicaSet], remaining: &[&Pod]) -> Vec<String> {
    let mut caches = Caches::with(&[d], sets);
    for pod in remaining {
        caches.pods.apply(Arc::new((*pod).clone()));
    }
    let handlers = handlers(&caches);
    handlers.pods.on_delete(&Deleted::FinalState(Arc::new(pod_of(sets[0], "deleted", "Running"))));
    queued(&handlers).await
}

fn recreate() -> Deployment {
    let mut d = deployment_named("d1");
    set_recreate(&mut d);
    d
}

/// `TestPodDeletionEnqueuesRecreateDeployment`. A rolling update is not enqueued.
#[tokio::test]
async fn pod_deletion_enqueues_recreate_deployment() {
    let d = recreate();
    let set = owned_by(&d, "rs");
    assert_eq!(after_pod_deletion(&d, &[&set], &[]).await, ["d1"]);
    assert_eq!(after_pod_deletion(&deployment_named("d1"), &[&set], &[]).await, [""; 0]);
}

/// `TestPodDeletionDoesntEnqueueRecreateDeployment`.
#[tokio::test]
async fn pod_deletion_doesnt_enqueue_recreate_deployment() {
    let d = recreate();
    let set = owned_by(&d, "rs");
    assert_eq!(after_pod_deletion(&d, &[&set], &[&pod_of(&set, "remaining", "Running")]).await, [""; 0]);
}

#[tokio::test]
async fn pod_deletion_ignores_finished_pods() {
    let d = recreate();
    let set = owned_by(&d, "rs");
    for phase in ["Succeeded", "Failed"] {
        assert_eq!(after_pod_deletion(&d, &[&set], &[&pod_of(&set, "remaining", phase)]).await, ["d1"]);
    }
}

/// `TestPodDeletionPartialReplicaSetOwnershipEnqueueRecreateDeployment`.
#[tokio::test]
async fn pod_deletion_ignores_pods_of_other_replica_sets() {
    let d = recreate();
    let (set, orphan) = (owned_by(&d, "rs"), orphan("orphan"));
    assert_eq!(
        after_pod_deletion(&d, &[&set, &orphan], &[&pod_of(&orphan, "remaining", "Running")]).await,
        ["d1"]
    );
}

/// `TestPodDeletionPartialReplicaSetOwnershipDoesntEnqueueRecreateDeployment`.
#[tokio::test]
async fn pod_deletion_considers_all_replica_sets() {
    let d = recreate();
    let (set, other) = (owned_by(&d, "rs"), owned_by(&d, "rs-other"));
    assert_eq!(
        after_pod_deletion(&d, &[&set, &other], &[&pod_of(&other, "remaining", "Running")]).await,
        [""; 0]
    );
}

#[tokio::test]
async fn pod_deletion_without_cached_replica_set_enqueues_nothing() {
    let d = recreate();
    let set = owned_by(&d, "rs");
    let handlers = handlers(&Caches::with(&[&d], &[]));
    handlers.pods.on_delete(&Deleted::FinalState(Arc::new(pod_of(&set, "deleted", "Running"))));
    assert_eq!(queued(&handlers).await, [""; 0]);
}

#[tokio::test]
async fn pod_that_loses_its_owner_enqueues_recreate_deployment() {
    let d = recreate();
    let set = owned_by(&d, "rs");
    let handlers = handlers(&Caches::with(&[&d], &[&set]));
    let old = pod_of(&set, "left", "Running");
    let new = Pod { controller: None, ..old.clone() };
    handlers.pods.on_update(&Arc::new(old.clone()), &Arc::new(old.clone()));
    assert_eq!(queued(&handlers).await, [""; 0]);
    handlers.pods.on_update(&Arc::new(old), &Arc::new(new));
    assert_eq!(queued(&handlers).await, ["d1"]);
}

/// The strategy was changed to Recreate during a rolling update: the new ReplicaSet has pods.
#[tokio::test]
async fn pod_deletion_ignores_pods_of_the_new_replica_set() {
    let d = recreate();
    let (mut old, new) = (owned_by(&d, "rs-old"), owned_by(&d, "rs-new"));
    let template = json!({"spec": {"containers": [{"name": "c", "image": "app:old"}]}});
    old.spec.template = kcm_api::PodTemplate::from_value(&template).unwrap();
    let remaining = pod_of(&new, "new", "Running");
    assert_eq!(after_pod_deletion(&d, &[&old, &new], &[&remaining]).await, ["d1"]);
    assert_eq!(after_pod_deletion(&d, &[&new, &old], &[&remaining]).await, [""; 0]);
}

#[tokio::test]
async fn pod_that_finishes_enqueues_recreate_deployment() {
    let d = recreate();
    let set = owned_by(&d, "rs");
    let mut caches = Caches::with(&[&d], &[&set]);
    let (old, new) = (pod_of(&set, "left", "Running"), pod_of(&set, "left", "Failed"));
    caches.pods.apply(Arc::new(new.clone()));
    let handlers = handlers(&caches);
    handlers.pods.on_update(&Arc::new(old), &Arc::new(new.clone()));
    assert_eq!(queued(&handlers).await, ["d1"]);
    handlers.pods.on_update(&Arc::new(new.clone()), &Arc::new(new));
    assert_eq!(queued(&handlers).await, [""; 0]);
}

#[tokio::test]
async fn relist_enqueues_deployments_whose_replica_sets_were_not_observed() {
    let d = deployment_named("d1");
    let handlers = handlers(&Caches::with(&[&d], &[]));
    handlers.replica_sets.on_replace();
    assert_eq!(queued(&handlers).await, [""; 0]);
    handlers.own_writes.objects.wrote(&d.metadata.key(), &Arc::new(owned_by(&d, "rs")));
    handlers.replica_sets.on_replace();
    assert_eq!(queued(&handlers).await, ["d1"]);
}

#[tokio::test]
async fn restored_cache_removes_the_records_of_own_writes() {
    let d = deployment_named("d1");
    for restored in [
        |handlers: &Handlers| handlers.deployments.on_restore(),
        |handlers: &Handlers| handlers.replica_sets.on_restore(),
    ] {
        let handlers = handlers(&Caches::with(&[&d], &[]));
        handlers.own_writes.objects.wrote(&d.metadata.key(), &Arc::new(d.clone()));
        handlers.own_writes.objects.wrote(&d.metadata.key(), &Arc::new(owned_by(&d, "rs")));
        restored(&handlers);
        assert!(handlers.own_writes.objects.is_empty());
    }
}
