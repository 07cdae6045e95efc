//! Relists after the resource version of a watch has expired.

use kcm_apiserver::Faults;
use kcm_stories::external::Signal;

use crate::{harness::Cluster, restarts::assert_no_extra_pods};

const REPLICAS: usize = 10;

crate::on_both_servers!(stopped_manager_relists_after_expiry);

/// A restarted API server has no history, so events since the manager's last event are lost.
async fn stopped_manager_relists_after_expiry(mut cluster: Cluster) {
    let manager = cluster.manager("manager", &["--leader-elect=false", "-v=6"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_updated("web", 4).await;
    manager.signal(Signal::Stop);
    cluster.kill_server().await;
    cluster.start_server().await;
    // The watches cannot be resumed. Meanwhile pods start and terminate.
    cluster.deploy("other", 1).await;
    let before = manager.log().len();
    manager.signal(Signal::Continue);
    cluster.until_rolled_out("web").await;
    cluster.until_rolled_out("other").await;
    let log = manager.log();
    assert!(log[before..].contains("relist=true"), "no watch expired:\n{}", &log[before..]);
    assert_eq!(cluster.created("other").into_values().sum::<usize>(), 1);
    assert_no_extra_pods(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_watches_cause_no_extra_pods() {
    // More events than the initial events of a watch.
    let faults = ["WATCH /** 410 skip=3 every=2", "WATCH /** cut events=30"];
    let faults = Faults::new(faults.map(|rule| rule.parse().unwrap()));
    let mut cluster = Cluster::embedded_with(faults).await;
    let manager = cluster.manager("manager", &["--leader-elect=false", "-v=6"]).await;
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_rolled_out("web").await;
    assert_no_extra_pods(&mut cluster).await;
    let log = manager.log();
    assert!(log.contains("relist=true"), "no watch expired:\n{log}");
}
