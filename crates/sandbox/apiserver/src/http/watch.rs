//! Watches as streams of JSON lines.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kcm_clock::{Clock, Sleep, jitter};
use tokio_util::sync::CancellationToken;

use super::{
    admission::convert,
    faults::OpenWatch,
    options::WatchOptions,
    response::{self, ApiResponse},
    view::View,
};
use crate::{ApiServer, ApiStatus, WatchEvent, Watcher, kind::Kind, store::WatchCache, webhook::Webhooks};

/// Interval between bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time between the last bookmark and the end of the watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Minimum duration of a watch without timeout. The duration is random, up to twice as long.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);
/// Approximate maximum size of a chunk in bytes.
const CHUNK: usize = 64 << 10;

/// State of a watch.
struct Stream {
    watcher: Watcher,
    view: View,
    mark_initial_end: bool,
    bookmarks: bool,
    clock: Arc<dyn Clock>,
    /// End of the watch on the monotonic clock.
    deadline: Duration,
    next_bookmark: Duration,
    /// Timer for the earlier of `deadline` and `next_bookmark`.
    timer: Option<Sleep>,
    /// Cancelled when the server shuts down, and when a fault cuts the watch.
    open: OpenWatch,
    /// Cancelled when the definition of the custom resource changes.
    retired: CancellationToken,
    columns_sent: bool,
    ended: bool,
    /// Calls of the conversion webhook. `None` without a client.
    webhooks: Option<Webhooks>,
}

/// Responds to a watch. If there is a `cache`, it is the source of events.
///
/// # Errors
///
/// 504 if the requested minimum revision does not exist yet.
pub(super) fn watch(
    server: &ApiServer,
    cache: Option<Arc<WatchCache>>,
    view: View,
    options: WatchOptions,
    minimum_revision: u64,
    open: OpenWatch,
) -> Result<ApiResponse, ApiStatus> {
    let current = server.revision();
    if options.mark_initial_end && minimum_revision > current {
        return Err(ApiStatus::too_large_resource_version(minimum_revision, current));
    }
    let clock = Arc::clone(&server.config.clock);
    let timeout = options
        .timeout_seconds
        .map_or_else(|| jitter(&*server.config.random, DEFAULT_TIMEOUT, 1.0), Duration::from_secs);
    let now = clock.monotonic();
    let deadline = now.saturating_add(timeout);
    let namespace = view.target.namespace.clone();
    let resource = Some(view.target.resource());
    let retired = view.target.kind.custom.as_ref().map(|custom| custom.retired().clone()).unwrap_or_default();
    let WatchOptions { selection, start, .. } = options;
    let watcher = server.registry.store.watch_from(cache, resource, &namespace, selection, start);
    let webhooks = view.target.kind.conversion().and_then(|_| server.webhooks());
    let state = Stream {
        watcher,
        view,
        mark_initial_end: options.mark_initial_end && options.bookmarks,
        bookmarks: options.bookmarks,
        clock,
        deadline,
        next_bookmark: bookmark_after(now, deadline),
        timer: None,
        open,
        retired,
        columns_sent: false,
        ended: false,
        webhooks,
    };
    let lines = stream::unfold(state, async |mut state| {
        let lines = state.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(lines)), state))
    });
    Ok(response::stream(StreamBody::new(lines).boxed_unsync()))
}

/// Returns an event with its object in the version of the watch.
async fn converted(
    webhooks: Option<&Webhooks>,
    kind: &Kind,
    event: WatchEvent,
) -> Result<WatchEvent, ApiStatus> {
    if kind.conversion().is_none() {
        return Ok(event);
    }
    Ok(match event {
        WatchEvent::Added(object) => WatchEvent::Added(convert(webhooks, kind, object).await?),
        WatchEvent::Modified(object) => WatchEvent::Modified(convert(webhooks, kind, object).await?),
        WatchEvent::Deleted(object) => WatchEvent::Deleted(convert(webhooks, kind, object).await?),
        WatchEvent::InitialEventsEnd(_) => event,
    })
}

/// Returns the time of the next bookmark: after the interval or shortly before the end.
fn bookmark_after(now: Duration, deadline: Duration) -> Duration {
    let last = deadline.saturating_sub(LAST_BOOKMARK);
    let next = now.saturating_add(BOOKMARK_INTERVAL);
    if now < last { next.min(last) } else { Duration::MAX }
}

impl Stream {
    /// Returns the next lines. `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            let until = if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
            let now = self.clock.monotonic();
            let clock = &self.clock;
            let timer = self.timer.get_or_insert_with(|| clock.sleep(until.saturating_sub(now)));
            tokio::select! {
                biased;
                () = self.open.cancelled() => return None,
                event = self.watcher.next() => {
                    let lines = self.read_events(event).await;
                    if !lines.is_empty() {
                        return Some(lines.into());
                    }
                }
                // After all events, among them the deletions of a definition's last objects.
                () = self.retired.cancelled() => return None,
                () = timer => {
                    self.timer = None;
                    let now = self.clock.monotonic();
                    if now >= self.deadline {
                        return None;
                    }
                    if self.bookmarks && now >= self.next_bookmark {
                        self.next_bookmark = bookmark_after(now, self.deadline);
                        let mut lines = Vec::new();
                        // All returned events are covered: the revision is that of the watcher.
                        self.bookmark(&mut lines, self.watcher.revision(), false);
                        return Some(lines.into());
                    }
                }
            }
        }
        None
    }

    /// Serializes `event` and further available events, up to a chunk.
    async fn read_events(&mut self, mut event: Result<WatchEvent, ApiStatus>) -> Vec<u8> {
        let mut lines = Vec::new();
        self.view.now = self.clock.now();
        loop {
            let converted = match event {
                Ok(event) => converted(self.webhooks.as_ref(), &self.view.target.kind, event).await,
                Err(status) => Err(status),
            };
            match converted {
                Ok(event) => self.line(&mut lines, &event),
                Err(status) => {
                    response::write_event(&mut lines, "ERROR", &status.to_value());
                    self.ended = true;
                    return lines;
                }
            }
            if lines.len() >= CHUNK {
                return lines;
            }
            event = match self.watcher.try_next() {
                Ok(Some(event)) => Ok(event),
                Ok(None) => return lines,
                Err(status) => Err(status),
            };
        }
    }

    fn line(&mut self, lines: &mut Vec<u8>, event: &WatchEvent) {
        let (kind, object) = match event {
            WatchEvent::Added(object) => ("ADDED", object),
            WatchEvent::Modified(object) => ("MODIFIED", object),
            WatchEvent::Deleted(object) => ("DELETED", object),
            WatchEvent::InitialEventsEnd(revision) => {
                if self.mark_initial_end {
                    self.bookmark(lines, *revision, true);
                }
                return;
            }
        };
        let text = self.view.event_object(object, !self.columns_sent);
        self.columns_sent = true;
        lines.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        lines.extend_from_slice(text.trim_ascii_end());
        lines.extend_from_slice(b"}\n");
    }

    fn bookmark(&self, lines: &mut Vec<u8>, revision: u64, initial_end: bool) {
        response::write_event(lines, "BOOKMARK", &self.view.bookmark(revision, initial_end));
    }
}
