use std::{fmt, ops::ControlFlow, sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_clock::{Clock, Random};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    correlator::{Correlated, Correlator},
    event::Event,
    sink::EventSink,
};

/// Maximum number of attempts to write an event.
const MAX_TRIES: u32 = 12;

/// Delay between attempts. The first one is random, less than this.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Correlates and writes queued events, one after the other.
///
/// Upstream counterpart: the goroutine of `StartRecordingToSink`.
pub(crate) struct Writer {
    pub(crate) queue: mpsc::Receiver<Event>,
    pub(crate) correlator: Correlator,
    pub(crate) sink: Arc<dyn EventSink>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// `true` while an event is written that is no longer in the queue.
    pub(crate) is_writing: bool,
}

impl Writer {
    /// Writes events until all senders are dropped, until `closing` is cancelled and the queue is empty, or until
    /// `abandon` is cancelled.
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
                warn!(unwritten, "Events dropped at shutdown");
            }
        }
    }

    async fn write_all(&mut self, closing: &CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                event = self.queue.recv() => event,
                () = closing.cancelled(), if !self.queue.is_closed() => {
                    // The queued events are still received, then `None`.
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

    /// Writes an event, with retries.
    async fn write(&mut self, correlated: &Correlated) {
        for tries in 1..=MAX_TRIES {
            if self.try_write(correlated).await.is_break() {
                return;
            }
            if tries < MAX_TRIES {
                // The first delay is random, so that clients do not retry together when the API server returns.
                let share = if tries == 1 { self.random.unit() } else { 1.0 };
                self.clock.sleep(RETRY_INTERVAL.mul_f64(share)).await;
            }
        }
        error!(event = %LoggedEvent(&correlated.event), "Unable to write event (retry limit exceeded)");
    }

    /// Writes an event. Returns `Continue` if it must be retried.
    async fn try_write(&mut self, correlated: &Correlated) -> ControlFlow<()> {
        match self.send(correlated).await {
            Ok(stored) => {
                self.correlator.update_state(correlated, &stored);
                ControlFlow::Break(())
            }
            Err(err @ ApiError::Status(_)) => {
                let event = LoggedEvent(&correlated.event);
                if err.is_already_exists() || err.is_namespace_terminating() {
                    debug!(%event, %err, "Server rejected event (will not retry)");
                } else {
                    error!(%event, %err, "Server rejected event (will not retry)");
                }
                ControlFlow::Break(())
            }
            Err(err @ ApiError::InvalidRequest(_)) => {
                error!(event = %LoggedEvent(&correlated.event), %err, "Unable to construct event (will not retry)");
                ControlFlow::Break(())
            }
            // The new leader records the events of its own writes.
            Err(err @ ApiError::NotLeading(_)) => {
                debug!(event = %LoggedEvent(&correlated.event), %err, "Event dropped");
                ControlFlow::Break(())
            }
            Err(
                err @ (ApiError::NotSent(_)
                | ApiError::Timeout(_)
                | ApiError::Transport(_)
                | ApiError::Decode(_)),
            ) => {
                let event = LoggedEvent(&correlated.event);
                error!(%event, %err, "Unable to write event (may retry after sleeping)");
                ControlFlow::Continue(())
            }
        }
    }

    async fn send(&self, correlated: &Correlated) -> Result<serde_json::Value, ApiError> {
        let event = &correlated.event;
        if correlated.is_repetition() {
            match self.sink.patch(event.namespace(), &event.name, &event.to_patch()).await {
                // The event has expired, or the rate limit prevented its creation.
                Err(error) if error.is_not_found() => {}
                result => return result,
            }
        }
        self.sink.create(event.namespace(), &event.to_json()).await
    }
}

/// Event in log messages.
struct LoggedEvent<'a>(&'a Event);

impl fmt::Display for LoggedEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
