//! Observers of the requests of processes, and their findings.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Method, request::Parts};
use jiff::Timestamp;
use kcm_apiserver::{ApiServer, WatchStart, Watcher};
use serde::{Deserialize, Serialize};

use super::host::Process;

/// Start of every simulation, in milliseconds since 1970.
pub const START_MILLISECOND: i64 = 1_767_225_600_000;

/// Returns a watcher of all changes of `server`. `observer` receives them before the history of the server is full.
pub fn watch(observer: Arc<impl Observer + 'static>, server: &ApiServer) -> Watcher {
    let mut changes = server.watch_everything(WatchStart::Now);
    tokio::spawn(async move {
        while changes.next().await.is_ok() {
            while changes.try_next().is_ok_and(|change| change.is_some()) {}
            observer.catch_up();
        }
    });
    server.watch_everything(WatchStart::Now)
}

/// Line of the log of a run: the time in milliseconds since the start, and what happened.
pub fn log_line(now: Timestamp, what: &str) -> String {
    format!("{:>10} {what}", now.as_millisecond() - START_MILLISECOND)
}

/// Origin of a request.
#[derive(Debug, Clone)]
pub struct RequestOrigin {
    /// Sender.
    pub process: Arc<Process>,
    /// Oldest state that the request may be based on.
    pub basis: Timestamp,
    /// `true` if the client may have given the request up before it is executed.
    pub is_abandoned: bool,
}

/// Violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the rule, such as `converged`.
    pub rule: String,
    /// Description with object and write.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Observes the requests and processes of a simulation.
pub trait Observer: Send + Sync {
    /// Observes a request that a process sends.
    fn requested(&self, _process: &Process, _request: &Parts, _body: &Bytes) {}

    /// Observes a write that a process sends.
    fn sent(&self, process: &Process, method: &Method, path: &str);

    /// Observes the start of a process.
    fn process_starts(&self);

    /// Observes the exit of the program of a process.
    fn exited(&self, what: &str) {
        self.note(what);
    }

    /// Observes a panic of the program of a process.
    fn panicked(&self, what: &str);

    /// Observes a write that is executed although its sender may get no response.
    fn response_lost(&self, _path: &str) {}

    /// Observes the sender of the read that is executed next. Other requests may be executed before its end.
    fn begin_read(&self, _sender: &RequestOrigin, _path: &str) {}

    /// Observes the sender of the write that is executed next.
    fn begin_write(&self, sender: RequestOrigin);

    /// Observes the end of the write.
    fn finish_write(&self);

    /// Applies the changes of the store since the last call.
    fn catch_up(&self);

    /// Adds a line to the log.
    fn note(&self, what: &str);
}
