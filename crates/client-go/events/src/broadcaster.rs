use std::{sync::Arc, time::Duration};

use kcm_api::Time;
use kcm_clock::{Clock, Random};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::{
    correlator::Correlator,
    event::Event,
    name::Names,
    object_reference::ObjectReference,
    recorder::{EventRecorder, EventType},
    sink::EventSink,
    writer::Writer,
};

/// Capacity of the queue of events. Events that are recorded while it is full are dropped.
pub const MAX_QUEUED_EVENTS: usize = 1000;

/// Creates recorders, and writes the events of all of them to a sink.
///
/// Upstream counterpart: `record.EventBroadcaster`.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use async_trait::async_trait;
/// use kcm_api::ApiError;
/// use kcm_clock::{RealClock, SeededRandom};
/// use kcm_events::{Event, EventBroadcaster, EventSink, EventType, ObjectReference, StoredEvent};
///
/// /// Prints events. In a cluster, the sink sends requests.
/// struct Printer;
///
/// #[async_trait]
/// impl EventSink for Printer {
///     async fn create(&self, event: &Event) -> Result<StoredEvent, ApiError> {
///         println!("{}: {}", event.namespace(), event.message);
///         Ok(StoredEvent::default())
///     }
///
///     async fn patch(&self, event: &Event) -> Result<StoredEvent, ApiError> {
///         println!("{}: {} ({} times)", event.namespace(), event.message, event.count);
///         Ok(StoredEvent::default())
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let random = Arc::new(SeededRandom::from_entropy());
/// let broadcaster = EventBroadcaster::start(Arc::new(Printer), Arc::new(RealClock::new()), random);
/// let recorder = broadcaster.recorder("website-operator");
/// recorder.event(&ObjectReference::default(), EventType::Normal, "Published", "Published web".to_owned());
/// broadcaster.shutdown(Duration::from_secs(5)).await;
/// # });
/// ```
#[derive(Debug)]
pub struct EventBroadcaster {
    queue: mpsc::Sender<Event>,
    names: Arc<Names>,
    clock: Arc<dyn Clock>,
    /// Cancelled to make the writer write the queued events and end.
    closing: CancellationToken,
    /// Cancelled to make the writer drop the queued events and end.
    abandon: CancellationToken,
    /// Cancelled when the writer has ended.
    finished: CancellationToken,
}

impl EventBroadcaster {
    /// Starts a task that writes events to `sink`. `random` is used for retries and names.
    ///
    /// The task ends after [`shutdown`](Self::shutdown), or when the broadcaster and all recorders are dropped.
    ///
    /// # Panics
    ///
    /// If called outside of a tokio runtime.
    pub fn start(sink: Arc<dyn EventSink>, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let (queue, queued) = mpsc::channel(MAX_QUEUED_EVENTS);
        let names = Arc::new(Names::new(Arc::clone(&random)));
        let correlator = Correlator::new(&clock, Arc::clone(&names));
        let writer = Writer::new(queued, correlator, sink, Arc::clone(&clock), random);
        let (closing, abandon, finished) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let running = writer.run(closing.clone(), abandon.clone());
        let finish = finished.clone().drop_guard();
        tokio::spawn(async move {
            // Cancels `finished` also if the writer panics, so that `shutdown` returns.
            let _finish = finish;
            running.await;
        });
        Self { queue, names, clock, closing, abandon, finished }
    }

    /// Creates a recorder for events of `component`.
    pub fn recorder(&self, component: &str) -> Arc<dyn EventRecorder> {
        Arc::new(Recorder {
            queue: self.queue.clone(),
            names: Arc::clone(&self.names),
            clock: Arc::clone(&self.clock),
            component: component.into(),
        })
    }

    /// Stops recording, and waits until the queued events are written. Drops those that are not written within `timeout`.
    ///
    /// # Cancel safety
    ///
    /// Recording stops at the first poll. If the future is dropped, the queued events are written without a time limit.
    pub async fn shutdown(&self, timeout: Duration) {
        self.closing.cancel();
        tokio::select! {
            biased;
            () = self.finished.cancelled() => return,
            () = self.clock.sleep(timeout) => self.abandon.cancel(),
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
        // Text and keys are upstream's, except for `note`: tracing reserves `message` for the text.
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
            is_combined: false,
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
