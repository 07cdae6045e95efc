//! Throughput of creates, watch events and lists. In process, without HTTP parsing and sockets.

use std::{hint::black_box, sync::Arc};

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::Request;
use http_body_util::{BodyExt, Full};
use kcm_apiserver::{
    ApiServer, ApiServerConfig, DeleteOptions, Patch, Resource, Subresource, WatchStart, WriteOptions,
};
use serde_json::{Value, json};
use tower::ServiceExt;

const PODS: Resource = Resource::PODS;

fn pod(name: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": "web-7d4b9c6f58-",
            "labels": {"app": "web", "pod-template-hash": "7d4b9c6f58"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f58", "uid": "owner",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"containers": [{
            "name": "nginx", "image": "nginx:1.29",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }]},
    })
}

fn with_pods(count: usize) -> Arc<ApiServer> {
    let server = ApiServer::new(ApiServerConfig::default());
    for index in 0..count {
        let pod = pod(Some(&format!("web-{index:06}")));
        let _ = server.create(PODS, "default", pod, &WriteOptions::default());
    }
    server
}

fn writes(c: &mut Criterion) {
    let options = WriteOptions::default();
    let mut group = c.benchmark_group("write");
    group.throughput(Throughput::Elements(1));
    let server = with_pods(1000);
    let delete = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    group.bench_function("create and delete a pod", |b| {
        b.iter_batched(
            || pod(None),
            |pod| {
                let created = server.create(PODS, "default", pod, &options);
                created.and_then(|pod| server.delete(PODS, "default", pod.name(), &delete))
            },
            BatchSize::SmallInput,
        );
    });
    let mut ready = false;
    group.bench_function("patch a pod's status", |b| {
        b.iter(|| {
            ready = !ready;
            let patch = json!({"status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}});
            server.patch(PODS, "default", "web-000001", Some(Subresource::Status), Patch::strategic(patch), &options)
        });
    });
    group.finish();
}

fn requests(c: &mut Criterion) {
    let runtime = match tokio::runtime::Builder::new_current_thread().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return;
        }
    };
    let server = with_pods(0);
    let body = Bytes::from(pod(None).to_string());
    let call = async |server: &Arc<ApiServer>, method: &str, path: &str, body: Bytes| {
        let request = Request::builder().method(method).uri(path).body(Full::new(body)).unwrap_or_default();
        let Ok(response) = server.service().oneshot(request).await else { return 0 };
        response.into_body().collect().await.map(|body| body.to_bytes().len()).unwrap_or_default()
    };
    let mut group = c.benchmark_group("request");
    group.throughput(Throughput::Elements(1));
    group.bench_function("POST a pod", |b| {
        b.iter(|| runtime.block_on(call(&server, "POST", "/api/v1/namespaces/default/pods", body.clone())));
    });
    let many = with_pods(10_000);
    group.throughput(Throughput::Elements(10_000));
    group.sample_size(20);
    group.bench_function("GET 10,000 pods", |b| {
        b.iter(|| black_box(runtime.block_on(call(&many, "GET", "/api/v1/pods", Bytes::new()))));
    });
    group.finish();
}

fn watches(c: &mut Criterion) {
    let mut group = c.benchmark_group("watch");
    for watchers in [1_usize, 10, 100] {
        let server = with_pods(10);
        let mut open: Vec<_> = (0..watchers).map(|_| server.watch(PODS, None, WatchStart::Now)).collect();
        group.throughput(Throughput::Elements(watchers as u64));
        let mut n = 0_u64;
        group.bench_with_input(
            BenchmarkId::new("one write to every watcher", watchers),
            &watchers,
            |b, _| {
                b.iter(|| {
                    n += 1;
                    let patch = json!({"metadata": {"annotations": {"n": n.to_string()}}});
                    let options = WriteOptions::default();
                    let _ = server.patch(PODS, "default", "web-000001", None, Patch::merge(patch), &options);
                    for watcher in &mut open {
                        if let Ok(Some(event)) = watcher.try_next() {
                            black_box(event.object().map(|object| object.json().len()));
                        }
                    }
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, writes, requests, watches);
criterion_main!(benches);
