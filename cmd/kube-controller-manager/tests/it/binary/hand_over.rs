//! Two processes with one lease.

use std::{env, time::Duration};

use crate::binary::cluster::{Cluster, Manager};

const THIS: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

/// Time limit for a takeover without a release: lease duration, retry period with jitter, and time for a slow machine.
const TAKEOVER: Duration = Duration::from_millis(3000 + 1100 + 2000);

/// Time until the first write of upstream's manager as leader: it lists all objects first.
const UPSTREAM_START: Duration = Duration::from_secs(10);

/// An idle leader that has created pods, and a standby.
fn pair(leader: &str, standby: &str) -> (Cluster, Manager, Manager) {
    let mut cluster = Cluster::start();
    let a = cluster.manager(leader, "a");
    cluster.wait_for_leader("a");
    let b = cluster.manager(standby, "b");
    cluster.wait_for_standby("b");
    cluster.deploy("web", 2);
    cluster.wait_for_pod_of("a");
    cluster.wait_until_idle(&a);
    (cluster, a, b)
}

/// Time without a leader, and time without writes.
fn gaps(cluster: &mut Cluster, since: Duration) -> (Duration, Duration) {
    let leader = cluster.wait_for_leader("b") - since;
    cluster.deploy("api", 1);
    (leader, cluster.wait_for_pod_of("b") - since)
}

#[test]
fn sigterm_of_the_leader_releases_the_lease() {
    let (mut cluster, mut a, _b) = pair(THIS, THIS);
    let since = cluster.now();
    a.signal("TERM");
    let (leader, write) = gaps(&mut cluster, since);
    println!("SIGTERM: new leader after {leader:?}, first write after {write:?}");
    assert!(leader < Duration::from_secs(1) && write < Duration::from_secs(3), "{leader:?}, {write:?}");
    assert_eq!(a.wait().code(), Some(0), "{}", a.log());
    cluster.assert_single_writer();
}

#[test]
fn sigterm_keeps_the_lease_if_the_gate_is_disabled() {
    const GATE: &str = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=false";
    let mut cluster = Cluster::start();
    let mut a = cluster.manager_with(THIS, "a", &["--secure-port=0".to_owned(), GATE.to_owned()]);
    cluster.wait_for_leader("a");
    let _b = cluster.manager(THIS, "b");
    cluster.wait_for_standby("b");
    let since = cluster.now();
    a.signal("TERM");
    assert_eq!(a.wait().code(), Some(0), "{}", a.log());
    let leader = cluster.wait_for_leader("b") - since;
    assert!(leader > Duration::from_secs(2), "{leader:?} is shorter than the lease");
}

#[test]
fn killed_leader_is_replaced_when_its_lease_expires() {
    let (mut cluster, a, _b) = pair(THIS, THIS);
    let since = cluster.now();
    a.signal("KILL");
    let (leader, write) = gaps(&mut cluster, since);
    println!("kill -9: new leader after {leader:?}, first write after {write:?}");
    assert!(leader > Duration::from_secs(2) && leader < TAKEOVER, "{leader:?}");
    cluster.assert_single_writer();
}

#[test]
fn stopped_leader_exits_without_writes_when_continued() {
    let (mut cluster, mut a, _b) = pair(THIS, THIS);
    let since = cluster.now();
    a.signal("STOP");
    let (leader, write) = gaps(&mut cluster, since);
    println!("SIGSTOP: new leader after {leader:?}, first write after {write:?}");
    a.signal("CONT");
    assert_eq!(a.wait().code(), Some(1), "{}", a.log());
    let log = a.log();
    assert!(log.lines().last().unwrap().contains("leaderelection lost/stopped"), "{log}");
    cluster.assert_single_writer();
}

/// The process is stopped with writes in its buffers.
#[test]
fn stopped_leader_drops_pending_writes_when_continued() {
    let mut cluster = Cluster::start();
    let flags = ["--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000"].map(str::to_owned);
    let mut a = cluster.manager_with(THIS, "a", &flags);
    cluster.wait_for_leader("a");
    let _b = cluster.manager(THIS, "b");
    cluster.wait_for_standby("b");
    cluster.deploy("web", 500);
    for _ in 0..50 {
        cluster.wait_for_pod_of("a");
    }
    a.signal("STOP");
    cluster.wait_for_leader("b");
    cluster.wait_for_pod_of("b");
    a.signal("CONT");
    assert_eq!(a.wait().code(), Some(1), "{}", a.log());
    cluster.assert_single_writer();
}

#[test]
fn sigterm_of_the_standby_does_not_change_the_lease() {
    let (mut cluster, _a, mut b) = pair(THIS, THIS);
    b.signal("TERM");
    assert_eq!(b.wait().code(), Some(0), "{}", b.log());
    cluster.deploy("api", 1);
    cluster.wait_for_pod_of("a");
    cluster.assert_single_writer();
}

/// This manager and upstream's succeed each other. Upstream's does not release the lease on SIGTERM.
#[test]
fn takes_turns_with_upstreams_manager() {
    let Some(upstream) = env::var("KUBE_CONTROLLER_MANAGER").ok().filter(|program| !program.is_empty())
    else {
        eprintln!("SKIPPED: leader election with upstream's manager (no KUBE_CONTROLLER_MANAGER)");
        return;
    };
    for signal in ["TERM", "KILL", "STOP"] {
        for (first, second, names) in
            [(THIS, &*upstream, "this, upstream"), (&upstream, THIS, "upstream, this")]
        {
            let (mut cluster, mut a, _b) = pair(first, second);
            let since = cluster.now();
            a.signal(signal);
            let (leader, write) = gaps(&mut cluster, since);
            println!("{names}, SIG{signal}: new leader after {leader:?}, first write after {write:?}");
            // Upstream's standby detects a released lease at its next retry.
            assert!(leader < TAKEOVER && write < TAKEOVER + UPSTREAM_START, "{leader:?}, {write:?}");
            if signal == "STOP" {
                a.signal("CONT");
                assert_eq!(a.wait().code(), Some(1), "{}", a.log());
            }
            cluster.assert_leads_when_writing("b");
            // Upstream's manager can create a pod after SIGCONT, before it detects that it lost the lease.
            if first == THIS || signal != "STOP" {
                cluster.assert_leads_when_writing("a");
            }
        }
    }
}
