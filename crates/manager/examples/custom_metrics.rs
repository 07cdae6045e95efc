//! Exports metrics of an operator and of its work queue, and checks the exposition.
//!
//! ```sh
//! cargo run -p kcm-manager --example custom_metrics
//! ```

use std::{error::Error, sync::Arc};

use kcm_clock::{Clock, RealClock};
use kcm_manager::Metrics;
use kcm_metrics::{BuildInfo, Counter, Histogram, MetricsOptions, Spec};
use kcm_workqueue::{QueueConfig, RateLimitingQueue};

const BACKUPS: Spec<1> = Spec::own("operator_backups_total", ["result"], "Finished backups by result.");
const DURATION: Spec<0> =
    Spec::own("operator_backup_duration_seconds", [], "Duration of a backup, in seconds.")
        .buckets(&[60.0, 600.0, 3600.0]);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let metrics =
        Metrics::new("operator", &MetricsOptions::default(), Arc::clone(&clock), &BuildInfo::default())?;

    let mut config = QueueConfig::new("backups", Arc::clone(&clock));
    config.metrics = metrics.queues();
    let queue = RateLimitingQueue::new(config);

    // Look up time series once, and keep them.
    let duration = metrics.registry().metric::<Histogram, 0>(DURATION).only();
    let success = metrics.registry().metric::<Counter, 1>(BACKUPS).with(["success"]);

    queue.add("database-a");
    queue.add("database-b");
    while !queue.is_empty() {
        let Some(database) = queue.get().await else { break };
        println!("backing up {}", *database);
        duration.observe(240.0);
        success.inc();
    }

    let text = metrics.text();
    for line in text.lines().filter(|line| line.contains("operator_") || line.contains("\"backups\"")) {
        println!("{line}");
    }
    assert_eq!(kcm_testkit::lint(&text), []);
    Ok(())
}
