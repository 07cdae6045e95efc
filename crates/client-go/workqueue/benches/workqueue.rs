//! Cost of the queue: add, get and done of an item.
//!
//! `cargo bench -p kcm-workqueue`. Keys are pairs of shared strings, as in controllers.

#![expect(clippy::unwrap_used, reason = "a benchmark")]

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kcm_clock::RealClock;
use kcm_workqueue::{QueueConfig, RateLimitingQueue};
use tokio::{runtime::Runtime, sync::Notify};

type Key = (Arc<str>, Arc<str>);

const ITEMS: usize = 10_000;

fn keys() -> Vec<Key> {
    let namespace: Arc<str> = "default".into();
    (0..ITEMS).map(|n| (Arc::clone(&namespace), format!("web-7988b68c98-{n}").into())).collect()
}

fn queue() -> RateLimitingQueue<Key> {
    RateLimitingQueue::new(QueueConfig::new("bench", Arc::new(RealClock::new())))
}

/// One task adds and processes all items: no wake-ups, no waiting.
fn one_task(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let keys = keys();
    let mut group = c.benchmark_group("one_task");
    group.throughput(Throughput::Elements(ITEMS as u64));

    for (name, delayed) in [("add_get_done", 0), ("add_get_done_with_10000_delayed", ITEMS)] {
        let queue = queue();
        for n in 0..delayed {
            // As after progress deadline checks.
            queue.add_after((Arc::from("default"), format!("slow-{n}").into()), Duration::from_secs(600));
        }
        group.bench_function(name, |b| {
            b.iter(|| {
                runtime.block_on(async {
                    for key in &keys {
                        queue.add(key.clone());
                    }
                    for _ in &keys {
                        if let Some(key) = queue.get().await {
                            drop(black_box(key));
                        }
                    }
                });
            });
        });
    }

    let fresh = queue();
    group.bench_function("add_of_a_queued_item", |b| {
        b.iter(|| {
            for key in &keys {
                fresh.add(key.clone());
            }
        });
    });

    group.bench_function("add_after", |b| {
        b.iter_with_large_drop(|| {
            let queue = queue();
            for (n, key) in keys.iter().enumerate() {
                queue.add_after(key.clone(), Duration::from_millis(600_000 + (n as u64 * 7919) % 10_000));
            }
            queue
        });
    });
    group.finish();
}

/// One task adds items, and waiting workers process them.
fn workers(c: &mut Criterion) {
    let keys = keys();
    let mut group = c.benchmark_group("workers");
    group.throughput(Throughput::Elements(ITEMS as u64));
    for workers in [1, 5, 50] {
        let runtime = Runtime::new().unwrap();
        let queue = queue();
        let (left, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        for _ in 0..workers {
            let (queue, left, finished) = (queue.clone(), Arc::clone(&left), Arc::clone(&finished));
            runtime.spawn(async move {
                while let Some(key) = queue.get().await {
                    drop(black_box(key));
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        finished.notify_one();
                    }
                }
            });
        }
        group.bench_with_input(BenchmarkId::from_parameter(workers), &workers, |b, _| {
            b.iter(|| {
                left.store(ITEMS, Ordering::Release);
                for key in &keys {
                    queue.add(key.clone());
                }
                runtime.block_on(finished.notified());
            });
        });
        queue.shut_down();
    }
    group.finish();
}

criterion_group!(benches, one_task, workers);
criterion_main!(benches);
