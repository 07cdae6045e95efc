//! Connections, TLS and credentials.

mod addresses;
mod auth_headers;
mod channel;
mod connection;
mod connector;
mod credentials;
mod dial;
mod exec;
mod fence;
mod http2;
mod issued;
mod liveness;
mod overrides;
mod pool;
mod proxy;
mod route;
mod send_failure;
mod server;
mod server_verifier;
mod service;
mod stream;
mod tls;

pub(crate) use channel::{Channel, ResponseBody};
pub use credentials::{ClientConfigError, Server};
pub use overrides::ConfigOverrides;
pub(crate) use pool::SendError;
pub use proxy::ProxyEnvironment;
pub(crate) use service::{Lane, Transport};
