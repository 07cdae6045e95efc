//! The way to the API server, below one request: connections, TLS, credentials.

mod credentials;
mod gate;
mod server;
mod service;
mod stack;

pub use credentials::{ConfigError, Server};
pub(crate) use service::{Lane, Transport};
