//! What the manager watches is too old to be watched on from: it lists anew and goes on.

use kcm_stories::external::Signal;

use crate::{harness::Cluster, restarts::assert_no_pod_was_made_in_vain};

const REPLICAS: usize = 10;

crate::on_both_servers!(manager_that_slept_through_the_history_lists_anew);

/// A server that has been started again has no history, and what came after the manager's last event is told to nobody.
async fn manager_that_slept_through_the_history_lists_anew(mut cluster: Cluster) {
    let manager = cluster.manager("manager", &["--leader-elect=false", "-v=6"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", 4).await;
    manager.signal(Signal::Stop);
    cluster.kill_server().await;
    cluster.start_server().await;
    // Where the watches ended is history now. The kubelet goes on, and so do the pods that are asked to go.
    cluster.deploy("other", 1).await;
    let before = manager.log().len();
    manager.signal(Signal::Continue);
    cluster.until_rolled_out("web").await;
    cluster.until_rolled_out("other").await;
    let log = manager.log();
    assert!(log[before..].contains("relist=true"), "no watch had expired:\n{}", &log[before..]);
    assert_eq!(cluster.created("other").into_values().sum::<usize>(), 1);
    assert_no_pod_was_made_in_vain(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_break_and_expire_all_the_time_cost_no_pod() {
    // Not so few events that a watch could not tell of all pods there are.
    let faults = ["WATCH /** 410 skip=3 every=2", "WATCH /** cut events=30"];
    let mut cluster = Cluster::embedded_with(&faults).await;
    let manager = cluster.manager("manager", &["--leader-elect=false", "-v=6"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(&mut cluster).await;
    let log = manager.log();
    assert!(log.contains("relist=true"), "no watch has expired:\n{log}");
}
