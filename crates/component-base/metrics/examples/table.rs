//! Prints the tables of `docs/metrics.md`, as its test wants them.
//!
//! ```sh
//! cargo run -p kcm-metrics --example table
//! ```

use std::sync::Arc;

use kcm_clock::RealClock;
use kcm_metrics::{BuildInfo, Metrics, MetricsOptions, MetricsOptionsError};

fn main() -> Result<(), MetricsOptionsError> {
    let metrics =
        Metrics::new(&MetricsOptions::default(), Arc::new(RealClock::new()), &BuildInfo::default())?;
    for (path, definitions) in
        [("/metrics", metrics.definitions()), ("/metrics/slis", metrics.slis_definitions())]
    {
        println!(
            "{path}\n\n| Metric | Type | Labels | Stability | Whose | Meaning |\n|---|---|---|---|---|---|"
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
