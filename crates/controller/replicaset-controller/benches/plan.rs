//! Time to plan a sync of a ReplicaSet with 500 pods on 50 nodes, and to compute its status.
//!
//! `cargo bench -p kcm-replicaset-controller`

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use kcm_api::{Labels, ObjectKey, Phase, Pod, Ready, ReplicaSet, Time};
use kcm_clock::Timestamp;
use kcm_replicaset_controller::{DEFAULT_BURST_REPLICAS, View, calculate_status, plan};
use serde_json::json;

const PODS: usize = 500;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap_or_default()
}

fn pod(number: usize, equal_rank: bool) -> Pod {
    // Pods in pseudo-random order.
    let scattered = (number * 7919 + 13) % PODS;
    let age = if equal_rank { 5000 + scattered } else { 60 << (scattered % 12) };
    let since = Some(Time::from_unix(now().as_second() - i64::try_from(age).unwrap_or(0)));
    Pod {
        key: ObjectKey::new("default", format!("web-7988b68c98-{scattered:05}")),
        uid: uid(scattered).into(),
        resource_version: "1".into(),
        labels: Arc::new(Labels::from([("app".to_owned(), "web".to_owned())])),
        controller: None,
        creation_timestamp: since,
        deletion_timestamp: None,
        node_name: Some(
            format!("node-{:02}", if equal_rank { scattered % 50 } else { scattered * scattered % 50 })
                .into(),
        ),
        phase: Phase::Running,
        ready: Ready { is_ready: equal_rank || !scattered.is_multiple_of(17), since },
        deletion_cost: 0,
        max_restarts: i32::from(scattered.is_multiple_of(5)),
        max_sidecar_restarts: 0,
        waiting: kcm_api::Waiting::NoFailure,
    }
}

/// UID with random digits.
fn uid(number: usize) -> String {
    let random = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let text = format!("{random:032x}");
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

fn view(replicas: usize, equal_rank: bool) -> View {
    let replica_set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "web-uid", "generation": 2},
        "spec": {"replicas": replicas, "template": {"metadata": {"labels": {"app": "web"}}}},
    }))
    .unwrap_or_default();
    let active: Vec<_> = (0..PODS).map(|number| Arc::new(pod(number, equal_rank))).collect();
    View {
        replica_set: Arc::new(replica_set),
        related: active.clone(),
        active,
        terminating: Some(0),
        block: None,
        burst_replicas: DEFAULT_BURST_REPLICAS,
        pod_deletion_cost: true,
    }
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("replicaset");
    for (name, replicas, equal_rank) in [
        ("plan/no change", PODS, false),
        ("plan/create 500 pods", PODS * 2, false),
        ("plan/delete all 500 pods", 0, false),
        ("plan/delete 250 of 500 pods of different rank", PODS / 2, false),
        ("plan/delete 250 of 500 pods of equal rank", PODS / 2, true),
        ("plan/delete 1 of 500 pods of equal rank", PODS - 1, true),
    ] {
        let view = view(replicas, equal_rank);
        group.bench_function(name, |b| {
            b.iter_with_large_drop(|| plan(black_box(&view), now()));
        });
    }
    let settled = view(PODS, false);
    group.bench_function("status of 500 pods", |b| {
        b.iter(|| calculate_status(black_box(&settled), None, now()));
    });
    group.finish();
}

criterion_group!(plan_benches, benches);
criterion_main!(plan_benches);
