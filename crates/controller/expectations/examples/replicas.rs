//! A controller that keeps three replicas, with a cache that lags behind what it creates.
//!
//! `cargo run -p kcm-expectations --example replicas`

use std::sync::Arc;

use kcm_clock::RealClock;
use kcm_expectations::UidTrackingExpectations;

const WANTED: usize = 3;

/// The controller and what it sees.
struct Controller {
    cache: Vec<String>,
    expectations: UidTrackingExpectations<&'static str, String>,
}

impl Controller {
    /// Returns the names of what it creates.
    fn sync(&self, key: &'static str) -> Vec<String> {
        // Before looking at the cache: what comes in between then only makes the answer more recent.
        if !self.expectations.satisfied(&key) {
            println!("sync: waiting for {:?}", self.expectations.get(&key));
            return Vec::new();
        }
        let missing = WANTED.saturating_sub(self.cache.len());
        println!("sync: {} seen, creating {missing}", self.cache.len());
        if missing > 0 {
            // Before creating: the first may be seen before the last is asked for.
            self.expectations.expect_creations(&key, missing);
        }
        (0..missing).map(|n| format!("{key}-{n}")).collect()
    }

    /// What the cache's event handler does.
    fn on_add(&mut self, key: &'static str, name: String) {
        println!("seen: {name}");
        self.cache.push(name);
        self.expectations.creation_observed(&key);
    }
}

fn main() {
    let expectations = UidTrackingExpectations::new(Arc::new(RealClock::new()));
    let mut controller = Controller { cache: Vec::new(), expectations };
    for name in controller.sync("web") {
        // Some other change asks for a sync each time, too early.
        controller.sync("web");
        controller.on_add("web", name);
    }
    controller.sync("web");
}
