//! Upstream's integration and end-to-end tests, with the embedded API server and these controllers in simulated time.
//!
//! As upstream, the integration tests have no nodes and set the status of pods themselves. The end-to-end tests use the
//! simulated nodes of the sandbox.
//!
//! `docs/upstream-tests.md` maps upstream's tests to these, and lists omitted ones.
mod cluster;
mod deployment;
mod e2e;
mod replica_set;
