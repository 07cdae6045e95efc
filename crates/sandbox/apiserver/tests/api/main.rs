//! HTTP API: requests and responses, mostly without a socket.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may, in every helper of theirs"
)]
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

mod client;
mod custom;
mod custom_apply;
mod deletes;
mod faults;
mod kube;
mod lagging;
mod lean_types;
mod logs;
mod negotiation;
mod pods;
mod quotas;
mod reads;
mod tokens;
mod transcripts;
mod watches;
mod webhooks;
mod website;
mod writes;
