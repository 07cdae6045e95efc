//! Metrics of an operator's own beside those of the queue it works from, and a check of what it serves.
//!
//! ```sh
//! cargo run -p kcm-metrics --example bakery
//! ```

use std::{error::Error, sync::Arc};

use kcm_clock::{Clock, RealClock};
use kcm_metrics::{BuildInfo, Counter, Histogram, Metrics, MetricsOptions, Spec, lint};
use kcm_workqueue::{QueueConfig, RateLimitingQueue};

const BAKED: Spec<1> = Spec::own("bakery_cakes_total", ["sort"], "Cakes baked, by sort.");
const BAKING: Spec<0> =
    Spec::own("bakery_baking_seconds", [], "How long a cake was in the oven, in seconds.")
        .buckets(&[600.0, 1800.0, 3600.0]);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let metrics = Metrics::new(&MetricsOptions::default(), Arc::clone(&clock), &BuildInfo::default())?;

    // A queue tells of itself as soon as it knows whom to tell.
    let mut config = QueueConfig::new("cakes", Arc::clone(&clock));
    config.metrics = metrics.queues();
    let queue = RateLimitingQueue::new(config);

    // Series are asked for once, and kept where they are used.
    let baking = metrics.registry().metric::<Histogram, 0>(BAKING).only();
    let baked = metrics.registry().metric::<Counter, 1>(BAKED);
    let plain = baked.with(["plain"]);

    queue.add("for the neighbours");
    queue.add("for the children");
    while !queue.is_empty() {
        let Some(order) = queue.get().await else { break };
        println!("baking a cake {order}");
        baking.observe(2400.0);
        plain.inc();
        queue.done(&order);
    }

    let text = metrics.text();
    for line in text.lines().filter(|line| line.contains("bakery_") || line.contains("\"cakes\"")) {
        println!("{line}");
    }
    assert_eq!(lint(&text), []);
    Ok(())
}
