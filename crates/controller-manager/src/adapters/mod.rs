//! Implementations of the traits of controllers, event recorders and leader election by the API client.
//!
//! The crates that define these traits do not depend on the client, nor the client on them.

mod control;
mod events;
mod lease;
mod replication_controllers;

#[cfg(test)]
mod testing;

pub use control::ClusterClient;
pub use events::EventClient;
pub use lease::LeaseClient;
pub use replication_controllers::ReplicationControllerClient;
