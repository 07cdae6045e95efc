//! Work queues for controllers: each key once, with delays and back-off per key.
//!
//! *Upstream counterpart:* `k8s.io/client-go/util/workqueue`.
//!
//! # Guarantees
//!
//! * **Fair**: items are processed in the order in which they are added.
//! * **De-duplicated**: an item that is added several times before it is processed is processed once.
//! * **One worker per item**: an item is processed by one worker at a time. If it is added while a worker processes it, it
//!   is queued again when the worker drops the [`WorkItem`], so that no change is missed. A worker that panics or is
//!   cancelled drops it, too.
//! * **Concurrent**: any number of tasks can add and get items. Adding never waits.
//! * **Graceful shutdown**: after [`shut_down`](Queue::shut_down) the queued items are processed, then workers get `None`.
//!   [`shut_down_with_drain`](Queue::shut_down_with_drain) also waits until all items are done.
//!
//! # Layers
//!
//! | Layer | Adds |
//! |---|---|
//! | [`Queue`] | order, de-duplication, shutdown |
//! | [`DelayingQueue`] | [`add_after`](DelayingQueue::add_after): items that are added after a delay |
//! | [`RateLimitingQueue`] | [`add_rate_limited`](RateLimitingQueue::add_rate_limited): a delay determined by a [`RateLimiter`] |
//!
//! Controllers use [`RateLimitingQueue`], whose handles are cheap to clone; see `examples/worker.rs`.
//!
//! # Difference from upstream
//!
//! Upstream runs a goroutine per queue that moves delayed items. Here waiting workers move them, see [`DelayingQueue`].
//!
//! *Not part of this crate:* Kubernetes types, the contents of keys, and the processing of items.

#![warn(missing_debug_implementations)]

mod bucket;
mod default_rate_limiter;
mod delaying_queue;
mod item;
mod item_exponential;
mod item_state;
mod metrics;
mod queue;
mod rate_limiter;
mod rate_limiting_queue;
mod sync;
mod work_item;

pub use bucket::BucketRateLimiter;
pub use default_rate_limiter::default_controller_rate_limiter;
pub use delaying_queue::DelayingQueue;
pub use item::Item;
pub use item_exponential::ItemExponentialFailureRateLimiter;
pub use item_state::{ItemPhase, ItemState};
pub use metrics::{MetricsProvider, NoQueueMetrics, QueueMetrics, Refresh};
pub use queue::Queue;
pub use rate_limiter::{MaxOfRateLimiter, RateLimiter};
pub use rate_limiting_queue::{QueueConfig, RateLimitingQueue};
pub use work_item::WorkItem;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
