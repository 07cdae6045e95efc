//! Prints the tables of `docs/metrics.md`.
//!
//! ```sh
//! cargo run -p kcm-controller-manager --example metrics_table
//! ```

use std::sync::Arc;

use kcm_clock::RealClock;
use kcm_controller_manager::Metrics;
use kcm_metrics::{BuildInfo, MetricsOptions, MetricsOptionsError};

fn main() -> Result<(), MetricsOptionsError> {
    let metrics =
        Metrics::new(&MetricsOptions::default(), Arc::new(RealClock::new()), &BuildInfo::default())?;
    for (path, definitions) in
        [("/metrics", metrics.definitions()), ("/metrics/slis", metrics.slis_definitions())]
    {
        println!(
            "{path}\n\n| Metric | Type | Labels | Stability | Origin | Help |\n|---|---|---|---|---|---|"
        );
        for definition in definitions {
            println!("{}", definition.table_row());
        }
        println!();
    }
    println!("| Histogram | Upper bounds |\n|---|---|");
    for definition in metrics.definitions() {
        if !definition.buckets.is_empty() {
            println!("| `{}` | {} |", definition.name, definition.bounds());
        }
    }
    Ok(())
}
