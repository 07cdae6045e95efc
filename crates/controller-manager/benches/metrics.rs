//! Cost of recording metrics, and of a scrape.
//!
//! `cargo bench -p kcm-controller-manager --bench metrics`

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use http::Method;
use kcm_client::{PriorityLevel, RequestInfo};
use kcm_clock::RealClock;
use kcm_controller_manager::Metrics;
use kcm_metrics::{BuildInfo, MetricsOptions};
use kcm_runtime::SyncResult;

fn benches(c: &mut Criterion) {
    let metrics = Metrics::new(&MetricsOptions::default(), Arc::new(RealClock::new()), &BuildInfo::default());
    let Ok(metrics) = metrics else { return };
    let millisecond = Duration::from_millis(1);

    let queue = metrics.queues().queue("deployment");
    let syncs = metrics.syncs("deployment-controller");
    c.bench_function("queue item and sync", |b| {
        b.iter(|| {
            if let Some(queue) = &queue {
                queue.added();
                queue.depth(1);
                queue.depth(0);
                queue.queue_duration(black_box(millisecond));
                syncs.started();
                syncs.ended(black_box(millisecond), SyncResult::Success);
                queue.work_duration(black_box(millisecond));
            }
        });
    });

    let clients = metrics.clients();
    let request = RequestInfo {
        client: "deployment-controller",
        server: "https://10.0.0.1:6443",
        method: &Method::PUT,
        path: "/apis/apps/v1/namespaces/default/deployments/web/status",
        attempt: 1,
        watch: false,
        priority_level: PriorityLevel::default(),
    };
    c.bench_function("write", |b| {
        b.iter(|| {
            clients.throttled(black_box(request), millisecond);
            clients.sent(request, 1000);
            clients.answered(request, Some(200), millisecond);
            clients.received(request, 1000);
            clients.finished(request, millisecond);
        });
    });

    let informers = metrics.informers();
    c.bench_function("event", |b| {
        b.iter(|| {
            informers.store_changed(black_box("pods"), 50_000, "12345678");
            informers.processed("pods", millisecond);
        });
    });

    c.bench_function("scrape", |b| b.iter(|| metrics.text().len()));
}

criterion_group!(all, benches);
criterion_main!(all);
