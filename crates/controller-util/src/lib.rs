//! placeholder
mod control;
mod pod_manifest;
pub use control::{DeploymentControl, PodControl, ReplicaSetControl};
pub use pod_manifest::PodManifest;
