//! Leader with slow writes.

use kcm_apiserver::{Faults, Resource};

use crate::binary::cluster::{Cluster, Entry};

const CREATES: u32 = 500;

/// Simulates slow admission webhooks: the API server, with 100 streams per connection, responds to each create after 30 s.
#[test]
fn lease_is_renewed_during_500_slow_creates() {
    let faults = Faults::new(["POST /api/v1/namespaces/default/pods delay=30s".parse().unwrap()]);
    let in_progress = || faults.applied()[0];
    let mut cluster = Cluster::with_faults(faults.clone());
    let flags = [
        "--secure-port=0",
        "--concurrent-replicaset-syncs=500",
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
        "--leader-elect-lease-duration=15s",
        "--leader-elect-renew-deadline=10s",
        "--leader-elect-retry-period=250ms",
        "-v=0",
    ];
    let manager =
        cluster.manager_with(env!("CARGO_BIN_EXE_kube-controller-manager"), "a", &flags.map(str::to_owned));
    cluster.wait_for_leader("a");
    for number in 0..CREATES {
        cluster.create(Resource::REPLICA_SETS, "ReplicaSet", &format!("web-{number}"), 1);
    }
    let is_renewal = |entry: &Entry| entry.resource == "leases" && entry.is_write();
    let start = cluster.now();
    while in_progress() < u64::from(CREATES) {
        cluster.wait_for("a renewal before all creates are in progress", is_renewal);
    }
    let mut last = cluster.now();
    println!("{CREATES} creates in progress after {:?}", last - start);
    for _ in 0..8 {
        let renewed = cluster.wait_for("a renewal", is_renewal);
        println!("renewed after {:?}", renewed.saturating_sub(last));
        last = renewed;
    }
    assert_eq!(in_progress(), u64::from(CREATES), "no create was retried");
    let log = manager.log();
    assert!(!log.contains("lost"), "{log}");
}
