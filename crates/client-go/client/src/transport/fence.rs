//! Fence between a connection and its socket: stops the writes of a process that no longer leads.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::write_gate::WriteGate;

/// Byte stream to an API server or to a proxy.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Makes the operating system discard the bytes that it has not sent yet when the socket is closed.
    fn discard_unsent(&self) {}
}

impl Socket for TcpStream {
    fn discard_unsent(&self) {
        // An error means that the connection is gone.
        let _ = self.set_zero_linger();
    }
}

/// Connection to a proxy.
impl Socket for TlsStream<TcpStream> {
    fn discard_unsent(&self) {
        self.get_ref().0.discard_unsent();
    }
}

/// Condition under which a connection may send bytes.
///
/// Between a request and the socket, bytes wait in several buffers: in HTTP/2 streams without window, in frames that are
/// not encrypted yet, in TLS records that the socket did not take. The fence is below all of them. A connection that has
/// carried a write of a gated client sends bytes only while that gate is open. The first attempt to send after that fails,
/// which ends the connection.
///
/// Bytes that the operating system has already put on the wire, and requests that the server has already read, are out of
/// reach.
#[derive(Debug, Default)]
pub(super) struct Fence(Mutex<Vec<WriteGate>>);

impl Fence {
    /// Lets bytes pass only while `gate` is open, from now on.
    pub(super) fn add(&self, gate: &WriteGate) {
        let mut gates = self.0.lock();
        if !gates.contains(gate) {
            gates.push(gate.clone());
        }
    }

    /// `true` if the connection can send bytes at this moment.
    pub(super) fn is_open(&self) -> bool {
        self.0.lock().iter().all(WriteGate::is_open)
    }
}

/// Socket behind a [`Fence`].
pub(super) struct Fenced {
    socket: Box<dyn Socket>,
    fence: Arc<Fence>,
}

impl Fenced {
    pub(super) fn new(socket: Box<dyn Socket>, fence: Arc<Fence>) -> Self {
        Self { socket, fence }
    }

    /// The socket, if bytes may be sent at this moment.
    fn writable(&mut self) -> io::Result<Pin<&mut Box<dyn Socket>>> {
        if self.fence.is_open() {
            return Ok(Pin::new(&mut self.socket));
        }
        self.socket.discard_unsent();
        Err(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the process that writes does not lead any more",
        ))
    }
}

impl AsyncRead for Fenced {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Fenced {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().writable()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().writable()?.poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writable()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writable()?.poll_shutdown(cx)
    }
}
