//! Several managers, one of which leads.

use kcm_stories::external::Signal;

use crate::{
    harness::{Cluster, Manager, theirs},
    restarts::assert_no_pod_was_made_in_vain,
};

const REPLICAS: usize = 10;

/// Short, but not so short that a leader on a busy machine loses its lease.
const QUICK: [&str; 4] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
];

/// So long that a test would lose its patience before such a lease has run out.
const LASTING: [&str; 4] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=600s",
    "--leader-elect-renew-deadline=400s",
    "--leader-elect-retry-period=1s",
];

/// What a manager says that has become the leader, ours and upstream's alike.
const LEADS: &str = "uccessfully acquired lease";
const STANDS_BY: &str = "ttempting to acquire leader lease";

crate::on_both_servers!(
    leader_that_is_killed_is_followed_when_its_lease_has_run_out,
    leader_that_is_told_to_end_is_followed_at_once,
    leader_that_cannot_renew_its_lease_ends,
);

async fn leader_that_is_killed_is_followed_when_its_lease_has_run_out(mut cluster: Cluster) {
    let first = leader(&cluster, "first", &QUICK).await;
    let second = standby(&cluster, "second", &QUICK).await;
    begin_a_rollout(&cluster).await;
    first.kill().await;
    cluster.until_rolled_out("web").await;
    assert!(second.log().contains(LEADS));
    assert_no_pod_was_made_in_vain(&mut cluster).await;
}

async fn leader_that_is_told_to_end_is_followed_at_once(mut cluster: Cluster) {
    let first = leader(&cluster, "first", &LASTING).await;
    let second = standby(&cluster, "second", &LASTING).await;
    begin_a_rollout(&cluster).await;
    assert_eq!(first.terminate().await, Some(0));
    // Well before the lease would have run out.
    second.until_it_says(LEADS).await;
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(&mut cluster).await;
    assert_eq!(second.terminate().await, Some(0));
}

/// Nothing that it began goes on after that, and it does not try to lead again: somebody else may.
async fn leader_that_cannot_renew_its_lease_ends(mut cluster: Cluster) {
    let first = leader(&cluster, "first", &QUICK).await;
    let second = standby(&cluster, "second", &QUICK).await;
    begin_a_rollout(&cluster).await;
    cluster.kill_server().await;
    first.until_it_ends_with("leaderelection lost").await;
    cluster.start_server().await;
    second.until_it_says(LEADS).await;
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(&mut cluster).await;
}

/// The same when the server is there and has nowhere to keep the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_ends_when_etcd_stands_still() {
    let Some(mut cluster) = Cluster::real().await else { return };
    let first = leader(&cluster, "first", &QUICK).await;
    let second = standby(&cluster, "second", &QUICK).await;
    begin_a_rollout(&cluster).await;
    cluster.control_plane().etcd().unwrap().signal(Signal::Stop);
    first.until_it_ends_with("leaderelection lost").await;
    cluster.control_plane().etcd().unwrap().signal(Signal::Continue);
    second.until_it_says(LEADS).await;
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_manager_and_ours_follow_each_other() {
    let Some(program) = theirs() else { return };
    let Some(mut cluster) = Cluster::real().await else { return };
    let their = async |name: &str| cluster.their_manager(name, &program, &QUICK).await;
    let first = their("theirs").await;
    first.until_it_says(LEADS).await;
    let second = standby(&cluster, "ours", &QUICK).await;
    begin_a_rollout(&cluster).await;
    first.kill().await;
    second.until_it_says(LEADS).await;
    let third = their("theirs-again").await;
    third.until_it_says(STANDS_BY).await;
    assert_eq!(second.terminate().await, Some(0));
    third.until_it_says(LEADS).await;
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(&mut cluster).await;
}

async fn leader(cluster: &Cluster, name: &str, flags: &[&str]) -> Manager {
    let manager = cluster.manager(name, flags).await;
    manager.until_it_says(LEADS).await;
    manager
}

async fn standby(cluster: &Cluster, name: &str, flags: &[&str]) -> Manager {
    let manager = cluster.manager(name, flags).await;
    manager.until_it_says(STANDS_BY).await;
    manager
}

async fn begin_a_rollout(cluster: &Cluster) {
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", 3).await;
    assert!(!cluster.is_rolled_out("web").await, "the middle of the rollout was missed");
}
