//! A controller's loop around a work queue: sync each key, retry what fails, give up at some point.
//!
//! `cargo run -p kcm-workqueue --example worker`

use std::{sync::Arc, time::Duration};

use kcm_clock::RealClock;
use kcm_workqueue::{QueueConfig, RateLimitingQueue};

const MAX_RETRIES: u32 = 5;

/// Stands for the work: "flaky" succeeds at its third try, "broken" never.
fn sync(key: &str, failures: u32) -> Result<(), &'static str> {
    match key {
        "flaky" if failures < 2 => Err("not yet"),
        "broken" => Err("never will be"),
        _ => Ok(()),
    }
}

async fn worker(id: usize, queue: RateLimitingQueue<&'static str>) {
    while let Some(key) = queue.get().await {
        let failures = queue.num_requeues(&key);
        match sync(key, failures) {
            Ok(()) => {
                println!("worker {id}: {key} is in sync");
                queue.forget(&key);
            }
            Err(error) if failures < MAX_RETRIES => {
                println!("worker {id}: {key}: {error}, try {} to come", failures + 2);
                queue.add_rate_limited(key);
            }
            Err(error) => {
                println!("worker {id}: {key}: {error}, dropped until it changes");
                queue.forget(&key);
            }
        }
        // In every case, and last: until here, nobody else gets this key.
        queue.done(&key);
    }
}

#[tokio::main]
async fn main() {
    let queue = RateLimitingQueue::new(QueueConfig::new("example", Arc::new(RealClock::new())));
    let workers: Vec<_> = (0..2).map(|id| tokio::spawn(worker(id, queue.clone()))).collect();

    for key in ["steady", "flaky", "steady", "broken"] {
        queue.add(key);
    }
    queue.add_after("later", Duration::from_millis(100));

    tokio::time::sleep(Duration::from_millis(500)).await;
    queue.shut_down_with_drain().await;
    for worker in workers {
        if let Err(error) = worker.await {
            eprintln!("a worker died: {error}");
        }
    }
}
