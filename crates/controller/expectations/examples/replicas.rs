//! A controller that keeps three replicas, with a cache that lags behind its writes.
//!
//! `cargo run -p kcm-expectations --example replicas`

use std::sync::Arc;

use kcm_clock::RealClock;
use kcm_expectations::UidTrackingExpectations;

const WANTED: usize = 3;

/// A controller with its cache.
struct Controller {
    cache: Vec<String>,
    expectations: UidTrackingExpectations<&'static str, String>,
}

impl Controller {
    /// Returns the names of created replicas.
    fn sync(&self, key: &'static str) -> Vec<String> {
        // Before the cache is read: objects that arrive in between are then in the cache.
        if !self.expectations.satisfied(&key) {
            println!("sync: expecting {:?}", self.expectations.get(&key));
            return Vec::new();
        }
        let missing = WANTED.saturating_sub(self.cache.len());
        println!("sync: {} cached, creating {missing}", self.cache.len());
        if missing > 0 {
            // Before the requests: the first replica may be observed before the last request is sent.
            self.expectations.expect_creations(&key, missing);
        }
        (0..missing).map(|n| format!("{key}-{n}")).collect()
    }

    /// Event handler.
    fn on_add(&mut self, key: &'static str, name: String) {
        println!("observed: {name}");
        self.cache.push(name);
        self.expectations.creation_observed(&key);
    }
}

fn main() {
    let expectations = UidTrackingExpectations::new(Arc::new(RealClock::new()));
    let mut controller = Controller { cache: Vec::new(), expectations };
    for name in controller.sync("web") {
        // A sync that another change triggers before all replicas are observed.
        controller.sync("web");
        controller.on_add("web", name);
    }
    controller.sync("web");
}
