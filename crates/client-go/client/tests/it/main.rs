//! Requests and connections. Tests in their own programs replace the allocator or capture the log of the process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails that way")]

mod connections;
mod cut_lists;
mod in_process;
mod protobuf;
mod proxies;
mod sockets;
#[path = "../support/mod.rs"]
mod support;
mod verbs;
