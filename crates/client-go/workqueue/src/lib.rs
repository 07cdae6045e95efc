//! A work queue for controllers: what is to be looked at, once each, with retries that back off.
//!
//! *Upstream counterpart:* `k8s.io/client-go/util/workqueue`.
//!
//! # What it promises
//!
//! * **Fair**: items come out in the order in which they went in.
//! * **Stingy**: an item added many times before it is taken is handed out once.
//! * **One at a time**: an item is never with two workers. Added while a worker has it, it comes back after
//!   that worker's [`done`](Queue::done), so no change goes unseen.
//! * **Many on both sides**: any number of tasks may add and take; adding never waits.
//! * **An orderly end**: [`shut_down`](Queue::shut_down) lets what is queued be taken, then tells each worker
//!   to go home; [`shut_down_with_drain`](Queue::shut_down_with_drain) also waits until all work is finished.
//!
//! # Three layers
//!
//! | layer | adds |
//! |---|---|
//! | [`Queue`] | order, de-duplication, shutting down |
//! | [`DelayingQueue`] | [`add_after`](DelayingQueue::add_after): items that come later |
//! | [`RateLimitingQueue`] | [`add_rate_limited`](RateLimitingQueue::add_rate_limited): how much later, by a [`RateLimiter`] |
//!
//! Each is usable alone. A controller takes the last, whose handle is cheap to clone; see `examples/worker.rs`.
//!
//! # Where it differs from upstream
//!
//! Upstream keeps a goroutine per queue that moves delayed items over. Here there is no task: see
//! [`DelayingQueue`] for who does it instead, and why nobody can tell the difference.
//!
//! *What must not live here:* anything that knows Kubernetes, keys' contents, or what a worker does with an item.

mod bucket;
mod delaying_queue;
mod item_exponential;
mod metrics;
mod queue;
mod rate_limiter;
mod rate_limiting_queue;
mod sync;

pub use bucket::BucketRateLimiter;
pub use delaying_queue::DelayingQueue;
pub use item_exponential::ItemExponentialFailureRateLimiter;
pub use metrics::{MetricsProvider, NoQueueMetrics, QueueMetrics, Refresh};
pub use queue::Queue;
pub use rate_limiter::{MaxOfRateLimiter, RateLimiter, default_controller_rate_limiter};
pub use rate_limiting_queue::{QueueConfig, RateLimitingQueue};

use std::{fmt::Debug, hash::Hash};

/// What can be queued: small, cheap to clone, and equal exactly when it means the same work.
///
/// Implemented for every type that qualifies.
pub trait Item: Clone + Eq + Hash + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Debug + Send + Sync + 'static> Item for T {}
