//! Both operators under the same faults.

use std::time::Duration;

use kcm::prelude::*;
use pod_pool::{on_kube_runtime::PodReads, pool::PodPool};

use crate::{
    cluster::{Cluster, Operator},
    faults::delete_unseen,
    readme::{check_table, number},
};

const PODS: u32 = 200;

const MINUTE: Duration = Duration::from_secs(60);

/// Pods that are deleted while the watch is down.
const UNSEEN: usize = 3;

#[derive(Debug, Default)]
struct Outcome {
    created: usize,
    most: usize,
    /// Pods that were not adopted.
    orphans: usize,
    /// Deletions after which no pod was created within three minutes.
    missed: usize,
    /// Writes in an hour at rest.
    writes: usize,
    requests: usize,
    /// Pods and reservations after the deletion of the pool.
    left: usize,
}

/// The life of a pool of 500 pods.
async fn run(operator: Operator) -> Outcome {
    let cluster = Cluster::new().await;
    let mut outcome = Outcome::default();
    for name in ["a", "b", "c"] {
        cluster.create_orphan(name).await;
    }
    let running = cluster.start(operator);
    cluster.env.advance(Duration::from_secs(1)).await;

    // Creation: watches of pods are 3 s late, requests fail, answers are lost, and the operator crashes.
    cluster.lag.set(Duration::from_secs(3));
    let faults = [
        "POST /api/v1/**/pods delay=20ms",
        "POST /api/v1/**/pods 409 every=50",
        "POST /api/v1/**/pods late:0s every=30",
        "PATCH /apis/example.org/** 409 every=5",
    ];
    let faults = faults.map(|fault| cluster.env.fault(fault));
    cluster.create_pool(PODS).await;
    let created = || cluster.history.lock().unwrap().created;
    cluster.env.within(MINUTE, "pods are created", async || created() >= PODS as usize / 4).await;
    running.kill().await;
    assert!(created() < PODS as usize);
    let _running = cluster.start(operator);
    cluster.env.within(2 * MINUTE, "all pods are created", async || created() >= PODS as usize).await;
    cluster.env.advance(Duration::from_secs(5)).await;
    cluster.lag.set(Duration::ZERO);
    for replicas in [PODS, PODS / 5, PODS * 4 / 5] {
        cluster.scale(replicas);
        cluster.settles(replicas).await;
    }
    outcome.orphans = cluster.pods().iter().filter(|pod| is_orphan(pod)).count();
    faults.iter().for_each(kcm_testing::FaultHandle::remove);

    // Deletions while the watch is down.
    for _ in 0..UNSEEN {
        delete_unseen(&cluster).await;
        cluster.env.advance(2 * MINUTE).await;
        outcome.missed += usize::from(cluster.pods().len() < PODS as usize * 4 / 5);
        cluster
            .env
            .within(20 * MINUTE, "the pod is replaced", async || {
                cluster.pods().len() == PODS as usize * 4 / 5
            })
            .await;
    }
    cluster.settles(PODS * 4 / 5).await;

    // An hour at rest.
    cluster.env.advance(MINUTE).await;
    let before = cluster.requests().len();
    cluster.env.advance(60 * MINUTE).await;
    let rest = cluster.requests().split_off(before);
    outcome.writes = rest.iter().filter(|request| !matches!(request.verb, "get" | "list")).count();

    cluster.env.api::<PodPool>().delete("web", &DeleteOptions::default()).await.unwrap();
    cluster.env.advance(10 * MINUTE).await;
    outcome.left = cluster.pods().len() + cluster.reservations.seats().len();
    outcome.requests = cluster.requests().len();
    let history = cluster.history.lock().unwrap();
    (outcome.created, outcome.most) = (history.created, history.most);
    outcome
}

fn is_orphan(pod: &kcm_apiserver::Object) -> bool {
    pod.value()["metadata"].get("ownerReferences").is_none()
}

/// Compares the column of `kcm`. With `UPDATE_README=1`, all operators run, for minutes: the back-off of kube-runtime is random.
#[tokio::test(start_paused = true)]
async fn table() {
    let mut outcomes = vec![run(Operator::Kcm).await];
    let kcm = &outcomes[0];
    assert_eq!((kcm.most, kcm.missed, kcm.writes, kcm.left), (PODS as usize, 0, 0, 0));
    if std::env::var_os("UPDATE_README").is_some() {
        outcomes.push(run(Operator::KubeRuntime(PodReads::Cache)).await);
        outcomes.push(run(Operator::KubeRuntime(PodReads::List)).await);
    }
    let row = |text: &str, value: fn(&Outcome) -> usize| {
        let values = outcomes.iter().map(|outcome| number(value(outcome)));
        std::iter::once(text.to_owned()).chain(values).collect::<Vec<_>>()
    };
    let mut heading = ["", "`kcm`", "kube-runtime, store", "kube-runtime, lists"].map(str::to_owned).to_vec();
    heading.truncate(1 + outcomes.len());
    check_table(
        "comparison",
        2,
        &[
            heading,
            row("pods created", |outcome| outcome.created),
            row("most pods at once", |outcome| outcome.most),
            row("orphans that were not adopted, of 3", |outcome| outcome.orphans),
            row("missed deletions, of 3", |outcome| outcome.missed),
            row("writes in an hour at rest", |outcome| outcome.writes),
            row("pods and reservations left by the deletion of the pool", |outcome| outcome.left),
            row("requests, without watches and those for the Lease", |outcome| outcome.requests),
        ],
    );
}
