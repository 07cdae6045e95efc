//! Cost of a store of 100,000 pods: memory, updates, lookups by owner, and replacement.
//!
//! `cargo bench -p kcm-informer`

#![allow(missing_docs, reason = "the macros of criterion generate public functions")]
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kcm_api::{Pod, PodDecoder};
use kcm_informer::{IndexName, Indexers, ObjectKey, StoreWriter};

const OWNERS: usize = 1000;
const PODS_PER_OWNER: usize = 100;
const PODS: usize = OWNERS * PODS_PER_OWNER;
const OWNER: IndexName = IndexName("owner");

fn indexers() -> Indexers<Pod> {
    Indexers::new()
        .with(OWNER, |pod: &Pod| pod.controller.as_ref().map(|owner| Arc::clone(&owner.uid)))
        .with_namespace()
}

fn owner(n: usize) -> String {
    format!("6f7a1d52-0000-4000-8000-{:012}", n % OWNERS)
}

fn name(n: usize) -> String {
    format!("web-{}-7d9f8c6b5d-{n:06}", n % OWNERS)
}

/// Returns the `n`-th pod at `version`, decoded from JSON.
fn pod(decoder: &PodDecoder, n: usize, version: usize) -> Pod {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"team-{team}","uid":"00000000-0000-4000-8000-{n:012}",
        "resourceVersion":"{version}","creationTimestamp":"2026-11-01T12:00:00Z",
        "labels":{{"app":"web-{app}","pod-template-hash":"7d9f8c6b5d"}},
        "ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-{app}-7d9f8c6b5d",
        "uid":"{owner}","controller":true,"blockOwnerDeletion":true}}]}},
        "spec":{{"nodeName":"node-{node}"}},"status":{{"phase":"Running",
        "conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2026-11-01T12:00:05Z"}}]}}}}"#,
        name = name(n),
        team = n % 20,
        app = n % OWNERS,
        owner = owner(n),
        node = n % 500,
    );
    decoder.decode(&json).unwrap()
}

fn pods(decoder: &PodDecoder, version: usize) -> Vec<Arc<Pod>> {
    (0..PODS).map(|n| Arc::new(pod(decoder, n, version))).collect()
}

fn filled(pods: &[Arc<Pod>]) -> StoreWriter<Pod> {
    let mut writer = StoreWriter::new(indexers());
    for pod in pods {
        writer.apply(Arc::clone(pod));
    }
    writer
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn memory(_: &mut Criterion) {
    let decoder = PodDecoder::default();
    let before = resident();
    let pods = pods(&decoder, 1);
    let with_pods = resident();
    let writer = filled(&pods);
    let with_store = resident();
    println!("memory/pod    {:>5} B", (with_pods - before) / PODS);
    println!(
        "memory/store  {:>5} B per pod, with indexes by owner and by namespace",
        (with_store - with_pods) / PODS
    );
    drop(writer);
}

fn update(c: &mut Criterion) {
    let decoder = PodDecoder::default();
    // Two states of each pod, so that every apply changes the pod. They are decoded before the measurement.
    let states = [pods(&decoder, 1), pods(&decoder, 2)];
    let mut group = c.benchmark_group("update");
    for readers in [0, 1, 4] {
        let mut writer = filled(&states[0]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..readers {
                let (store, stop) = (writer.reader(), &stop);
                scope.spawn(move || {
                    let mut n = reader;
                    while !stop.load(Ordering::Relaxed) {
                        black_box(store.by_index(OWNER, &owner(n)));
                        n += 7;
                    }
                });
            }
            let mut n = 0;
            group.bench_function(format!("{readers} readers"), |b| {
                b.iter(|| {
                    // A prime step: successive pods are not adjacent in memory.
                    n += 7919;
                    let state = &states[(n / PODS) % 2];
                    black_box(writer.apply(Arc::clone(&state[n % PODS])))
                });
            });
            stop.store(true, Ordering::Relaxed);
        });
    }
    group.finish();
}

fn create_and_delete(c: &mut Criterion) {
    let pods = pods(&PodDecoder::default(), 1);
    let mut writer = filled(&pods);
    let mut n = 0;
    c.bench_function("delete and create", |b| {
        b.iter(|| {
            n = (n + 7919) % PODS;
            writer.remove(&pods[n].key, None);
            writer.apply(Arc::clone(&pods[n]))
        });
    });
}

fn lookup(c: &mut Criterion) {
    let pods = pods(&PodDecoder::default(), 1);
    let writer = filled(&pods);
    let store = writer.reader();
    let owners: Vec<_> = (0..OWNERS).map(owner).collect();
    let keys: Vec<ObjectKey> = pods.iter().map(|pod| pod.key.clone()).collect();
    let mut n = 0;
    c.bench_function("get", |b| {
        b.iter(|| {
            n = (n + 7919) % PODS;
            black_box(store.get(&keys[n]))
        });
    });
    let mut group = c.benchmark_group("by owner");
    group.throughput(Throughput::Elements(PODS_PER_OWNER as u64));
    group.bench_function("100 pods", |b| {
        b.iter(|| {
            n = (n + 37) % OWNERS;
            black_box(store.by_index(OWNER, &owners[n]))
        });
    });
    group.bench_function("100 pods, without index", |b| {
        b.iter(|| {
            n = (n + 37) % OWNERS;
            let mut pods = store.list();
            pods.retain(|pod| pod.controller.as_ref().is_some_and(|owner| *owner.uid == *owners[n]));
            black_box(pods)
        });
    });
    group.finish();
}

fn replace(c: &mut Criterion) {
    let decoder = PodDecoder::default();
    let states = [pods(&decoder, 1), pods(&decoder, 2)];
    let mut group = c.benchmark_group("replace");
    group
        .throughput(Throughput::Elements(PODS as u64))
        .sample_size(10)
        .measurement_time(Duration::from_secs(5));
    for (name, next) in [("all unchanged", 0), ("all changed", 1)] {
        let mut writer = filled(&states[0]);
        let list = || states[next].iter().map(|pod| (**pod).clone()).collect::<Vec<_>>();
        group.bench_function(name, |b| {
            b.iter_batched(
                list,
                |list| {
                    let mut snapshot = writer.snapshot();
                    list.into_iter().for_each(|pod| snapshot.insert(pod));
                    writer.commit(snapshot, "3")
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, memory, update, create_and_delete, lookup, replace);
criterion_main!(benches);
