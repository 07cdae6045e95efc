//! Takeovers between upstream's manager and this one during a rollout.

use crate::{
    harness::{Cluster, upstream_program},
    restarts::assert_no_extra_pods,
};

const REPLICAS: usize = 10;
const ALONE: &[&str] = &["--leader-elect=false"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completes_rollout_of_upstreams_manager() {
    let Some(program) = upstream_program() else { return };
    let Some(mut cluster) = Cluster::real().await else { return };
    let upstream = cluster.upstream_manager("upstream", &program, ALONE).await;
    let (unchanged, new) = start_rollout(&cluster).await;
    upstream.terminate().await;
    let _manager = cluster.manager("this", ALONE).await;
    assert_completed_without_replacements(&mut cluster, &unchanged, &new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_manager_completes_rollout() {
    let Some(program) = upstream_program() else { return };
    let Some(mut cluster) = Cluster::real().await else { return };
    let manager = cluster.manager("this", ALONE).await;
    let (unchanged, new) = start_rollout(&cluster).await;
    assert_eq!(manager.terminate().await, Some(0));
    let _upstream = cluster.upstream_manager("upstream", &program, ALONE).await;
    assert_completed_without_replacements(&mut cluster, &unchanged, &new).await;
}

type Uids = std::collections::BTreeSet<String>;

/// Starts a rollout. Returns the pods of a Deployment without changes, and the updated pods of the other.
async fn start_rollout(cluster: &Cluster) -> (Uids, Uids) {
    cluster.deploy("unchanged", 3).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("unchanged").await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", 4).await;
    assert!(!cluster.is_rolled_out("web").await, "the rollout has completed");
    (cluster.pods("unchanged", "image:1").await, cluster.pods("web", "image:2").await)
}

async fn assert_completed_without_replacements(cluster: &mut Cluster, unchanged: &Uids, new: &Uids) {
    cluster.until_rolled_out("web").await;
    let end = cluster.pods("web", "image:2").await;
    assert!(new.is_subset(&end), "updated pods were replaced");
    assert_eq!(cluster.pods("unchanged", "image:1").await, *unchanged, "unchanged Deployment");
    assert_no_extra_pods(cluster).await;
}
