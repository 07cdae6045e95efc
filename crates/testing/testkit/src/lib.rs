//! Fakes that the tests of several crates share: an API server with scripted responses, a captured log, a
//! certificate authority, a lint of metrics, transcripts of kube-apiserver, unused ports, and the paths of programs.
//!
//! A dev-dependency only. It depends on HTTP and the clock but not on the client, so that the tests of each layer can use
//! it.
//!
//! *Not part of this crate:* an API server that stores objects (`kcm-apiserver`), and fakes of one crate's traits, which
//! that crate provides.

#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

mod api_server;
mod certificates;
mod lint;
mod log;
mod program;
mod transcript;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

pub use api_server::{FakeApiServer, FakeResponse, RecordedRequest};
pub use certificates::{CertificateAuthority, Identity};
pub use lint::{Problem, lint};
pub use log::CapturedLog;
pub use program::program;
pub use transcript::{Transcript, TranscriptRequest, managed_fields, normalized, without_managed_fields};

/// Returns a local address with a port that no process used a moment ago.
///
/// # Panics
///
/// If no port is free.
#[must_use]
pub fn unused_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}
