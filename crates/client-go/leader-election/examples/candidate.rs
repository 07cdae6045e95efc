//! Two candidates in one process, a hand-over, and a check of the gate before each write.
//!
//! `cargo run -p kcm-leader-election --example candidate`

use std::{error::Error, sync::Arc, time::Duration};

use kcm_api::ObjectKey;
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_leader_election::{
    ElectionOutcome, LeaderElectionConfig, LeaderElector, Leadership, MemoryLock, identity,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Runs until it is stopped or the leadership is lost. In place of controllers.
async fn lead(who: String, leadership: Leadership, stop: CancellationToken) -> u32 {
    let mut written = 0;
    while !stop.is_cancelled() && leadership.is_leader() {
        written += 1;
        println!("{who} writes");
        tokio::select! {
            () = stop.cancelled() => {}
            () = leadership.lost().cancelled() => {}
            () = sleep(Duration::from_millis(200)) => {}
        }
    }
    // The Lease is renewed until this returns, and released after it.
    written
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    // In a cluster, `LeaseClient` of kcm-controller-manager.
    let lock = Arc::new(MemoryLock::new());
    let elector = |host: &str| {
        let lease = ObjectKey::new("kube-system", "example-controller");
        LeaderElector::new(LeaderElectionConfig {
            release_on_cancel: true,
            unique_identity: true,
            ..LeaderElectionConfig::new(
                lease,
                identity(host, &*random),
                Arc::clone(&lock) as _,
                Arc::clone(&clock),
                Arc::clone(&random),
            )
        })
    };

    let mut leader = elector("node-a")?;
    let mut standby = elector("node-b")?;
    // In a cluster, a watch on the Lease calls `trigger.lease_changed`.
    let (trigger, gate) = (standby.acquire_trigger(), standby.gate());

    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let a = tokio::spawn({
        let stop = stop_a.clone();
        async move { leader.run(&stop, |leadership| lead("node-a".to_owned(), leadership, stop.clone())).await }
    });
    sleep(Duration::from_millis(100)).await;
    let b = tokio::spawn({
        let stop = stop_b.clone();
        async move { standby.run(&stop, |leadership| lead("node-b".to_owned(), leadership, stop.clone())).await }
    });

    sleep(Duration::from_secs(1)).await;
    println!("node-b leads: {}", gate.is_leader());
    stop_a.cancel();
    if let ElectionOutcome::Finished(written) = a.await? {
        println!("node-a wrote {written} times and released the lease");
    }
    trigger.lease_changed(lock.lease().as_ref());
    sleep(Duration::from_secs(1)).await;
    println!("node-b leads: {}", gate.is_leader());
    stop_b.cancel();
    println!("node-b: {:?}", b.await?);
    Ok(())
}
