//! Proxies between the manager and the API server.
//!
//! The TCP proxy forwards bytes: TLS is end to end. The HTTP proxy terminates TLS with a certificate of the
//! suite's CA. It stands behind the TCP proxy if the fault is one of HTTP.

pub(crate) mod http;
pub(crate) mod tcp;
