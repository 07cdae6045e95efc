//! Bodies of answers.
//!
//! Part of the pool, and not separable: a slot creates the body of its answer, and the body returns the slot at its end.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::Frame;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{ConnectionError, Incoming, Slot};

/// Body of an answer. Its request is in flight until the end of the body was read, or the body is dropped.
pub(crate) struct PooledBody {
    /// `None` after the end.
    pub(super) body: Option<Incoming>,
    pub(super) slot: Option<Slot>,
    /// `None` if the answer is not the stream of a watch.
    pub(super) retired: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl http_body::Body for PooledBody {
    type Data = Bytes;
    type Error = ConnectionError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let this = self.get_mut();
        if let Some(body) = &mut this.body {
            let is_retired =
                this.retired.as_mut().is_some_and(|retired| retired.as_mut().poll(cx).is_ready());
            let frame = if is_retired { None } else { ready!(body.poll_frame(cx)) };
            if matches!(frame, Some(Ok(_))) {
                return Poll::Ready(frame);
            }
            // This resets an HTTP/2 stream, and closes an HTTP/1.1 connection, if the answer is not complete.
            this.body = None;
            if let Some(slot) = &mut this.slot {
                slot.is_answered = true;
            }
            if is_retired || frame.is_some() {
                this.slot = None;
                return Poll::Ready(frame);
            }
        }
        if let Some(sender) = this.slot.as_mut().and_then(|slot| slot.sender.as_mut()) {
            ready!(sender.poll_ready(cx));
        }
        this.slot = None;
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }
}
