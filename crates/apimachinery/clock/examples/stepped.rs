//! One component under two clocks: the real one, and one that a test steps.
//!
//! `cargo run -p kcm-clock --example stepped`

use std::{sync::Arc, time::Duration};

use kcm_clock::{Clock, FakeClock, Random, RealClock, SeededRandom, Timestamp, jitter};

/// Beats a few times, at intervals that differ a little, and tells when.
async fn heart(name: &str, interval: Duration, clock: Arc<dyn Clock>, random: Arc<dyn Random>) {
    let start = clock.monotonic();
    for _ in 0..3 {
        clock.sleep(jitter(&*random, interval, 0.5)).await;
        println!("{name}: {} after {:?}", clock.now(), clock.monotonic() - start);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let random = Arc::new(SeededRandom::new(7));
    heart("real", Duration::from_millis(20), Arc::new(RealClock::new()), random.clone()).await;

    // Years pass in no time, and only when told to.
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let year = Duration::from_secs(365 * 86_400);
    let beating = tokio::spawn(heart("fake", year, Arc::new(clock.clone()), random));
    while !beating.is_finished() {
        tokio::task::yield_now().await;
        clock.step(Duration::from_secs(86_400));
    }
}
