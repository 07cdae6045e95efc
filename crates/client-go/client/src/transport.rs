//! Connections, TLS and credentials.

mod addresses;
mod channel;
mod connection;
mod connector;
mod credentials;
mod dial;
mod exec;
mod fence;
mod http2;
mod issued;
mod overrides;
mod pool;
mod proxy;
mod route;
mod server;
mod server_verifier;
mod service;

pub(crate) use channel::{Channel, ResponseBody};
pub use credentials::{ClientConfigError, Server};
pub use overrides::ConfigOverrides;
pub(crate) use pool::SendError;
pub use proxy::ProxyEnvironment;
pub(crate) use service::{Lane, Transport};
