//! Kubernetes objects that the controllers read and write.
//!
//! *Upstream counterparts:* `k8s.io/api`, `k8s.io/apimachinery`, and the pod template hash of `pkg/controller`.
//!
//! * [`Deployment`], [`ReplicaSet`], [`ReplicationController`] and [`Lease`] are written back with PUT. They are
//!   **lossless**: unknown fields are kept and written as they were read (`lossless.rs`). A pod template is a
//!   [`PodTemplate`], which keeps the JSON text or the protobuf message.
//! * [`Pod`] is only read. It has only the fields that the controllers use.
//! * [`LabelSelector`] is the declaration of a selector, [`Selector`] its compiled form.
//! * [`list::ListSplitter`] splits the body of a list into its objects.
//! * [`ApiError`] is the error of a request.
//! * [`GoDuration`] is a duration in Go's syntax, as in flags.
//!
//! # Scope
//!
//! HTTP, async code, clocks, caches and decisions of controllers belong to other crates.

#![warn(missing_debug_implementations)]

#[macro_use]
mod lossless;

mod decoded;
pub mod deployment;
pub mod error;
mod go_duration;
pub mod hash;
mod identify;
pub mod int_or_string;
mod intern;
mod json;
mod kind;
pub mod lease;
pub mod list;
pub mod meta;
mod micro_time;
mod object;
pub mod pod;
pub mod protobuf;
pub mod quantity;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

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
pub use error::{ApiError, ErrorCause, Status, StatusCause, StatusDetails};
pub use go_duration::{GoDuration, GoDurationError};
pub use identify::object_name;
pub use int_or_string::IntOrString;
pub use kcm_meta::ObjectKey;
pub use kind::LosslessDecoder;
pub use lease::{Lease, LeaseSpec};
pub use lossless::{Dropped, Extra};
pub use meta::{Annotations, Labels, ObjectMeta, OwnerReference, PodControllerRef};
pub use micro_time::MicroTime;
pub use pod::{Phase, Pod, PodDecoder, Ready, Waiting};
pub use protobuf::ProtobufError;
pub use replica_set::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
pub use replication_controller::{
    ReplicationController, ReplicationControllerSpec, ReplicationControllerStatus,
};
pub use selector::{LabelSelector, LabelSelectorRequirement, Selector, SelectorError};
pub use template::PodTemplate;
pub use time::Time;

/// Label that distinguishes the ReplicaSets of a Deployment. Its value is the hash of the pod template.
pub const POD_TEMPLATE_HASH_LABEL: &str = "pod-template-hash";

/// Types of the conditions of Deployments and ReplicaSets.
pub mod condition_type {
    /// The Deployment has the minimum number of available pods.
    pub const AVAILABLE: &str = "Available";
    /// The rollout of the Deployment progresses or is complete.
    pub const PROGRESSING: &str = "Progressing";
    /// A pod could not be created or deleted. A Deployment copies the condition from its ReplicaSets.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";
}

/// Values of the status of a condition.
pub mod condition_status {
    /// The condition holds.
    pub const TRUE: &str = "True";
    /// The condition does not hold.
    pub const FALSE: &str = "False";
    /// It is unknown if the condition holds.
    pub const UNKNOWN: &str = "Unknown";
}
