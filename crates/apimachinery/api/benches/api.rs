//! Decoding, hashing, comparing and keeping of objects.
//!
//! `cargo bench -p kcm-api`. The sizes come first; they are counted, not estimated.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

use std::{alloc::System, hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kcm_api::{Deployment, PodDecoder, PodTemplate, ReplicaSet};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const POD_3K: &str = include_str!("../testdata/pod-3k.json");
const POD_12K: &str = include_str!("../testdata/pod-12k.json");

/// A template with the spec of the larger pod, about 4 KB.
fn template() -> Value {
    let pod: Value = serde_json::from_str(POD_12K).unwrap();
    json!({"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]})
}

fn deployment() -> String {
    let pod: Value = serde_json::from_str(POD_12K).unwrap();
    let mut metadata = pod["metadata"].clone();
    metadata["annotations"]["deployment.kubernetes.io/revision"] = json!("7");
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template()},
        "status": {"replicas": 3, "readyReplicas": 3, "conditions": [
            {"type": "Available", "status": "True", "lastUpdateTime": "2026-01-02T03:04:05Z",
             "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "MinimumReplicasAvailable",
             "message": "Deployment has minimum availability."},
        ]},
    })
    .to_string()
}

/// Bytes that are on the heap because of what `make` returned.
fn heap_bytes<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let region = Region::new(ALLOCATOR);
    let made = make();
    let change = region.change();
    (made, change.bytes_allocated.saturating_sub(change.bytes_deallocated))
}

fn sizes(_: &mut Criterion) {
    const PODS: usize = 10_000;
    for (name, json) in [("3 KB", POD_3K), ("12 KB", POD_12K)] {
        let decoder = PodDecoder::default();
        // 100 ReplicaSets with 100 pods each.
        let texts: Vec<String> = (0..PODS)
            .map(|n| {
                json.replace("x7k2p", &format!("{n:05}"))
                    .replace("5d4f8c7b9d", &format!("5d4f8c{:04}", n / 100))
                    .replace("0e1f2a3b4c5d", &format!("0e1f2a{:06}", n / 100))
                    .replace("3f1f0e6f1c11", &format!("3f1f0e{n:06}"))
            })
            .collect();
        let decode = || texts.iter().map(|text| Arc::new(decoder.decode(text).unwrap())).collect::<Vec<_>>();
        let (pods, bytes) = heap_bytes(decode);
        println!("heap per cached Pod ({name}): {} bytes", bytes / pods.len() - size_of::<usize>());
    }
    let text = deployment().replace("Deployment\"", "ReplicaSet\"");
    let (_, bytes) = heap_bytes(|| Arc::new(serde_json::from_str::<ReplicaSet>(&text).unwrap()));
    println!("heap per cached ReplicaSet ({} bytes of JSON): {bytes} bytes", text.len());
    let (template, bytes) = heap_bytes(|| PodTemplate::from_value(&template()).unwrap());
    println!("of that its template ({} bytes of JSON): {bytes} bytes", template.json().len());
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    for (name, json) in [("pod-3k", POD_3K), ("pod-12k", POD_12K)] {
        let decoder = PodDecoder::default();
        // As in a cache, which already contains the namespace, labels and owner.
        let _held = decoder.decode(json).unwrap();
        group.throughput(Throughput::Bytes(json.len() as u64));
        group.bench_function(name, |b| b.iter(|| decoder.decode(black_box(json)).unwrap()));
    }
    let json = deployment();
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("deployment, new template", |b| {
        b.iter(|| serde_json::from_str::<Deployment>(black_box(&json)).unwrap());
    });
    let _held = serde_json::from_str::<Deployment>(&json).unwrap();
    group.bench_function("deployment", |b| {
        b.iter(|| serde_json::from_str::<Deployment>(black_box(&json)).unwrap());
    });
    group.finish();
}

fn templates(c: &mut Criterion) {
    let mut value = template();
    let mut number = 0;
    // Equal templates share their digest.
    let mut fresh = || {
        number += 1;
        value["metadata"]["labels"]["number"] = number.to_string().into();
        PodTemplate::from_value(&value).unwrap()
    };
    let template = fresh();
    let mut group = c.benchmark_group("template");
    group.bench_function("hash", |b| b.iter(|| black_box(&template).compute_hash(Some(1)).unwrap()));
    group.bench_function("digest", |b| {
        b.iter_batched_ref(&mut fresh, |template| *template.digest(), criterion::BatchSize::SmallInput);
    });
    let other = fresh();
    group.bench_function("equal, digests known", |b| {
        b.iter(|| black_box(&template).equal_ignore_hash(black_box(&other)));
    });
    group.bench_function("with_label", |b| {
        b.iter(|| black_box(&template).with_label("pod-template-hash", Some("abc")).unwrap());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1));
    targets = sizes, decode, templates
}
criterion_main!(benches);
