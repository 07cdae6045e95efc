//! Secure ports of a leader and a standby.

use crate::binary::cluster::{Cluster, Manager};

const MANAGER: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

/// Manager with a secure port and a generated certificate.
fn with_port(cluster: &Cluster, user: &str, lease: &str) -> (Manager, u16) {
    let port = kcm_testkit::unused_address().port();
    let flags = [
        format!("--leader-elect-resource-name={lease}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", cluster.path(&format!("{user}-certificates")).display()),
        "--authorization-always-allow-paths=/healthz,/readyz,/metrics,/metrics/slis".to_owned(),
    ];
    (cluster.manager_with(MANAGER, user, &flags), port)
}

#[test]
fn standby_serves_the_same_paths() {
    let mut cluster = Cluster::start();
    let (_a, leader) = with_port(&cluster, "a", "kube-controller-manager-rs");
    cluster.wait_for_leader("a");
    cluster.deploy("web", 1);
    cluster.wait_for_pod_of("a");
    let (_b, standby) = with_port(&cluster, "b", "kube-controller-manager-rs");
    cluster.wait_for_standby("b");
    let get = |user: &str, port, path: &str| {
        let certificate = cluster.path(&format!("{user}-certificates/kube-controller-manager.crt"));
        cluster.get(port, &certificate, path)
    };
    let health = |user, port| get(user, port, "/healthz?verbose").unwrap();
    let election = "[+]leaderElection ok\n";
    let controllers = "[+]deployment-controller ok\n[+]replicaset-controller ok\n";
    assert_eq!(health("a", leader), format!("{election}{controllers}healthz check passed\n"));
    assert_eq!(health("b", standby), format!("{election}healthz check passed\n"));

    for (user, port) in [("a", leader), ("b", standby)] {
        // The caches may not have synced yet.
        cluster.until(&format!("{user} is ready"), || get(user, port, "/readyz").is_ok());
        let ready = get(user, port, "/readyz?verbose").unwrap();
        assert_eq!(ready, "[+]informer-sync ok\nreadyz check passed\n", "{user}");
    }

    let leads = |user, port, leads: u8| {
        let metrics = get(user, port, "/metrics").unwrap();
        let line = format!("leader_election_master_status{{name=\"kube-controller-manager-rs\"}} {leads}\n");
        assert!(metrics.contains(&line), "{user}: {metrics}");
        assert_eq!(kcm_testkit::lint(&metrics), [], "{user}");
        metrics
    };
    let metrics = leads("a", leader, 1);
    assert!(metrics.contains("workqueue_adds_total{name=\"replicaset\"}"), "{metrics}");
    // A standby has no controllers, as upstream.
    assert!(!leads("b", standby, 0).contains("workqueue_adds_total{"));
    for (user, port) in [("a", leader), ("b", standby)] {
        assert_eq!(kcm_testkit::lint(&get(user, port, "/metrics/slis").unwrap()), [], "{user}");
        assert_eq!(get(user, port, "/configz").unwrap_err().code(), Some(403), "{user}");
    }
}

/// A process that leads in place of upstream's manager reports the controllers that no process runs.
#[test]
fn upstreams_lease_is_reported() {
    let mut cluster = Cluster::start();
    let (manager, port) = with_port(&cluster, "a", "kube-controller-manager");
    cluster.wait_for_leader("a");
    let get = |path: &str| {
        cluster.get(port, &cluster.path("a-certificates/kube-controller-manager.crt"), path).unwrap()
    };
    let log = manager.log();
    let line = log.lines().find(|line| line.contains("no process runs while this process leads")).unwrap();
    assert!(
        line.starts_with('E') && line.contains("job-controller") && line.contains("namespace-controller")
    );
    let metric = "kcm_leader_election_unserved_controllers{name=\"kube-controller-manager\"} ";
    let value = |text: String| text.lines().find_map(|line| line.strip_prefix(metric).map(str::to_owned));
    cluster.until("the metric is exported", || value(get("/metrics")).is_some_and(|count| count != "0"));
}
