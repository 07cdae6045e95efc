//! Writing events, one after the other.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_clock::{Clock, Random};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    EventSink,
    correlator::{Correlated, Correlator},
    object::Event,
};

/// So often an event is tried.
const MAX_TRIES: u32 = 12;

/// How long to wait between tries.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Takes events from the queue, correlates and writes them.
///
/// Upstream counterpart: the goroutine of `StartRecordingToSink`.
pub(crate) struct Writer {
    pub(crate) queue: mpsc::Receiver<Event>,
    pub(crate) correlator: Correlator,
    pub(crate) sink: Arc<dyn EventSink>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// Whether there is one that has been taken from the queue and is not through.
    pub(crate) is_writing: bool,
}

impl Writer {
    /// Writes until nobody can send any more, or `closing` is cancelled and the queue is empty, or `abandon`
    /// is cancelled.
    pub(crate) async fn run(mut self, closing: CancellationToken, abandon: CancellationToken) {
        let abandoned = tokio::select! {
            biased;
            () = abandon.cancelled() => true,
            () = self.write_all(&closing) => false,
        };
        if abandoned {
            self.queue.close();
            let queued = std::iter::from_fn(|| self.queue.try_recv().ok()).count();
            let unwritten = queued + usize::from(self.is_writing);
            if unwritten > 0 {
                warn!(unwritten, "Some events could not be written before the end");
            }
        }
    }

    async fn write_all(&mut self, closing: &CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                event = self.queue.recv() => event,
                () = closing.cancelled(), if !self.queue.is_closed() => {
                    // What is queued is still to come, then `None`.
                    self.queue.close();
                    continue;
                }
            };
            let Some(event) = event else { return };
            if let Some(correlated) = self.correlator.correlate(event) {
                self.is_writing = true;
                self.write(&correlated).await;
                self.is_writing = false;
            }
        }
    }

    /// Tries until it is no use any more.
    async fn write(&mut self, correlated: &Correlated) {
        for tries in 1..=MAX_TRIES {
            if self.try_write(correlated).await.is_break() {
                return;
            }
            if tries < MAX_TRIES {
                // At random the first time: many clients notice at once that the server is down, and should
                // not come back at once.
                let share = if tries == 1 { self.random.unit() } else { 1.0 };
                self.clock.sleep(RETRY_INTERVAL.mul_f64(share)).await;
            }
        }
        error!(event = %Described(&correlated.event), "Unable to write event (retry limit exceeded)");
    }

    /// Continues when another try may help.
    async fn try_write(&mut self, correlated: &Correlated) -> ControlFlow<()> {
        match self.send(correlated).await {
            Ok(answer) => {
                self.correlator.written(correlated, &answer);
                ControlFlow::Break(())
            }
            // The server is there and does not want this event.
            Err(error @ ApiError::Status(_)) => {
                let event = Described(&correlated.event);
                if error.is_already_exists() || error.is_namespace_terminating() {
                    debug!(%event, %error, "Server rejected event (will not retry)");
                } else {
                    error!(%event, %error, "Server rejected event (will not retry)");
                }
                ControlFlow::Break(())
            }
            // Whoever leads by now tells of what it does.
            Err(error @ ApiError::NotLeading(_)) => {
                debug!(event = %Described(&correlated.event), %error, "Event dropped");
                ControlFlow::Break(())
            }
            Err(
                error @ (ApiError::NotSent(_)
                | ApiError::Timeout(_)
                | ApiError::Transport(_)
                | ApiError::Decode(_)),
            ) => {
                let event = Described(&correlated.event);
                error!(%event, %error, "Unable to write event (may retry after sleeping)");
                ControlFlow::Continue(())
            }
        }
    }

    async fn send(&self, correlated: &Correlated) -> Result<serde_json::Value, ApiError> {
        let event = &correlated.event;
        if correlated.is_repetition() {
            match self.sink.patch(event.namespace(), &event.name, &event.to_patch()).await {
                // It has expired on the server, or was never written because the filter dropped it.
                Err(error) if error.is_not_found() => {}
                answered => return answered,
            }
        }
        self.sink.create(event.namespace(), &event.to_json()).await
    }
}

/// An event as logs name it.
struct Described<'a>(&'a Event);

impl std::fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Event { name, regarding, reason, message, .. } = self.0;
        write!(
            f,
            "{}/{name} ({} {}: {reason}: {message})",
            self.0.namespace(),
            regarding.kind,
            regarding.name
        )
    }
}
