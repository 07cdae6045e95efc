//! What a leader and a standby say of themselves at the secure port.

use std::net::TcpListener;

use crate::cluster::{Cluster, Manager};

const MANAGER: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

/// A manager with a port of its own, and a certificate of its own making in a directory of its own.
fn with_port(cluster: &Cluster, user: &str) -> (Manager, u16) {
    // Free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let flags = [
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", cluster.path(&format!("{user}-certificates")).display()),
        "--authorization-always-allow-paths=/healthz,/readyz,/metrics,/metrics/slis".to_owned(),
    ];
    (cluster.manager_with(MANAGER, user, &flags), port)
}

#[test]
fn standby_serves_as_the_leader_does_and_says_that_it_does_not_lead() {
    let mut cluster = Cluster::start();
    let (_a, leader) = with_port(&cluster, "a");
    cluster.wait_for_leader("a");
    cluster.deploy("web", 1);
    cluster.wait_for_pod_of("a");
    let (_b, standby) = with_port(&cluster, "b");
    cluster.wait_for_standby("b");
    let ask = |user: &str, port, path: &str| {
        let certificate = cluster.path(&format!("{user}-certificates/kube-controller-manager.crt"));
        cluster.ask(port, &certificate, path)
    };
    let health = |user, port| ask(user, port, "/healthz?verbose").unwrap();
    let election = "[+]leaderElection ok\n";
    let controllers = "[+]deployment-controller ok\n[+]replicaset-controller ok\n";
    assert_eq!(health("a", leader), format!("{election}{controllers}healthz check passed\n"));
    assert_eq!(health("b", standby), format!("{election}healthz check passed\n"));

    for (user, port) in [("a", leader), ("b", standby)] {
        // Its caches may not have synced yet.
        cluster.until(&format!("{user} is ready"), || ask(user, port, "/readyz").is_ok());
        let ready = ask(user, port, "/readyz?verbose").unwrap();
        assert_eq!(ready, "[+]informer-sync ok\nreadyz check passed\n", "{user}");
    }

    let leads = |user, port, leads: u8| {
        let metrics = ask(user, port, "/metrics").unwrap();
        let line = format!("leader_election_master_status{{name=\"kube-controller-manager\"}} {leads}\n");
        assert!(metrics.contains(&line), "{user}: {metrics}");
        assert_eq!(kcm_metrics::lint(&metrics), [], "{user}");
        metrics
    };
    let metrics = leads("a", leader, 1);
    assert!(metrics.contains("workqueue_adds_total{name=\"replicaset\"}"), "{metrics}");
    // As upstream's standby, which has no controllers yet.
    assert!(!leads("b", standby, 0).contains("workqueue_adds_total{"));
    for (user, port) in [("a", leader), ("b", standby)] {
        assert_eq!(kcm_metrics::lint(&ask(user, port, "/metrics/slis").unwrap()), [], "{user}");
        assert_eq!(ask(user, port, "/configz").unwrap_err().code(), Some(403), "{user}");
    }
}
