//! A leader whose writes take long.

use kcm_apiserver::{Faults, Resource};

use crate::cluster::{Cluster, Entry};

const CREATES: u32 = 500;

/// Slow admission webhooks: the server, which allows 100 streams on a connection, answers each create after 30 s.
#[test]
fn lease_is_renewed_while_500_creates_take_30_s() {
    let faults = Faults::new(["POST /api/v1/namespaces/default/pods delay=30s".parse().unwrap()]);
    let under_way = || faults.applied()[0];
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
    let began = cluster.now();
    while under_way() < u64::from(CREATES) {
        cluster.wait_for("a renewal before all creates are under way", is_renewal);
    }
    let mut last = cluster.now();
    println!("{CREATES} creates under way after {:?}", last - began);
    for _ in 0..8 {
        let renewed = cluster.wait_for("a renewal", is_renewal);
        println!("renewed after {:?}", renewed.saturating_sub(last));
        last = renewed;
    }
    assert_eq!(under_way(), u64::from(CREATES), "none was sent twice");
    let log = manager.log();
    assert!(!log.contains("lost"), "{log}");
}
