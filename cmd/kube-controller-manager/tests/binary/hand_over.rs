//! Two processes and one lease.

use std::{env, time::Duration};

use crate::cluster::{Cluster, Manager};

const OURS: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

/// The lease's duration, and the most that lies between two looks of a standby, and a slow machine.
const WITHOUT_A_WORD: Duration = Duration::from_millis(3000 + 1100 + 2000);

/// What upstream's manager takes until its first write, once it leads: it lists everything then.
const START: Duration = Duration::from_secs(10);

/// One leads, has created pods and nothing under way; the other stands by.
fn pair(leader: &str, standby: &str) -> (Cluster, Manager, Manager) {
    let mut cluster = Cluster::start();
    let a = cluster.manager(leader, "a");
    cluster.wait_for_leader("a");
    let b = cluster.manager(standby, "b");
    cluster.wait_for_standby("b");
    cluster.deploy("web", 2);
    cluster.wait_for_pod_of("a");
    cluster.wait_for_rest_of(&a);
    (cluster, a, b)
}

/// How long nobody led, and how long nobody worked.
fn gaps(cluster: &mut Cluster, since: Duration) -> (Duration, Duration) {
    let leads = cluster.wait_for_leader("b") - since;
    cluster.deploy("api", 1);
    (leads, cluster.wait_for_pod_of("b") - since)
}

#[test]
fn leader_told_to_terminate_hands_over_at_once() {
    let (mut cluster, mut a, _b) = pair(OURS, OURS);
    let since = cluster.now();
    a.signal("TERM");
    let (leads, works) = gaps(&mut cluster, since);
    println!("SIGTERM: led again after {leads:?}, worked again after {works:?}");
    assert!(leads < Duration::from_secs(1) && works < Duration::from_secs(3), "{leads:?}, {works:?}");
    assert_eq!(a.wait().code(), Some(0), "{}", a.log());
    cluster.assert_never_two_writers();
}

#[test]
fn leader_told_to_terminate_keeps_the_lease_with_the_gate_off() {
    const GATE: &str = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=false";
    let mut cluster = Cluster::start();
    let mut a = cluster.manager_with(OURS, "a", &["--secure-port=0".to_owned(), GATE.to_owned()]);
    cluster.wait_for_leader("a");
    let _b = cluster.manager(OURS, "b");
    cluster.wait_for_standby("b");
    let since = cluster.now();
    a.signal("TERM");
    assert_eq!(a.wait().code(), Some(0), "{}", a.log());
    let leads = cluster.wait_for_leader("b") - since;
    assert!(leads > Duration::from_secs(2), "{leads:?} is shorter than the lease");
}

#[test]
fn leader_that_is_killed_is_replaced_when_its_lease_runs_out() {
    let (mut cluster, a, _b) = pair(OURS, OURS);
    let since = cluster.now();
    a.signal("KILL");
    let (leads, works) = gaps(&mut cluster, since);
    println!("kill -9: led again after {leads:?}, worked again after {works:?}");
    assert!(leads > Duration::from_secs(2) && leads < WITHOUT_A_WORD, "{leads:?}");
    cluster.assert_never_two_writers();
}

#[test]
fn leader_that_is_stopped_ends_when_it_goes_on_and_writes_nothing_more() {
    let (mut cluster, mut a, _b) = pair(OURS, OURS);
    let since = cluster.now();
    a.signal("STOP");
    let (leads, works) = gaps(&mut cluster, since);
    println!("SIGSTOP: led again after {leads:?}, worked again after {works:?}");
    a.signal("CONT");
    assert_eq!(a.wait().code(), Some(1), "{}", a.log());
    let log = a.log();
    assert!(log.lines().last().unwrap().contains("leaderelection lost/stopped"), "{log}");
    cluster.assert_never_two_writers();
}

/// Stopped with writes in all of its buffers.
#[test]
fn leader_that_is_stopped_amid_writes_sends_none_of_them_when_it_goes_on() {
    let mut cluster = Cluster::start();
    let flags = ["--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000"].map(str::to_owned);
    let mut a = cluster.manager_with(OURS, "a", &flags);
    cluster.wait_for_leader("a");
    let _b = cluster.manager(OURS, "b");
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
    cluster.assert_never_two_writers();
}

#[test]
fn standby_told_to_terminate_ends_well_and_leaves_the_lease_alone() {
    let (mut cluster, _a, mut b) = pair(OURS, OURS);
    b.signal("TERM");
    assert_eq!(b.wait().code(), Some(0), "{}", b.log());
    cluster.deploy("api", 1);
    cluster.wait_for_pod_of("a");
    cluster.assert_never_two_writers();
}

/// Ours and upstream's, each after the other, with the lease given back by ours and left by upstream's, which dies
/// of a SIGTERM as of any other.
#[test]
fn upstreams_manager_and_ours_take_turns() {
    let Some(theirs) = env::var("KUBE_CONTROLLER_MANAGER").ok().filter(|program| !program.is_empty()) else {
        eprintln!("SKIPPED: ours and upstream's manager for one lease (no KUBE_CONTROLLER_MANAGER)");
        return;
    };
    for signal in ["TERM", "KILL", "STOP"] {
        for (first, second, names) in
            [(OURS, &*theirs, "ours, upstream's"), (&theirs, OURS, "upstream's, ours")]
        {
            let (mut cluster, mut a, _b) = pair(first, second);
            let since = cluster.now();
            a.signal(signal);
            let (leads, works) = gaps(&mut cluster, since);
            println!("{names}, SIG{signal}: led again after {leads:?}, worked again after {works:?}");
            // Upstream's standby learns of a lease that was given back at its next look.
            assert!(leads < WITHOUT_A_WORD && works < WITHOUT_A_WORD + START, "{leads:?}, {works:?}");
            if signal == "STOP" {
                a.signal("CONT");
                assert_eq!(a.wait().code(), Some(1), "{}", a.log());
            }
            cluster.assert_leads_when_writing("b");
            // Upstream's has been seen to create a pod on waking, before it found that it had lost the lease.
            if first == OURS || signal != "STOP" {
                cluster.assert_leads_when_writing("a");
            }
        }
    }
}
