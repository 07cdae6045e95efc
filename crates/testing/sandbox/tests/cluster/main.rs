//! Whole clusters in simulated time: the embedded server, its stand-ins and the controllers, in one process.
#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests may fail as tests do")]

mod circles;
mod ended_pods;
mod eviction;
mod fights;
mod probe;
mod replication_controllers;
mod story;
mod upstream;
mod world;
