//! Byte streams to an API server.

use tokio::io::{AsyncRead, AsyncWrite};

use super::{addresses::Trial, fence::Socket};

/// Byte stream below TLS.
pub(super) struct Opened {
    pub(super) socket: Box<dyn Socket>,
    /// Address of the API server or the proxy.
    pub(super) trial: Option<Trial>,
}

/// Byte stream on which HTTP is spoken.
pub(super) struct Stream {
    pub(super) io: Box<dyn Io>,
    /// `true` if HTTP/2 was negotiated by ALPN.
    pub(super) is_http2: bool,
    /// Address of the API server or the proxy.
    pub(super) trial: Option<Trial>,
}

/// Byte stream above TLS, or a plain one.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}
