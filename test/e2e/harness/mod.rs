//! What the tests of the whole are made of: clusters, managers and a kubelet.

mod cluster;
mod embedded;
mod kubelet;
mod manager;
mod skip;

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

pub(crate) use self::{
    cluster::Cluster,
    manager::{Manager, theirs},
    skip::{assets, skipped},
};

/// Longer than anything takes on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often programs are looked at. They cannot be waited for but by looking.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until `done`; fails, and says what was waited for, when it has lost patience.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !done().await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
        panic!("waited for {PATIENCE:?} in vain until {what}");
    }
}
