//! Clusters in one process and in simulated time: embedded API server, simulated components and controllers.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helper functions of tests may panic")]

mod conflicting_writers;
mod custom_resources;
#[cfg(feature = "rollouts")]
mod demo;
mod ended_pods;
mod eviction;
mod kubelet;
mod ownership_cycles;
mod probe;
mod replication_controllers;
mod test_server;
mod test_suites;
mod upstream;
