//! From a recorder to the sink.

use std::{sync::Arc, time::Duration};

use kcm_api::Time;
use kcm_clock::{Clock, Random};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::{
    EventRecorder, EventSink, EventType, ObjectReference, correlator::Correlator, name::Names, object::Event,
    writer::Writer,
};

/// How many events may wait to be written. More are dropped.
pub const MAX_QUEUED_EVENTS: usize = 1000;

/// Makes recorders, and writes what they are told.
///
/// Upstream counterpart: `record.EventBroadcaster`.
#[derive(Debug)]
pub struct EventBroadcaster {
    queue: mpsc::Sender<Event>,
    names: Arc<Names>,
    clock: Arc<dyn Clock>,
    /// Cancelled to ask the writer to finish what is queued.
    closing: CancellationToken,
    /// Cancelled to ask it to drop everything.
    abandon: CancellationToken,
    /// Cancelled by the writer when it is gone.
    finished: CancellationToken,
}

impl EventBroadcaster {
    /// Starts writing to `sink`, in a task of its own. `random` spreads retries and makes up names.
    ///
    /// The task ends with [`shutdown`](Self::shutdown), or when the broadcaster and all its recorders are gone.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(sink: Arc<dyn EventSink>, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let (queue, queued) = mpsc::channel(MAX_QUEUED_EVENTS);
        let names = Arc::new(Names::new(Arc::clone(&random)));
        let writer = Writer {
            queue: queued,
            correlator: Correlator::new(&clock, Arc::clone(&names)),
            sink,
            clock: Arc::clone(&clock),
            random,
            is_writing: false,
        };
        let (closing, abandon, finished) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let running = writer.run(closing.clone(), abandon.clone());
        let finish = finished.clone().drop_guard();
        tokio::spawn(async move {
            // Told also if writing panics, so that nobody waits for a flush that will not come.
            let _finish = finish;
            running.await;
        });
        Self { queue, names, clock, closing, abandon, finished }
    }

    /// A recorder whose events come from `component`.
    pub fn recorder(&self, component: &str) -> Arc<dyn EventRecorder> {
        Arc::new(Recorder {
            queue: self.queue.clone(),
            names: Arc::clone(&self.names),
            clock: Arc::clone(&self.clock),
            component: component.into(),
        })
    }

    /// Takes no more events in, writes what is queued, and drops what is left when `within` has passed.
    ///
    /// # Cancel safety
    ///
    /// No more events are taken in from the first poll on; those queued are written, without bound, should
    /// the future be dropped.
    pub async fn shutdown(&self, within: Duration) {
        self.closing.cancel();
        tokio::select! {
            biased;
            () = self.finished.cancelled() => return,
            () = self.clock.sleep(within) => self.abandon.cancel(),
        }
        self.finished.cancelled().await;
    }
}

#[derive(Debug)]
struct Recorder {
    queue: mpsc::Sender<Event>,
    names: Arc<Names>,
    clock: Arc<dyn Clock>,
    component: Arc<str>,
}

impl EventRecorder for Recorder {
    fn event(&self, regarding: &ObjectReference, type_: EventType, reason: &str, message: String) {
        // Upstream's words and names, but for the text: tracing calls the words themselves the message.
        debug!(
            object = %format_args!("{}/{}", regarding.namespace, regarding.name),
            kind = %regarding.kind,
            apiVersion = %regarding.api_version,
            "type" = type_.as_str(),
            reason,
            note = message,
            "Event occurred"
        );
        let now = self.clock.now();
        let event = Event {
            name: self.names.generate(&regarding.name, now),
            regarding: regarding.clone(),
            type_,
            reason: reason.into(),
            message,
            component: Arc::clone(&self.component),
            reported: true,
            count: 1,
            first_timestamp: Time::new(now),
            last_timestamp: Time::new(now),
        };
        match self.queue.try_send(event) {
            Ok(()) => {}
            Err(TrySendError::Full(event)) => {
                error!(
                    name = event.name,
                    reason, "Unable to record event: too many queued events, dropped event"
                );
            }
            Err(TrySendError::Closed(event)) => {
                debug!(name = event.name, reason, "Event dropped: the broadcaster is shut down");
            }
        }
    }
}

#[cfg(test)]
mod tests;
