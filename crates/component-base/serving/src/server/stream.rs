//! Connection of a client, with limits on what is read from it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls::MAX_CHAIN;

/// Maximum number of bytes of a TLS handshake: the largest chain of certificates, and as much again for the other
/// messages. rustls collects a message of up to 64 KiB before it parses it.
const MAX_HANDSHAKE: usize = 2 * MAX_CHAIN;
/// Number of bytes after which other tasks run. A client that sends frames without pause, such as PING or SETTINGS, would
/// otherwise occupy the thread until its data ends.
const MAX_BURST: usize = 16 * 1024;

/// Connection of a client.
pub(super) struct ClientStream<S> {
    stream: S,
    /// Number of bytes that the handshake can still have. `None` after the handshake.
    handshake: Option<usize>,
    /// Number of bytes read since the client sent nothing, or other tasks ran.
    burst: usize,
}

impl<S> ClientStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, handshake: Some(MAX_HANDSHAKE), burst: 0 }
    }

    /// Ends the limit of the handshake.
    pub(super) fn end_handshake(&mut self) {
        self.handshake = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.burst >= MAX_BURST {
            self.burst = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let Poll::Ready(outcome) = Pin::new(&mut self.stream).poll_read(cx, buffer) else {
            self.burst = 0;
            return Poll::Pending;
        };
        outcome?;
        let read = buffer.filled().len() - before;
        self.burst += read;
        if let Some(left) = self.handshake {
            if read > left {
                buffer.set_filled(before);
                let error = format!("longer than {MAX_HANDSHAKE} bytes");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
            self.handshake = Some(left - read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn handshake_has_a_maximum_size() {
        let mut stream = ClientStream::new(io::Cursor::new(vec![0; 2 * MAX_HANDSHAKE]));
        let mut read = Vec::new();
        let error = stream.read_to_end(&mut read).await.unwrap_err();
        assert_eq!(error.to_string(), "longer than 32768 bytes");
        let mut stream = ClientStream::new(io::Cursor::new(vec![0; 2 * MAX_HANDSHAKE]));
        stream.end_handshake();
        assert_eq!(stream.read_to_end(&mut read).await.unwrap(), 2 * MAX_HANDSHAKE);
    }

    #[tokio::test]
    async fn burst_is_interrupted_for_other_tasks() {
        let mut stream = ClientStream::new(io::Cursor::new(vec![0; 4 * MAX_BURST]));
        stream.end_handshake();
        let mut buffer = vec![0; MAX_BURST];
        for _ in 0..4 {
            assert!(poll!(Box::pin(stream.read_exact(&mut buffer))).is_ready());
            assert!(poll!(Box::pin(stream.read(&mut buffer))).is_pending());
        }
    }
}
