//! Outputs of the controllers for recorded cases of upstream, in the format of the recordings.

mod cluster;
pub mod compare;
pub mod deployment;
pub mod hash;
pub mod replicaset;
