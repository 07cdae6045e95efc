//! Test harness: clusters, managers and a kubelet.

mod cluster;
mod embedded;
mod kubelet;
mod manager;
mod skip;

use std::time::Duration;

pub(crate) use self::{
    cluster::Cluster,
    manager::{Manager, upstream_program},
    skip::{assets, skipped},
};

/// Time limit of each wait, sufficient for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `done` returns `true`. Panics after [`TIMEOUT`].
pub(crate) async fn until(condition: &str, done: impl AsyncFnMut() -> bool) {
    if !becomes_true(TIMEOUT, done).await {
        panic!("timeout after {TIMEOUT:?} waiting until {condition}");
    }
}

/// Waits until `done` returns `true`. Returns `false` after `limit`.
pub(crate) async fn becomes_true(limit: Duration, mut done: impl AsyncFnMut() -> bool) -> bool {
    let waiting = async {
        while !done().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(limit, waiting).await.is_ok()
}
