//! A cluster changes hands in the middle of a rollout, from upstream's manager to ours and back.

use crate::{
    harness::{Cluster, theirs},
    restarts::assert_no_pod_was_made_in_vain,
};

const REPLICAS: usize = 10;
const ALONE: &[&str] = &["--leader-elect=false"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollout_begun_by_upstreams_manager_is_finished_by_ours() {
    let Some(program) = theirs() else { return };
    let Some(mut cluster) = Cluster::real().await else { return };
    let theirs = cluster.their_manager("theirs", &program, ALONE).await;
    let (settled, new) = begin_a_rollout(&cluster).await;
    theirs.terminate().await;
    let _ours = cluster.manager("ours", ALONE).await;
    assert_finished_without_a_restart(&mut cluster, &settled, &new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollout_begun_by_ours_is_finished_by_upstreams_manager() {
    let Some(program) = theirs() else { return };
    let Some(mut cluster) = Cluster::real().await else { return };
    let ours = cluster.manager("ours", ALONE).await;
    let (settled, new) = begin_a_rollout(&cluster).await;
    assert_eq!(ours.terminate().await, Some(0));
    let _theirs = cluster.their_manager("theirs", &program, ALONE).await;
    assert_finished_without_a_restart(&mut cluster, &settled, &new).await;
}

type Uids = std::collections::BTreeSet<String>;

/// Leaves a rollout half done; gives the pods of a Deployment that is settled, and of the new template of the other.
async fn begin_a_rollout(cluster: &Cluster) -> (Uids, Uids) {
    cluster.deploy("settled", 3).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("settled").await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", 4).await;
    assert!(!cluster.is_rolled_out("web").await, "the middle of the rollout was missed");
    (cluster.pods("settled", "image:1").await, cluster.pods("web", "image:2").await)
}

async fn assert_finished_without_a_restart(cluster: &mut Cluster, settled: &Uids, new: &Uids) {
    cluster.until_rolled_out("web").await;
    let end = cluster.pods("web", "image:2").await;
    assert!(new.is_subset(&end), "pods of the new template were made anew");
    assert_eq!(cluster.pods("settled", "image:1").await, *settled, "nobody had asked for that");
    assert_no_pod_was_made_in_vain(cluster).await;
}
