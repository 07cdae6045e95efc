//! Clients, informers and controllers of kube-rs with the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

mod client;
#[cfg(feature = "runtime")]
mod controller;
mod custom_resources;
#[cfg(feature = "runtime")]
mod reflector;
mod support;
