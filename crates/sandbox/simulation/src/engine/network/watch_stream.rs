//! A watch on its way from the API server to a process, with the faults that it has.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use jiff::Timestamp;
use kcm_apiserver::{ApiBody, WatchCacheLag};
use serde_json::json;
use tower::BoxError;

use super::{ProcessConnection, broken, status};
use crate::engine::{
    faults::FaultEffect,
    host::ObservedHistory,
    surprises::{Alternative, StepKind},
};

/// Chunk of the body of a response, or its end.
type Chunk = Option<Result<Frame<Bytes>, Infallible>>;

/// A watch on a dead connection is given up after so long, by pings.
const PING_TIMEOUT: Duration = Duration::from_secs(45);

/// A watch under way.
pub(super) struct WatchStream {
    pub(super) link: ProcessConnection,
    pub(super) path: String,
    /// Number of the watch among those of its process on this path.
    pub(super) number: u64,
    pub(super) body: ApiBody,
    /// Chunk that was sent together with the one before.
    pub(super) ahead: Option<Chunk>,
    pub(super) delay: Duration,
    /// Lag of the cache that the watch reads.
    pub(super) cached: WatchCacheLag,
    /// Time up to which everything has been delivered.
    pub(super) seen: Timestamp,
    /// Chunks until the watch ends, and how it ends.
    pub(super) cut: Option<(u32, WatchEnd)>,
    pub(super) is_over: bool,
}

/// End of a watch.
#[derive(Clone, Copy)]
pub(super) enum WatchEnd {
    Closed,
    /// In the middle of a line.
    Torn,
    /// With 410, after a time without events.
    Expired(Duration),
}

impl WatchStream {
    /// Next chunk for the process. `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        if self.is_over {
            return None;
        }
        let (process, clock) = (Arc::clone(&self.link.process), Arc::clone(&self.link.network.clock));
        if let Some((0, WatchEnd::Expired(silence))) = self.cut {
            return self.expire(silence).await;
        }
        let available = match self.ahead.take() {
            Some(frame) => Poll::Ready(frame),
            None => poll_now(&mut self.body).await,
        };
        let frame = match available {
            // There is more to see than what has been seen.
            Poll::Ready(frame) => {
                process.record_observed(&self.path, self.number, ObservedHistory::UpTo(self.seen));
                frame
            }
            Poll::Pending => {
                process.record_observed(
                    &self.path,
                    self.number,
                    ObservedHistory::Cached(self.cached.clone()),
                );
                let frame = self.body.frame().await;
                process.watch_ended(&self.path, self.number, clock.now());
                frame
            }
        };
        // All that the cache shows has been sent once there is no further chunk.
        let mut seen = self.seen;
        if frame.is_some() {
            match poll_now(&mut self.body).await {
                Poll::Ready(next) => self.ahead = Some(next),
                Poll::Pending => {
                    seen = clock.now().saturating_sub(self.cached.get()).unwrap_or(seen).max(seen);
                }
            }
        }
        match self.choose(frame.as_ref()) {
            Some(FaultEffect::DelayWatch { time }) => clock.sleep(Duration::from_millis(time)).await,
            Some(FaultEffect::ExpireWatch { time, .. }) => {
                return self.expire(Duration::from_millis(time)).await;
            }
            Some(_) => {
                self.is_over = true;
                return None;
            }
            None => {}
        }
        if !self.delay.is_zero() && !self.link.network.is_healed.load(Ordering::Relaxed) {
            clock.sleep(self.delay).await;
        }
        tokio::select! {
            biased;
            () = process.host.connected() => {}
            () = clock.sleep(PING_TIMEOUT) => {
                self.is_over = true;
                return Some(Err(broken()));
            }
        }
        process.running().await;
        self.seen = seen;
        let Some(Ok(frame)) = frame else {
            self.is_over = true;
            return None;
        };
        self.link.network.choices.trace_received(&process, &self.path, events(&frame));
        match &mut self.cut {
            Some((0, end)) => {
                self.is_over = true;
                let data = frame.into_data().unwrap_or_default();
                matches!(end, WatchEnd::Torn).then(|| Ok(Frame::data(data.slice(..data.len() * 2 / 3))))
            }
            Some((chunks, _)) => {
                *chunks -= 1;
                Some(Ok(frame))
            }
            None => Some(Ok(frame)),
        }
    }

    /// Returns the outcome of the delivery of a chunk if it is not the default. Bookmarks are always delivered.
    fn choose(&self, chunk: Option<&Result<Frame<Bytes>, Infallible>>) -> Option<FaultEffect> {
        let (network, Some(Ok(frame))) = (&self.link.network, chunk) else { return None };
        if !network.choices.is_on() || events(frame) == 0 {
            return None;
        }
        let resource = self.path.rsplit('/').next().unwrap_or_default();
        let step = format!("m{} receive {resource}", self.link.process.manager);
        network.choose(&step, StepKind::WatchEvent).and_then(Alternative::effect)
    }

    /// Ends the watch with 410, after a time without events.
    async fn expire(&mut self, silence: Duration) -> Option<Result<Frame<Bytes>, BoxError>> {
        self.is_over = true;
        let process = &self.link.process;
        process.record_observed(&self.path, self.number, ObservedHistory::UpTo(self.seen));
        self.link.network.clock.sleep(silence).await;
        process.host.connected().await;
        process.running().await;
        let status = status(410, "Expired", "too old resource version: 1 (2)", None);
        let line = format!("{}\n", json!({"type": "ERROR", "object": status}));
        Some(Ok(Frame::data(Bytes::from(line))))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.link.process.watch_ended(&self.path, self.number, self.link.network.clock.now());
    }
}

/// Polls a body once.
async fn poll_now(body: &mut ApiBody) -> Poll<Chunk> {
    let mut frame = pin!(body.frame());
    poll_fn(|context| Poll::Ready(frame.as_mut().poll(context))).await
}

/// Number of changes in a chunk of a watch.
fn events(chunk: &Frame<Bytes>) -> usize {
    let text = chunk.data_ref().map_or(&[][..], Bytes::as_ref);
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !is_bookmark(line)).count()
}

fn is_bookmark(line: &[u8]) -> bool {
    line.get(..40).unwrap_or(line).windows(8).any(|word| word == b"BOOKMARK")
}
