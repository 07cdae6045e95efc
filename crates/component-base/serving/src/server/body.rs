//! Reading of request bodies, with bounds on size, time and memory.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;
use kcm_clock::Clock;
use tokio::sync::Semaphore;

/// Maximum size of one body, in bytes.
pub(super) const MAX_BODY: usize = 64 * 1024;
/// Number of bodies that are read at the same time. With [`MAX_BODY`] it bounds the memory of all bodies at 1 MiB.
const MAX_BODIES: usize = 16;
/// Time from the end of the header to the end of the body.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads bodies, at most [`MAX_BODIES`] at a time.
pub(super) struct BodyReader {
    permits: Semaphore,
    clock: Arc<dyn Clock>,
}

/// Reason why a body was not read: the response's status and its text.
pub(super) type BodyError = (StatusCode, &'static str);

impl BodyReader {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { permits: Semaphore::new(MAX_BODIES), clock }
    }

    /// Reads the whole body. While [`MAX_BODIES`] others are read, nothing is taken from the connection.
    ///
    /// # Errors
    ///
    /// If the body is larger than [`MAX_BODY`], takes longer than [`TIMEOUT`], or its stream fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, what was read is lost and its memory is free.
    pub(super) async fn read<B: Body<Data = Bytes>>(&self, body: B) -> Result<Bytes, BodyError> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let read = async {
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await;
            collect(body).await
        };
        tokio::select! {
            read = read => read,
            () = self.clock.sleep(TIMEOUT) => Err((StatusCode::REQUEST_TIMEOUT, "timeout while reading the request body")),
        }
    }
}

/// Copies the data of `body` into one buffer. A frame can be a single byte and refers to a buffer of the connection, so
/// frames that are kept take many times the memory of their data.
async fn collect<B: Body<Data = Bytes>>(body: B) -> Result<Bytes, BodyError> {
    let mut body = pin!(body);
    // Growing by doubling could take twice the memory.
    let mut bytes = Vec::with_capacity(MAX_BODY);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| (StatusCode::BAD_REQUEST, "failed to read the request body"))?;
        let data = frame.into_data().unwrap_or_default();
        if bytes.len() + data.len() > MAX_BODY {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "request body is too large"));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        pin::Pin,
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Poll},
    };

    use futures_util::FutureExt as _;
    use http_body::Frame;
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    /// A body of which all but the end arrives at once. Counts the bytes that are taken.
    struct Unfinished(Arc<AtomicUsize>, usize);

    impl Body for Unfinished {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.1 == 0 {
                return Poll::Pending;
            }
            self.1 -= 1;
            self.0.fetch_add(1024, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 1024])))))
        }
    }

    #[tokio::test]
    async fn memory_of_all_bodies_is_bounded_and_given_back() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let reader = BodyReader::new(Arc::new(clock.clone()));
        let taken = Arc::new(AtomicUsize::new(0));
        let body = || Unfinished(Arc::clone(&taken), MAX_BODY / 1024);
        let mut bodies: Vec<_> = (0..1000).map(|_| Box::pin(reader.read(body()))).collect();
        for body in &mut bodies {
            assert!(body.now_or_never().is_none());
        }
        assert_eq!(taken.load(Ordering::Relaxed), MAX_BODIES * MAX_BODY);
        clock.step(TIMEOUT);
        for body in bodies {
            assert_eq!(body.await.unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
        }
        let whole = http_body_util::Full::new(Bytes::from_static(b"4"));
        assert_eq!(reader.read(whole).await.unwrap(), "4");
    }

    /// Data of one byte. Counts the frames that exist.
    struct Byte(Arc<AtomicUsize>);

    impl AsRef<[u8]> for Byte {
        fn as_ref(&self) -> &[u8] {
            b"x"
        }
    }

    impl Drop for Byte {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn frames_are_not_kept() {
        let reader = BodyReader::new(Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH)));
        let kept = Arc::new(AtomicUsize::new(0));
        let frames = (0..1000).map(|_| {
            assert_eq!(kept.fetch_add(1, Ordering::Relaxed), 0);
            Ok::<_, Infallible>(Frame::data(Bytes::from_owner(Byte(Arc::clone(&kept)))))
        });
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        assert_eq!(reader.read(body).await.unwrap(), "x".repeat(1000));
    }
}
