//! End of TLS connections.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Stream that is shut down as soon as the peer has shut it down, as Go's servers do.
///
/// hyper drops a stream without a shutdown if the client closes it during a response. A TLS client such as Python's that waits
/// for `close_notify` then reports a truncated connection.
#[derive(Debug)]
pub(crate) struct ClosesWithPeer<I>(pub(crate) I);

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClosesWithPeer<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let remaining = buffer.remaining();
        ready!(Pin::new(&mut self.0).poll_read(cx, buffer))?;
        if remaining > 0 && buffer.remaining() == remaining {
            // The connection ends in any case.
            let _ = Pin::new(&mut self.0).poll_shutdown(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ClosesWithPeer<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn peer_is_answered_before_the_stream_is_dropped() {
        let (mut client, server) = duplex(64);
        let mut server = ClosesWithPeer(server);
        client.shutdown().await.unwrap();
        assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
        let mut buffer = [0; 8];
        let end = timeout(Duration::ZERO, client.read(&mut buffer)).await;
        assert_eq!(end.expect("no shutdown").unwrap(), 0);
    }
}
