//! The API server goes away in the middle of a rollout and comes back.

use kcm_stories::external::Signal;

use serde_json::json;
use tokio::time::{Duration, sleep, timeout};

use crate::harness::Cluster;

const REPLICAS: usize = 10;
const STANDSTILL: Duration = Duration::from_secs(5);
/// Between what a manager does and its being told in the audit log.
const AUDIT_LAG: Duration = Duration::from_millis(500);
const MIDDLE: u64 = 4;
/// Requests after which the API server has served all that it had received before.
const LATER_REQUESTS: usize = 50;

crate::on_both_servers!(
    api_server_killed_in_mid_rollout_costs_no_pod,
    manager_killed_in_mid_rollout_costs_no_pod
);

async fn api_server_killed_in_mid_rollout_costs_no_pod(mut cluster: Cluster) {
    let manager = cluster.manager("manager", &["--leader-elect=false"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", MIDDLE).await;
    assert!(!cluster.is_rolled_out("web").await, "the middle of the rollout was missed");
    cluster.kill_server().await;
    // Long enough for the manager to find out.
    manager.until_it_says("will try again").await;
    cluster.start_server().await;
    cluster.until_rolled_out("web").await;
    // Some requests took effect without a response: they are repeated with the same names.
    assert_no_pod_was_made_in_vain(&mut cluster).await;
    assert_eq!(manager.terminate().await, Some(0));
}

async fn manager_killed_in_mid_rollout_costs_no_pod(mut cluster: Cluster) {
    let first = cluster.manager("first", &["--leader-elect=false"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", MIDDLE).await;
    assert!(!cluster.is_rolled_out("web").await, "the middle of the rollout was missed");
    // A create that is served after the next manager has listed the pods makes one too many. The server completes what it
    // has received before that manager starts.
    first.signal(Signal::Stop);
    for at in 0..LATER_REQUESTS {
        let name = format!("later-{at}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        cluster.post("/api/v1/namespaces/default/configmaps", &map).await.unwrap();
    }
    first.kill().await;
    let _second = cluster.manager("second", &["--leader-elect=false"]).await;
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_that_stands_still_in_mid_rollout_costs_no_pod() {
    let Some(mut cluster) = Cluster::real().await else { return };
    let _manager = cluster.manager("manager", &["--leader-elect=false"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", MIDDLE).await;
    assert!(!cluster.is_rolled_out("web").await, "the middle of the rollout was missed");
    let etcd = |signal| cluster.control_plane().etcd().unwrap().signal(signal);
    etcd(Signal::Stop);
    // Long enough for all that goes on to be held up, and not so long that the server gives up on a request: whether one
    // of those takes effect nobody can know.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held-up"}});
    let write = cluster.post("/api/v1/namespaces/default/configmaps", &map);
    assert!(timeout(STANDSTILL, write).await.is_err(), "the server can do without its etcd");
    etcd(Signal::Continue);
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(&mut cluster).await;
}

/// Of a rollout that was let finish: each template has had as many pods as it needed, and there were never to be too many
/// at once.
pub(crate) async fn assert_no_pod_was_made_in_vain(cluster: &mut Cluster) {
    sleep(AUDIT_LAG).await;
    let created = cluster.created("web");
    let (templates, all) = (created.len(), created.values().sum::<usize>());
    assert!(templates == 2 && all <= 2 * REPLICAS, "{created:?}");
    assert_eq!(cluster.pods("web", "image:2").await.len(), REPLICAS);
    let ever = cluster.pods_ever("web");
    assert_eq!(ever, 2 * REPLICAS, "pods there ever were");
    let most = cluster.most_wanted("web");
    assert!(most <= REPLICAS as u64 + 1, "{most} pods at once are more than the surge of one allows");
}
