//! Requests and responses, on sockets and without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may, in every helper of theirs"
)]
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

#[path = "../../../apiserver/tests/api/client.rs"]
#[allow(dead_code, reason = "the tests of the API server use all of it")]
mod client;
mod documents;
mod isolation;
mod proxy;
mod restart;
mod socket;
mod streams;
mod tables;
#[path = "../../../apiserver/tests/api/website.rs"]
mod website;

use client::Client;
use kcm_sandbox_server::HttpServer;

/// Client of a server without a socket.
fn client() -> Client {
    Client::of(|server| HttpServer::new(server.clone()).service(), |_| {})
}
