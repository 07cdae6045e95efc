//! One component with two clocks: the real one, and one that is stepped.
//!
//! `cargo run -p kcm-clock --example stepped`

use std::{sync::Arc, time::Duration};

use kcm_clock::{Clock, FakeClock, Random, RealClock, SeededRandom, Timestamp, jitter};

/// Prints the time three times, at intervals with jitter.
async fn ticker(name: &str, interval: Duration, clock: Arc<dyn Clock>, random: Arc<dyn Random>) {
    let start = clock.monotonic();
    for _ in 0..3 {
        clock.sleep(jitter(&*random, interval, 0.5)).await;
        println!("{name}: {} after {:?}", clock.now(), clock.monotonic() - start);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let random = Arc::new(SeededRandom::new(7));
    ticker("real", Duration::from_millis(20), Arc::new(RealClock::new()), random.clone()).await;

    // The fake clock is stepped by a day at a time until the component ends.
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let year = Duration::from_secs(365 * 86_400);
    let running = tokio::spawn(ticker("fake", year, Arc::new(clock.clone()), random));
    while !running.is_finished() {
        tokio::task::yield_now().await;
        clock.step(Duration::from_secs(86_400));
    }
}
