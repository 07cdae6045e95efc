//! The operator with faults.

use std::time::Duration;

use kcm::prelude::*;
use kcm_apiserver::{DeleteOptions as ServerDeleteOptions, Resource};
use kcm_testing::FaultHandle;
use pod_pool::pool::PodPool;

use crate::cluster::{Cluster, Operator};

/// Checks that 500 pods were created, and none twice.
fn created_once(cluster: &Cluster) {
    let history = cluster.history.lock().unwrap();
    assert_eq!((history.created, history.most), (500, 500));
}

#[tokio::test(start_paused = true)]
async fn late_pod_watch() {
    let cluster = Cluster::new().await;
    let _operator = cluster.start(Operator::Kcm);
    cluster.env.advance(Duration::from_secs(1)).await;
    cluster.lag.set(Duration::from_secs(3));
    cluster.create_pool(500).await;
    cluster.settles(500).await;
    created_once(&cluster);
    cluster.scale(100);
    cluster.settles(100).await;
    assert_eq!(cluster.history.lock().unwrap().created, 500);
}

#[tokio::test(start_paused = true)]
async fn conflicts() {
    let cluster = Cluster::new().await;
    let creates = cluster.env.fault("POST /api/v1/**/pods 409 every=60");
    let patches = cluster.env.fault("PATCH /apis/example.org/** 409 every=2");
    let _operator = cluster.start(Operator::Kcm);
    cluster.create_pool(500).await;
    cluster.settles(500).await;
    created_once(&cluster);
    assert!(creates.applied() > 5 && patches.applied() > 1, "{creates:?} {patches:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_answers() {
    let cluster = Cluster::new().await;
    let creates = cluster.env.fault("POST /api/v1/**/pods late:0s every=60");
    let deletions = cluster.env.fault("DELETE /api/v1/**/pods/* late:0s every=60");
    let _operator = cluster.start(Operator::Kcm);
    cluster.create_pool(500).await;
    cluster.settles(500).await;
    created_once(&cluster);
    cluster.scale(100);
    cluster.settles(100).await;
    assert_eq!(cluster.history.lock().unwrap().created, 500);
    assert!(creates.applied() > 5 && deletions.applied() > 3, "{creates:?} {deletions:?}");
}

/// The answer of a creation is lost, and the pod is late, too.
#[tokio::test(start_paused = true)]
async fn lost_answers_and_late_pod_watch() {
    let cluster = Cluster::new().await;
    let lost = cluster.env.fault("POST /api/v1/**/pods late:1s every=60");
    let _operator = cluster.start(Operator::Kcm);
    cluster.env.advance(Duration::from_secs(1)).await;
    cluster.lag.set(Duration::from_secs(3));
    cluster.create_pool(500).await;
    cluster.settles(500).await;
    created_once(&cluster);
    assert!(lost.applied() > 5, "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_that_expire_and_end() {
    let cluster = Cluster::new().await;
    let _operator = cluster.start(Operator::Kcm);
    cluster.env.advance(Duration::from_secs(1)).await;
    cluster.create_pool(500).await;
    for _ in 0..5 {
        let expired = cluster.env.fault("WATCH /** 410 times=4");
        cluster.env.faults().cut_watches("/**");
        cluster.env.advance(Duration::from_secs(10)).await;
        assert!(expired.applied() > 0);
        expired.remove();
    }
    cluster.settles(500).await;
    created_once(&cluster);
}

#[tokio::test(start_paused = true)]
async fn restart_while_pods_are_created() {
    let cluster = Cluster::new().await;
    cluster.env.fault("POST /api/v1/**/pods delay=50ms");
    let operator = cluster.start(Operator::Kcm);
    cluster.env.advance(Duration::from_secs(1)).await;
    cluster.lag.set(Duration::from_secs(3));
    cluster.create_pool(500).await;
    let created = || cluster.history.lock().unwrap().created;
    cluster.env.eventually("pods are created", async || created() > 100).await;
    operator.kill().await;
    assert!(created() < 500);
    let _operator = cluster.start(Operator::Kcm);
    cluster.settles(500).await;
    created_once(&cluster);
}

#[tokio::test(start_paused = true)]
async fn restart_during_the_slow_call_of_a_deletion() {
    let cluster = Cluster::new().await;
    let operator = cluster.start(Operator::Kcm);
    cluster.create_pool(10).await;
    cluster.settles(10).await;
    cluster.env.api::<PodPool>().delete("web", &DeleteOptions::default()).await.unwrap();
    cluster.env.eventually("the pods are deleted", async || cluster.pods().is_empty()).await;
    cluster.env.advance(Duration::from_secs(10)).await;
    operator.kill().await;
    assert!(cluster.pool().is_some() && !cluster.reservations.seats().is_empty());
    let _operator = cluster.start(Operator::Kcm);
    cluster
        .env
        .within(Duration::from_secs(90), "the pool is deleted", async || cluster.pool().is_none())
        .await;
    assert!(cluster.reservations.seats().is_empty());
    assert_eq!(cluster.history.lock().unwrap().created, 10);
}

/// Deletes a pod while the operator has no watch of pods and cannot resume the last one: it finds the deletion in a list.
/// Returns after a minute.
pub(crate) async fn delete_unseen(cluster: &Cluster) {
    let unavailable = ["WATCH", "GET"].map(|verb| cluster.env.fault(&format!("{verb} /api/v1/pods 503")));
    cluster.env.faults().cut_watches("/api/v1/pods");
    cluster.env.advance(Duration::from_secs(1)).await;
    let name = cluster.pods()[0].name().to_owned();
    let now = ServerDeleteOptions { grace_period_seconds: Some(0), ..ServerDeleteOptions::default() };
    cluster.env.server().delete(Resource::PODS, "shop", &name, &now).unwrap();
    let expired = cluster.env.fault("WATCH /api/v1/pods 410 times=2");
    unavailable.iter().for_each(FaultHandle::remove);
    cluster.env.advance(Duration::from_secs(60)).await;
    expired.remove();
}

#[tokio::test(start_paused = true)]
async fn deletion_during_a_relist() {
    let cluster = Cluster::new().await;
    let _operator = cluster.start(Operator::Kcm);
    cluster.create_pool(500).await;
    cluster.settles(500).await;
    delete_unseen(&cluster).await;
    cluster
        .env
        .within(Duration::from_secs(180), "the pod is replaced", async || cluster.pods().len() == 500)
        .await;
    assert_eq!(cluster.history.lock().unwrap().created, 501);
}
