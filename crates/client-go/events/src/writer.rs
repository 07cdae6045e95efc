use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use kcm_api::ApiError;
use kcm_clock::{Clock, Random};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    correlator::{Correlated, Correlator},
    event::{Event, StoredEvent},
    key::RegardingKey,
    sink::EventSink,
};

/// Maximum number of attempts to write an event.
const MAX_TRIES: u32 = 12;

/// Delay between attempts. The first one is random, less than this.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of events that are written at the same time.
const MAX_CONCURRENT_WRITES: usize = 16;

/// Maximum number of events that are received from the queue and not yet written. Some of them wait for an earlier event
/// about the same object.
const MAX_RECEIVED: usize = 1000;

/// Number of such events above which [`MAX_CONCURRENT_WRITES`] are written at the same time, so that a rate limit that serves
/// other requests first does not delay them until the queue is full.
const MANY_RECEIVED: usize = MAX_RECEIVED / 2;

/// Correlates and writes queued events: those about one object one after the other, those about different objects at the
/// same time, as far as the sink allows it.
///
/// While writes wait for a rate limit, waiting events that repeat each other are written as one, with their number.
///
/// While the API server does not answer, one event is written at a time, so that few events exhaust their attempts.
///
/// Upstream counterpart: the goroutine of `StartRecordingToSink`.
///
/// DEVIATION: upstream writes all events one after the other, and each of them.
pub(crate) struct Writer {
    queue: mpsc::Receiver<Event>,
    correlator: Correlator,
    random: Arc<dyn Random>,
    sender: Sender,
    /// Writes that are not in progress: first those that are retried, then those of objects whose last write has ended.
    ready: VecDeque<Write>,
    /// Objects of all writes, with their next events.
    waiting: HashMap<RegardingKey, Waiting>,
    /// Number of events that are received and not yet written.
    received: usize,
    /// `true` after an attempt that must be retried, until the next answer of the API server.
    is_failing: bool,
}

/// Next events about an object.
#[derive(Default)]
struct Waiting {
    /// First of them, if it was correlated before its turn.
    correlated: Option<Correlated>,
    events: VecDeque<Event>,
}

/// Write of an event.
struct Write {
    correlated: Correlated,
    regarding: RegardingKey,
    /// Number of attempts that have ended.
    tries: u32,
    /// Delay of the next attempt.
    delay: Duration,
}

impl Writer {
    pub(crate) fn new(
        queue: mpsc::Receiver<Event>,
        correlator: Correlator,
        sink: Arc<dyn EventSink>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            queue,
            correlator,
            random,
            sender: Sender { sink, clock },
            ready: VecDeque::new(),
            waiting: HashMap::new(),
            received: 0,
            is_failing: false,
        }
    }

    /// Writes events until all senders are dropped, until `closing` is cancelled and the queue is empty, or until
    /// `abandon` is cancelled. Returns the number of events that were dropped then.
    pub(crate) async fn run(mut self, closing: CancellationToken, abandon: CancellationToken) -> usize {
        let abandoned = tokio::select! {
            biased;
            () = abandon.cancelled() => true,
            () = self.write_all(&closing) => false,
        };
        if !abandoned {
            return 0;
        }
        self.queue.close();
        let queued = std::iter::from_fn(|| self.queue.try_recv().ok()).count();
        let unwritten = queued + self.received;
        if unwritten > 0 {
            warn!(unwritten, "Events dropped at shutdown");
        }
        unwritten
    }

    async fn write_all(&mut self, closing: &CancellationToken) {
        let sender = self.sender.clone();
        let mut writes = FuturesUnordered::new();
        let mut at_end = false;
        loop {
            let limit = self.limit();
            while writes.len() < limit
                && let Some(write) = self.ready.pop_front()
            {
                writes.push(sender.attempt(write));
            }
            let has_room = self.received < MAX_RECEIVED;
            tokio::select! {
                biased;
                Some((write, result)) = writes.next() => self.handle(write, result),
                event = self.queue.recv(), if has_room && !at_end => match event {
                    Some(event) => self.receive(event),
                    None => at_end = true,
                },
                // The queued events are still received, then `None`.
                () = closing.cancelled(), if !self.queue.is_closed() => self.queue.close(),
                else => return,
            }
        }
    }

    /// Returns the maximum number of writes at the same time.
    fn limit(&self) -> usize {
        if self.is_failing {
            1
        } else if self.received > MANY_RECEIVED {
            MAX_CONCURRENT_WRITES
        } else {
            self.sender.sink.max_concurrent_writes().clamp(1, MAX_CONCURRENT_WRITES)
        }
    }

    /// Handles an event from the queue.
    fn receive(&mut self, event: Event) {
        let regarding = RegardingKey::of(&event.regarding);
        self.received += 1;
        if let Some(waiting) = self.waiting.get_mut(&regarding) {
            waiting.events.push_back(event);
            return;
        }
        let waiting = Waiting { correlated: None, events: VecDeque::from([event]) };
        self.waiting.insert(regarding, waiting);
        self.prepare_next(regarding);
    }

    /// Prepares the write of the next event about an object of which no write is left.
    fn prepare_next(&mut self, regarding: RegardingKey) {
        let combines = self.sender.sink.must_wait();
        let Some(waiting) = self.waiting.get_mut(&regarding) else { return };
        let mut next = waiting.correlated.take();
        while (next.is_none() || combines)
            && let Some(event) = waiting.events.pop_front()
        {
            let Some(correlated) = self.correlator.correlate(event) else {
                self.received -= 1;
                continue;
            };
            let Some(first) = &mut next else {
                next = Some(correlated);
                continue;
            };
            waiting.correlated = first.repeat(correlated);
            if waiting.correlated.is_some() {
                break;
            }
            self.received -= 1;
        }
        match next {
            Some(correlated) => {
                self.ready.push_back(Write { correlated, regarding, tries: 0, delay: Duration::ZERO });
            }
            None => drop(self.waiting.remove(&regarding)),
        }
    }

    /// Handles the result of an attempt.
    fn handle(&mut self, mut write: Write, result: Result<StoredEvent, ApiError>) {
        write.tries += 1;
        let event = LoggedEvent(&write.correlated.event);
        match result {
            Ok(stored) => {
                self.is_failing = false;
                self.correlator.update_state(&write.correlated, stored);
            }
            Err(err @ ApiError::Status(_)) => {
                self.is_failing = false;
                if err.is_already_exists() || err.is_namespace_terminating() {
                    debug!(%event, %err, "Server rejected event (will not retry)");
                } else {
                    error!(%event, %err, "Server rejected event (will not retry)");
                }
            }
            Err(err @ ApiError::InvalidRequest(_)) => {
                error!(%event, %err, "Unable to construct event (will not retry)");
            }
            // The new leader records the events of its own writes.
            Err(err @ ApiError::NotLeading(_)) => debug!(%event, %err, "Event dropped"),
            Err(
                err @ (ApiError::NotSent(_)
                | ApiError::Timeout(_)
                | ApiError::Transport(_)
                | ApiError::Decode(_)),
            ) => {
                error!(%event, %err, "Unable to write event (may retry after sleeping)");
                self.is_failing = true;
                if write.tries < MAX_TRIES {
                    // The first delay is random, so that clients do not retry together when the API server returns.
                    let share = if write.tries == 1 { self.random.unit() } else { 1.0 };
                    write.delay = RETRY_INTERVAL.mul_f64(share);
                    self.ready.push_front(write);
                    return;
                }
                error!(%event, "Unable to write event (retry limit exceeded)");
            }
        }
        self.received -= 1;
        self.prepare_next(write.regarding);
    }
}

/// Sends requests.
#[derive(Clone)]
struct Sender {
    sink: Arc<dyn EventSink>,
    clock: Arc<dyn Clock>,
}

impl Sender {
    /// Sends the request of `write` after its delay.
    async fn attempt(&self, write: Write) -> (Write, Result<StoredEvent, ApiError>) {
        if !write.delay.is_zero() {
            self.clock.sleep(write.delay).await;
        }
        let result = self.send(&write.correlated).await;
        (write, result)
    }

    async fn send(&self, correlated: &Correlated) -> Result<StoredEvent, ApiError> {
        let event = &correlated.event;
        if correlated.is_repetition() {
            match self.sink.patch(event).await {
                // The event has expired, or the rate limit prevented its creation.
                Err(error) if error.is_not_found() => {}
                result => return result,
            }
        }
        self.sink.create(event).await
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
