//! What upstream's integration and end-to-end tests ask of a cluster, asked of the embedded server and our controllers
//! in simulated time.
//!
//! As upstream's, the integration tests have no nodes: each says itself what becomes of its pods. The end-to-end tests
//! run on the sandbox's.
//!
//! `docs/upstream-tests.md` tells which test here is which of upstream's, and which are left out.
mod cluster;
mod deployment;
mod e2e;
mod replica_set;
