//! Implementations of the traits of controllers by the API client.
//!
//! The crates that define these traits do not depend on the client, nor the client on them.

mod control;
mod replication_controllers;
mod status_turns;

#[cfg(test)]
mod testing;

pub use control::ClusterClient;
pub use replication_controllers::ReplicationControllerClient;
pub use status_turns::RateLimitTurns;
