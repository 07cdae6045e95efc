//! What our controllers answer to recorded cases of upstream's, in the recordings' own form.

mod cluster;
pub mod compare;
pub mod deployment;
pub mod hash;
pub mod replicaset;
