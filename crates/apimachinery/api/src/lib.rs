//! The objects that the controllers read and write, and the rules that apply to them.
//!
//! *Upstream counterparts:* `k8s.io/api`, `k8s.io/apimachinery`, and from `pkg/controller` the template hash.
//!
//! Three shapes of data, each for its use:
//!
//! * [`Deployment`], [`ReplicaSet`], [`ReplicationController`] and [`Lease`] are written back with PUT, so they are
//!   **lossless**: a field that this version does not know is kept and returned as it came (see `lossless.rs`). A pod
//!   template is a [`PodTemplate`]: its JSON text and, computed once, what comparing and hashing need.
//! * [`Pod`] is only read, and there are many, so it is **lean**: the dozen fields that decisions use.
//! * [`ApiError`] is what an API server or the way to it can answer.
//!
//! *What must not live here:* HTTP, async, clocks, caches, any decision of a controller.

#[macro_use]
mod lossless;

mod decoded;
pub mod deployment;
pub mod error;
pub mod hash;
mod identify;
pub mod int_or_string;
mod intern;
mod json;
pub mod lease;
pub mod meta;
mod micro_time;
mod object;
pub mod pod;
pub mod quantity;
#[cfg(test)]
mod recorded;
pub mod replica_set;
pub mod replication_controller;
pub mod schema;
pub mod selector;
pub mod semantic;
pub mod template;
pub mod time;

pub use deployment::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, DeploymentStrategy, RollingUpdate,
};
pub use error::{ApiError, Status, StatusCause, StatusDetails};
pub use identify::object_name;
pub use int_or_string::IntOrString;
pub use kcm_meta::ObjectKey;
pub use lease::{Lease, LeaseSpec};
pub use lossless::{Dropped, Extra};
pub use meta::{Annotations, ControllerRef, Labels, ObjectMeta, OwnerReference};
pub use micro_time::MicroTime;
pub use pod::{Phase, Pod, PodDecoder, Ready};
pub use replica_set::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
pub use replication_controller::{
    ReplicationController, ReplicationControllerSpec, ReplicationControllerStatus,
};
pub use selector::{LabelSelector, LabelSelectorRequirement, Selector, SelectorError};
pub use template::PodTemplate;
pub use time::Time;

/// The label whose value tells the ReplicaSets of one Deployment apart.
pub const POD_TEMPLATE_HASH_LABEL: &str = "pod-template-hash";

/// Whether the status of a condition, or a condition itself, holds.
///
/// Kept as text on the wire; these are the three values that the API allows.
pub mod condition_status {
    /// The condition holds.
    pub const TRUE: &str = "True";
    /// The condition does not hold.
    pub const FALSE: &str = "False";
    /// Nobody can say.
    pub const UNKNOWN: &str = "Unknown";
}
