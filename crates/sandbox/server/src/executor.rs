//! Executor of connections, in which clients take turns.
//!
//! The runtime polls ready tasks in the order in which they became ready. If connections were tasks of the runtime, a
//! request would wait for all requests of a burst. Here, the ready connections of each client form a queue, and a fixed
//! number of tasks polls the first ones.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Wake, Waker},
};

use futures_util::future::poll_fn;
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Notify, task::yield_now};

use crate::fair_queue::{Flow, Turns};

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Executor of connections. They run until they end, also after the executor is dropped.
pub(crate) struct Executor(Arc<Shared>);

/// Handle to spawn further futures in a flow, such as the requests of an HTTP/2 connection.
#[derive(Clone)]
pub(crate) struct Spawner {
    shared: Weak<Shared>,
    flow: Flow,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes a worker.
    ready: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<u64, Entry>,
    ready: Turns<u64>,
    next: u64,
    /// Number of workers that wait.
    idle: usize,
    /// The executor was dropped.
    closed: bool,
}

struct Entry {
    flow: Flow,
    status: Status,
    waker: Waker,
}

enum Status {
    Idle(Connection),
    Ready(Connection),
    Running,
    /// Woken while it is polled.
    RunningAndReady,
}

/// Waker of an entry. It does not own the future, which owns wakers.
struct EntryWaker {
    number: u64,
    shared: Weak<Shared>,
}

impl Executor {
    /// Starts an executor with a worker per thread of the runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), ready: Notify::new() });
        for _ in 0..Handle::current().metrics().num_workers() {
            tokio::spawn(work(Arc::clone(&shared)));
        }
        Self(shared)
    }

    /// Returns a handle to spawn futures in `flow`.
    pub(crate) fn spawner(&self, flow: Flow) -> Spawner {
        Spawner { shared: Arc::downgrade(&self.0), flow }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.wake_all_if_ended();
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("flow", &self.flow).finish_non_exhaustive()
    }
}

impl Spawner {
    /// Flow of the futures.
    pub(crate) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Runs `future`. Its output is dropped.
    pub(crate) fn spawn<F>(&self, future: F)
    where
        F: Future + Send + 'static,
    {
        let Some(shared) = self.shared.upgrade() else { return };
        let connection: Connection = Box::pin(async move { drop(future.await) });
        let mut state = shared.state.lock();
        let number = state.next;
        state.next += 1;
        let waker = Waker::from(Arc::new(EntryWaker { number, shared: Weak::clone(&self.shared) }));
        let flow = self.flow.clone();
        state.ready.push(&flow, number);
        state.entries.insert(number, Entry { flow, status: Status::Ready(connection), waker });
        shared.notify(&state);
    }
}

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        self.spawn(future);
    }
}

impl Wake for EntryWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.wake(self.number);
        }
    }
}

impl Shared {
    fn wake(&self, number: u64) {
        let mut state = self.state.lock();
        let State { entries, ready, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&number) else { return };
        match std::mem::replace(&mut entry.status, Status::RunningAndReady) {
            Status::Idle(connection) => {
                entry.status = Status::Ready(connection);
                ready.push(&entry.flow, number);
                self.notify(&state);
            }
            ready @ Status::Ready(_) => entry.status = ready,
            Status::Running | Status::RunningAndReady => {}
        }
    }

    /// Wakes a worker if one is idle.
    fn notify(&self, state: &State) {
        if state.idle > 0 {
            self.ready.notify_one();
        }
    }

    fn wake_all_if_ended(&self) {
        if self.state.lock().has_ended() {
            self.ready.notify_waiters();
        }
    }

    /// Polls the next connection. Returns `false` if none is ready.
    fn poll_next(&self) -> bool {
        let mut state = self.state.lock();
        let Some(number) = state.ready.pop() else { return false };
        if !state.ready.is_empty() {
            self.notify(&state);
        }
        let Some(entry) = state.entries.get_mut(&number) else { return true };
        let Status::Ready(mut connection) = std::mem::replace(&mut entry.status, Status::Running) else {
            return true;
        };
        let waker = entry.waker.clone();
        drop(state);
        // A panic ends the connection, as it ends a task of the runtime.
        let polled =
            catch_unwind(AssertUnwindSafe(|| connection.as_mut().poll(&mut Context::from_waker(&waker))));
        let mut state = self.state.lock();
        let State { entries, ready, .. } = &mut *state;
        if let Ok(Poll::Pending) = polled
            && let Some(entry) = entries.get_mut(&number)
        {
            if matches!(entry.status, Status::RunningAndReady) {
                entry.status = Status::Ready(connection);
                ready.push(&entry.flow, number);
            } else {
                entry.status = Status::Idle(connection);
            }
            return true;
        }
        entries.remove(&number);
        drop(state);
        // Without the lock, because the connection may wake others.
        drop(connection);
        self.wake_all_if_ended();
        true
    }
}

impl State {
    fn has_ended(&self) -> bool {
        self.closed && self.entries.is_empty()
    }
}

/// Polls connections until the executor is dropped and all connections have ended.
async fn work(shared: Arc<Shared>) {
    loop {
        if shared.poll_next() {
            // Lets the runtime run other tasks and receive events.
            yield_now().await;
            continue;
        }
        let notified = shared.ready.notified();
        {
            let mut state = shared.state.lock();
            if state.has_ended() {
                return;
            }
            if !state.ready.is_empty() {
                continue;
            }
            state.idle += 1;
        }
        notified.await;
        shared.state.lock().idle -= 1;
    }
}

/// Ends the turn of the connection that is being polled.
pub(crate) async fn end_turn() {
    let mut has_ended = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_ended, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
