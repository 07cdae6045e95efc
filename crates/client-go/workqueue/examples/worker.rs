//! Workers of a controller: each syncs keys, retries failures with back-off, and drops a key after five retries.
//!
//! `cargo run -p kcm-workqueue --example worker`

use std::{sync::Arc, time::Duration};

use kcm_clock::RealClock;
use kcm_workqueue::{QueueConfig, RateLimitingQueue};

const MAX_RETRIES: u32 = 5;

/// Syncs a key: "flaky" succeeds at the third attempt, "broken" always fails.
fn sync(key: &str, failures: u32) -> Result<(), &'static str> {
    match key {
        "flaky" if failures < 2 => Err("temporary failure"),
        "broken" => Err("permanent failure"),
        _ => Ok(()),
    }
}

async fn worker(id: usize, queue: RateLimitingQueue<&'static str>) {
    while let Some(key) = queue.get().await {
        let failures = queue.num_requeues(&key);
        match sync(&key, failures) {
            Ok(()) => {
                println!("worker {id}: synced {}", *key);
                queue.forget(&key);
            }
            Err(error) if failures < MAX_RETRIES => {
                println!("worker {id}: failed to sync {}: {error}; retrying", *key);
                queue.add_rate_limited(*key);
            }
            Err(error) => {
                println!("worker {id}: failed to sync {}: {error}; dropped", *key);
                queue.forget(&key);
            }
        }
        // Drops the work item: from here on another worker can get the key.
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
            eprintln!("worker failed: {error}");
        }
    }
}
