//! The manager as a program, its manifests, and two managers with one lease.

mod binary;
mod deploy;
mod rate_limit;
mod takeover;
