//! The operator without faults.

use std::time::Duration;

use kcm::prelude::*;
use pod_pool::pool::PodPool;
use serde_json::json;

use crate::cluster::{CALL, Cluster, Operator};

#[tokio::test(start_paused = true)]
async fn scales_up_and_down() {
    let cluster = Cluster::new().await;
    let _operator = cluster.start(Operator::Kcm);
    cluster.create_pool(500).await;
    cluster.settles(500).await;
    assert_eq!(cluster.reservations.seats(), [500]);
    cluster.scale(100);
    cluster.settles(100).await;
    cluster.scale(250);
    cluster.settles(250).await;
    let history = cluster.history.lock().unwrap();
    assert_eq!((history.created, history.most), (650, 500));
    assert_eq!(cluster.reservations.seats(), [250]);
}

#[tokio::test(start_paused = true)]
async fn adopts_and_releases_pods() {
    let cluster = Cluster::new().await;
    let _operator = cluster.start(Operator::Kcm);
    cluster.create_pool(3).await;
    cluster.create_orphan("orphan").await;
    cluster.settles(3).await;
    assert!(cluster.pods().iter().all(|pod| pod.value()["metadata"]["ownerReferences"][0]["name"] == "web"));
    assert!(cluster.pods().iter().any(|pod| pod.name() == "orphan"));

    let labels = Patch::merge(&json!({"metadata": {"labels": {"app": "other"}}}));
    cluster.env.api::<k8s_openapi::api::core::v1::Pod>().patch("orphan", &labels).await.unwrap();
    cluster.env.eventually("the pod is replaced", async || cluster.pods().len() == 4).await;
    let released = cluster.pods().into_iter().find(|pod| pod.name() == "orphan").unwrap();
    assert!(released.value()["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(start_paused = true)]
async fn moves_pods_off_a_cordoned_node() {
    let cluster = Cluster::new().await;
    let _operator = cluster.start(Operator::Kcm);
    cluster.create_pool(100).await;
    cluster.settles(100).await;
    let node = cluster.pods()[0].value()["spec"]["nodeName"].as_str().unwrap().to_owned();
    cluster.cordon(&node).await;
    let on_node = || cluster.pods().iter().filter(|pod| pod.value()["spec"]["nodeName"] == *node).count();
    assert_eq!(on_node(), 5);
    cluster.env.eventually("the node is empty", async || on_node() == 0).await;
    cluster.settles(100).await;
    assert_eq!(cluster.history.lock().unwrap().created, 105);
}

#[tokio::test(start_paused = true)]
async fn deletes_pods_then_reservation_then_finalizer() {
    let cluster = Cluster::new().await;
    let _operator = cluster.start(Operator::Kcm);
    cluster.create_pool(500).await;
    cluster.settles(500).await;
    cluster.env.api::<PodPool>().delete("web", &DeleteOptions::default()).await.unwrap();
    cluster.env.eventually("the pods are deleted", async || cluster.pods().is_empty()).await;
    // The external system has not answered.
    cluster.env.advance(CALL / 2).await;
    assert_eq!(cluster.reservations.seats(), [500]);
    assert!(cluster.pool().is_some());
    cluster.env.eventually("the pool is deleted", async || cluster.pool().is_none()).await;
    assert!(cluster.reservations.seats().is_empty());
    assert_eq!(cluster.history.lock().unwrap().created, 500);
}

#[tokio::test(start_paused = true)]
async fn settled_pool_is_not_written() {
    let cluster = Cluster::new().await;
    let _operator = cluster.start(Operator::Kcm);
    cluster.create_pool(500).await;
    cluster.settles(500).await;
    cluster.env.advance(Duration::from_secs(60)).await;
    let before = cluster.requests().len();
    cluster.env.advance(Duration::from_secs(3600)).await;
    let requests: Vec<_> = cluster.requests().drain(before..).map(|request| request.uri).collect();
    assert!(requests.is_empty(), "{requests:?}");
}
