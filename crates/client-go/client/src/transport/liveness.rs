//! Signs of life of the server of an HTTP/2 connection, and pings when there are none.

use std::{pin::pin, sync::Arc, time::Duration};

use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Time without a byte from the server after which a ping is sent.
pub(super) const PING_AFTER: Duration = Duration::from_secs(30);
/// The same while a request awaits its answer.
///
/// DEVIATION: upstream sends a ping after 30 s in any case.
pub(super) const AWAITED_PING_AFTER: Duration = Duration::from_secs(5);
/// Timeout of a ping. A dead connection is detected within 45 s, as upstream, and within 25 s if a request is sent on it.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Time without a byte from the server, after a ping or after a request that was then given up, from which requests use
/// other connections.
pub(super) const SUSPECT_AFTER: Duration = Duration::from_secs(5);

/// Resolves when the server has sent nothing within [`PING_TIMEOUT`] of a ping.
///
/// DEVIATION: any byte counts as an answer. On a slow network the answer waits behind the data of responses.
pub(super) async fn unanswered_ping(pings: Option<PingPong>, liveness: &Liveness) {
    // Taken once only.
    let Some(mut pings) = pings else { return };
    let mut last = liveness.start;
    loop {
        tokio::select! {
            biased;
            () = liveness.trigger.fired() => {}
            () = liveness.overdue(last) => {}
        }
        last = Instant::now();
        let mut pong = pin!(pings.ping(Ping::opaque()));
        let mut is_lost = pin!(async {
            liveness.silence(last, SUSPECT_AFTER).await;
            liveness.state.lock().is_suspect = true;
            liveness.trigger.fire();
            liveness.silence(last, PING_TIMEOUT).await;
        });
        tokio::select! {
            biased;
            pong = &mut pong => if pong.is_err() { return },
            () = &mut is_lost => return,
        }
    }
}

/// Trigger of pings on all connections of a process to one server. Fired when one of them is suspect: a dead connection of
/// watches is detected by pings only.
///
/// DEVIATION: in Go, the pings of one connection do not depend on others.
#[derive(Clone, Default)]
pub(super) struct PingTrigger(Arc<Notify>);

impl PingTrigger {
    /// Makes the connections send pings, except those that wait for the answer to one.
    pub(super) fn fire(&self) {
        self.0.notify_waiters();
    }

    /// Waits until it is fired after this call.
    pub(super) fn fired(&self) -> impl Future<Output = ()> {
        self.0.notified()
    }
}

/// Signs of life of the server. The driver and the senders of a connection share it.
pub(super) struct Liveness {
    start: Instant,
    state: Mutex<LivenessState>,
    trigger: PingTrigger,
}

struct LivenessState {
    /// Time of the last byte from the server.
    heard: Instant,
    is_suspect: bool,
    /// Number of requests that await their answers.
    awaited: usize,
}

impl Liveness {
    pub(super) fn new(trigger: PingTrigger) -> Self {
        let start = Instant::now();
        let state = LivenessState { heard: start, is_suspect: false, awaited: 0 };
        Self { start, state: Mutex::new(state), trigger }
    }

    /// Records a byte from the server.
    pub(super) fn hear(&self) {
        let mut state = self.state.lock();
        state.heard = Instant::now();
        state.is_suspect = false;
    }

    /// `true` if the server may be gone. Ends with the next byte from it.
    pub(super) fn is_suspect(&self) -> bool {
        self.state.lock().is_suspect
    }

    /// Waits until a ping is due. The silence begins at `since` at the earliest.
    async fn overdue(&self, since: Instant) {
        loop {
            let (heard, awaited) = {
                let state = self.state.lock();
                (state.heard, state.awaited)
            };
            let (now, limit) = (Instant::now(), if awaited > 0 { AWAITED_PING_AFTER } else { PING_AFTER });
            let end = heard.max(since) + limit;
            if end <= now {
                return;
            }
            // A request may be sent meanwhile.
            sleep_until(end.min(now + AWAITED_PING_AFTER)).await;
        }
    }

    /// Waits until nothing was heard for `duration`, which begins at `since` at the earliest.
    async fn silence(&self, since: Instant, duration: Duration) {
        loop {
            let end = self.state.lock().heard.max(since) + duration;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// Detects requests that are given up because there is no answer.
pub(super) struct AwaitedAnswer {
    liveness: Arc<Liveness>,
    since: Instant,
    has_ended: bool,
}

impl AwaitedAnswer {
    pub(super) fn new(liveness: &Arc<Liveness>) -> Self {
        liveness.state.lock().awaited += 1;
        Self { liveness: Arc::clone(liveness), since: Instant::now(), has_ended: false }
    }

    /// Ends the wait with an answer.
    pub(super) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for AwaitedAnswer {
    fn drop(&mut self) {
        let mut state = self.liveness.state.lock();
        state.awaited -= 1;
        if self.has_ended {
            return;
        }
        if state.heard.max(self.since) + SUSPECT_AFTER <= Instant::now() {
            state.is_suspect = true;
            self.liveness.trigger.fire();
        }
    }
}
