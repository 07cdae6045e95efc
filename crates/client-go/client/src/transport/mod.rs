//! Connections, TLS and credentials.

mod connection;
mod connector;
mod credentials;
mod exec;
mod fence;
mod http2;
mod issued;
mod pool;
mod proxy;
mod server;
mod server_verifier;
mod service;
mod stack;

pub use credentials::{ClientConfigError, Server};
pub(crate) use pool::SendError;
pub use proxy::ProxyEnvironment;
pub(crate) use service::{Lane, Transport};
