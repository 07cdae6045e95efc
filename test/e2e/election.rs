//! Leader election between several managers.

use kcm_stories::external::Signal;

use crate::{
    harness::{Cluster, Manager, upstream_program},
    restarts::assert_no_extra_pods,
};

const REPLICAS: usize = 10;

/// A short lease that a leader on a busy machine does not lose.
const SHORT_LEASE: [&str; 4] = [
    // Upstream's Lease, because some tests run upstream's manager as the other candidate.
    "--leader-elect-resource-name=kube-controller-manager",
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
];

/// A lease that does not expire during a test.
const LONG_LEASE: [&str; 4] = [
    "--leader-elect-resource-name=kube-controller-manager",
    "--leader-elect-lease-duration=600s",
    "--leader-elect-renew-deadline=400s",
    "--leader-elect-retry-period=1s",
];

/// Log text of a new leader, also of upstream's manager.
const ACQUIRED: &str = "uccessfully acquired lease";
const ATTEMPTING: &str = "ttempting to acquire leader lease";

crate::on_both_servers!(
    killed_leader_is_replaced_when_its_lease_expires,
    terminated_leader_is_replaced_immediately,
    leader_exits_if_it_cannot_renew_its_lease,
);

async fn killed_leader_is_replaced_when_its_lease_expires(mut cluster: Cluster) {
    let first = leader(&cluster, "first", &SHORT_LEASE).await;
    let second = standby(&cluster, "second", &SHORT_LEASE).await;
    start_rollout(&cluster).await;
    first.kill().await;
    cluster.until_rolled_out("web").await;
    assert!(second.log().contains(ACQUIRED));
    assert_no_extra_pods(&mut cluster).await;
}

async fn terminated_leader_is_replaced_immediately(mut cluster: Cluster) {
    let first = leader(&cluster, "first", &LONG_LEASE).await;
    let second = standby(&cluster, "second", &LONG_LEASE).await;
    start_rollout(&cluster).await;
    assert_eq!(first.terminate().await, Some(0));
    // The lease has not expired.
    second.until_logged(ACQUIRED).await;
    cluster.until_rolled_out("web").await;
    assert_no_extra_pods(&mut cluster).await;
    assert_eq!(second.terminate().await, Some(0));
}

/// A leader that cannot renew its lease exits, because another process may be the leader.
async fn leader_exits_if_it_cannot_renew_its_lease(mut cluster: Cluster) {
    let first = leader(&cluster, "first", &SHORT_LEASE).await;
    let second = standby(&cluster, "second", &SHORT_LEASE).await;
    start_rollout(&cluster).await;
    cluster.kill_server().await;
    first.until_failed("leaderelection lost").await;
    cluster.start_server().await;
    second.until_logged(ACQUIRED).await;
    cluster.until_rolled_out("web").await;
    assert_no_extra_pods(&mut cluster).await;
}

/// The API server is available, and etcd is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_exits_if_etcd_is_stopped() {
    let Some(mut cluster) = Cluster::real().await else { return };
    let first = leader(&cluster, "first", &SHORT_LEASE).await;
    let second = standby(&cluster, "second", &SHORT_LEASE).await;
    start_rollout(&cluster).await;
    cluster.control_plane().etcd().unwrap().signal(Signal::Stop);
    first.until_failed("leaderelection lost").await;
    cluster.control_plane().etcd().unwrap().signal(Signal::Continue);
    second.until_logged(ACQUIRED).await;
    cluster.until_rolled_out("web").await;
    assert_no_extra_pods(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_turns_with_upstreams_manager() {
    let Some(program) = upstream_program() else { return };
    let Some(mut cluster) = Cluster::real().await else { return };
    let upstream = async |name: &str| cluster.upstream_manager(name, &program, &SHORT_LEASE).await;
    let first = upstream("upstream").await;
    first.until_logged(ACQUIRED).await;
    let second = standby(&cluster, "this", &SHORT_LEASE).await;
    start_rollout(&cluster).await;
    first.kill().await;
    second.until_logged(ACQUIRED).await;
    let third = upstream("upstream-again").await;
    third.until_logged(ATTEMPTING).await;
    assert_eq!(second.terminate().await, Some(0));
    third.until_logged(ACQUIRED).await;
    cluster.until_rolled_out("web").await;
    assert_no_extra_pods(&mut cluster).await;
}

async fn leader(cluster: &Cluster, name: &str, flags: &[&str]) -> Manager {
    let manager = cluster.manager(name, flags).await;
    manager.until_logged(ACQUIRED).await;
    manager
}

async fn standby(cluster: &Cluster, name: &str, flags: &[&str]) -> Manager {
    let manager = cluster.manager(name, flags).await;
    manager.until_logged(ATTEMPTING).await;
    manager
}

async fn start_rollout(cluster: &Cluster) {
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", 3).await;
    assert!(!cluster.is_rolled_out("web").await, "the rollout has completed");
}
