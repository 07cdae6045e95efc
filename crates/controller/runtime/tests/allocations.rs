//! Allocations of the control loop per key.

use std::{alloc::System, convert::Infallible, sync::Arc};

use kcm_clock::{FakeClock, Timestamp};
use kcm_runtime::{Controller, ObjectKey, Reconciler, Requeue};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

struct Nothing;

impl Reconciler for Nothing {
    type Error = Infallible;

    async fn reconcile(&self, _: &ObjectKey) -> Result<Requeue, Infallible> {
        Ok(Requeue::Done)
    }
}

/// A key passes the queue and the loop without allocation, once the queue has its size.
#[tokio::test]
async fn key_allocates_nothing() {
    let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
    let controller = Controller::builder("test", clock).build(Nothing);
    let keys: Vec<_> = (0..100).map(|n| ObjectKey::new("default", format!("web-{n}"))).collect();
    let pass = async || {
        for key in &keys {
            controller.queue().add(key.clone());
        }
        for key in &keys {
            assert_eq!(controller.step().await.unwrap().key, *key);
        }
    };
    pass().await;
    let region = Region::new(ALLOCATOR);
    pass().await;
    assert_eq!(region.change().allocations, 0);
}
