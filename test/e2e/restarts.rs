//! Restarts of the API server and of the manager during a rollout.

use kcm_stories::external::Signal;

use serde_json::json;
use tokio::time::{Duration, sleep, timeout};

use crate::harness::Cluster;

const REPLICAS: usize = 10;
/// Time that etcd is stopped.
const ETCD_STOP: Duration = Duration::from_secs(5);
/// Delay between a request and its entry in the audit log.
const AUDIT_LAG: Duration = Duration::from_millis(500);
const MIDDLE: u64 = 4;
/// Requests after which the API server has served all that it had received before.
const LATER_REQUESTS: usize = 50;

crate::on_both_servers!(killed_api_server_causes_no_extra_pods, killed_manager_causes_no_extra_pods);

async fn killed_api_server_causes_no_extra_pods(mut cluster: Cluster) {
    let manager = cluster.manager("manager", &["--leader-elect=false"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", MIDDLE).await;
    assert!(!cluster.is_rolled_out("web").await, "the rollout has completed");
    cluster.kill_server().await;
    // Wait until the manager has detected it.
    manager.until_logged("; retrying").await;
    cluster.start_server().await;
    cluster.until_rolled_out("web").await;
    // Requests that took effect without a response are retried with the same names.
    assert_no_extra_pods(&mut cluster).await;
    assert_eq!(manager.terminate().await, Some(0));
}

async fn killed_manager_causes_no_extra_pods(mut cluster: Cluster) {
    let first = cluster.manager("first", &["--leader-elect=false"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", MIDDLE).await;
    assert!(!cluster.is_rolled_out("web").await, "the rollout has completed");
    // A create that is performed after the next manager has listed the pods would be an extra pod. These requests ensure
    // that the API server has performed all earlier ones.
    first.signal(Signal::Stop);
    for at in 0..LATER_REQUESTS {
        let name = format!("later-{at}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        cluster.post("/api/v1/namespaces/default/configmaps", &map).await.unwrap();
    }
    first.kill().await;
    let _second = cluster.manager("second", &["--leader-elect=false"]).await;
    cluster.until_rolled_out("web").await;
    assert_no_extra_pods(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_etcd_causes_no_extra_pods() {
    let Some(mut cluster) = Cluster::real().await else { return };
    let _manager = cluster.manager("manager", &["--leader-elect=false"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", MIDDLE).await;
    assert!(!cluster.is_rolled_out("web").await, "the rollout has completed");
    let etcd = |signal| cluster.control_plane().etcd().unwrap().signal(signal);
    etcd(Signal::Stop);
    // Long enough to delay all requests, and shorter than the API server's request timeout, after which the outcome of a
    // request would be unknown.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held-up"}});
    let write = cluster.post("/api/v1/namespaces/default/configmaps", &map);
    assert!(timeout(ETCD_STOP, write).await.is_err(), "the API server does not depend on etcd");
    etcd(Signal::Continue);
    cluster.until_rolled_out("web").await;
    assert_no_extra_pods(&mut cluster).await;
}

/// Asserts after a completed rollout that each template had exactly its pods, and that the surge was not exceeded.
pub(crate) async fn assert_no_extra_pods(cluster: &mut Cluster) {
    sleep(AUDIT_LAG).await;
    let created = cluster.created("web");
    let (templates, all) = (created.len(), created.values().sum::<usize>());
    assert!(templates == 2 && all <= 2 * REPLICAS, "{created:?}");
    assert_eq!(cluster.pods("web", "image:2").await.len(), REPLICAS);
    let total = cluster.total_pods("web");
    assert_eq!(total, 2 * REPLICAS, "total number of pods");
    let most = cluster.max_replicas("web");
    assert!(most <= REPLICAS as u64 + 1, "{most} pods exceed the surge of one");
}
