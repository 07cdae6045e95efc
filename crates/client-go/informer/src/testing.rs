//! Test doubles: a fake API server and a recording handler.
//!
//! [`FakeSource`] lists and watches objects as an API server does, with faults on request. [`RecordingHandler`] records
//! the calls of an informer. With [`SimulatedClock`](kcm_clock::SimulatedClock) and tokio's paused time, tests do not wait
//! for back-off and timeouts.
//!
//! Upstream counterpart: `k8s.io/client-go/tools/cache/testing`.

mod handler;
mod source;

pub use handler::{Recorded, RecordingHandler};
pub use kcm_meta::SetResourceVersion;
pub use source::{ExpiredAs, FakeRequest, FakeSource};
