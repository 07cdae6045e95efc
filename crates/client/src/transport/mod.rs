//! The way to the API server, below one request: connections, TLS, credentials.

mod connection;
mod connector;
mod credentials;
mod fence;
mod pool;
mod server;
mod service;
mod stack;

pub use credentials::{ConfigError, Server};
pub(crate) use pool::SendError;
pub(crate) use service::{Lane, Transport};
