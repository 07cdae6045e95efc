//! Doubles for tests of what is built on this crate.
//!
//! [`FakeSource`] plays the API server's part towards an informer, and can misbehave in every way that a real one
//! does; [`RecordingHandler`] plays the controller's. Use them under tokio's paused time with a
//! [`SimulatedClock`](kcm_clock::SimulatedClock), and hours of back-off cost nothing.
//!
//! Upstream counterpart: `k8s.io/client-go/tools/cache/testing`.

mod handler;
mod source;

pub use handler::{Recorded, RecordingHandler};
pub use source::{FakeObject, FakeRequest, FakeSource, Gone};
