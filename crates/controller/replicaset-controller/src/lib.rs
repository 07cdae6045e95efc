//! The ReplicaSet controller: as many pods as are wanted, no more and no fewer.
//!
//! *Upstream counterpart:* `pkg/controller/replicaset`.
//!
//! # How one sync goes
//!
//! | step | file | pure |
//! |---|---|---|
//! | events become keys, expectations are counted off | `handlers.rs` | |
//! | a key becomes a sync, its outcome a retry | `controller.rs` | |
//! | the steps of a sync, in upstream's order (US-5.3) | `sync.rs` | |
//! | what the caches hold of the owner, its pods and their relatives | `view.rs` | |
//! | which pods are to come or go, and why | `plan.rs` | yes |
//! | the requests, side by side or slowly at first | `execute.rs` | |
//! | pods are created, each exactly once | `create.rs`, `pending_creates.rs` | |
//! | what the status says then | `status.rs` | yes |
//!
//! # Where the plan ends
//!
//! [`plan()`] decides on everything that the caches and the clock suffice for. Three decisions need an answer from
//! the server, and are made after it:
//!
//! * **Which pods are ours.** An adoption may be refused, so pods are claimed before the [`View`] is complete.
//!   The decision for each pod is pure all the same: `kcm_controller_ref_manager::classify`.
//! * **The status**, because a failed create or delete appears in it: [`next_status`] takes the [`Outcome`].
//! * **When to look again**, because whether all pods are available is read from the status as the server stored
//!   it.
//!
//! # One machine, two controllers
//!
//! What tells a ReplicationController from a ReplicaSet is a [`KindConfig`], [`REPLICATION_CONTROLLER`] or
//! [`REPLICA_SET`]; the rest works on [`ReplicaSet`]s, into which a transport turns the other kind (US-5.11).
//!
//! *What must not live here:* HTTP, the choice of a template, anything that looks at Deployments.
//!
//! [`ReplicaSet`]: kcm_api::ReplicaSet

mod controller;
mod create;
mod execute;
mod handlers;
mod kind_config;
mod metrics;
mod pending_creates;
mod plan;
mod status;
mod sync;
mod view;

pub use controller::{Config, DEFAULT_BURST_REPLICAS, ReplicaSetController};
pub use execute::{ManageError, Outcome};
pub use kind_config::{KindConfig, REPLICA_SET, REPLICATION_CONTROLLER};
pub use metrics::{NoReplicaSetMetrics, ReplicaSetMetrics};
pub use plan::{Plan, Victim, Why, plan};
pub use status::next_status;
pub use sync::SyncError;
pub use view::{Hold, View};

#[cfg(test)]
mod testing;
