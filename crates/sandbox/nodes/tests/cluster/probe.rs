//! Periodic requests to `/readyz` during a test.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use kcm_apiserver::ApiServer;
use kcm_client::{ClientFactory, ClientOptions, RateLimit, Request, UserAgent};
use kcm_clock::Clock;
use tokio::task::JoinHandle;

/// Time between two requests, on the clock of the test.
const INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time without a response, on the clock of the test.
const LATE: Duration = Duration::from_secs(10);
/// Maximum time without a response in real time. Simulated time stops while a task is busy, so only real time reveals
/// an endless loop.
const STUCK: Duration = Duration::from_secs(60);

/// Requests `/readyz` every [`INTERVAL`] until dropped. Dropping it fails the test if a response was late or is missing.
pub(crate) struct ReadinessProbe {
    task: JoinHandle<()>,
    answers: Arc<Answers>,
}

struct Answers {
    clock: Arc<dyn Clock>,
    failures: AtomicU64,
    /// Time of the last answer on the monotonic clock, in milliseconds.
    last: AtomicU64,
}

impl Answers {
    fn now(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_millis()).unwrap()
    }

    /// `true` if the last response is too old for the next one to be in time.
    fn is_late(&self) -> bool {
        let since = self.now() - self.last.load(Ordering::Relaxed);
        Duration::from_millis(since) > INTERVAL + LATE
    }

    fn add(&self, is_ok: bool) {
        if !is_ok || self.is_late() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.last.store(self.now(), Ordering::Relaxed);
    }
}

impl ReadinessProbe {
    pub(crate) fn start(server: &Arc<ApiServer>, clock: &Arc<dyn Clock>) -> Self {
        let options = ClientOptions::new(UserAgent::new("probe", "v0", ""), Arc::clone(clock));
        let client = ClientFactory::in_process(server.service(), options);
        let client = client.client("probe", RateLimit::UNLIMITED);
        let (failures, last) = (AtomicU64::new(0), AtomicU64::new(0));
        let answers = Arc::new(Answers { clock: Arc::clone(clock), failures, last });
        answers.last.store(answers.now(), Ordering::Relaxed);
        let (received, answered) = (Arc::clone(&answers), start_watchdog());
        let task = tokio::spawn(async move {
            loop {
                let answer = client.send(&Request::get("/readyz")).await;
                received.add(answer.is_ok());
                received.clock.sleep(INTERVAL).await;
                let _ = answered.send(());
            }
        });
        Self { task, answers }
    }
}

/// Aborts the process if nothing is sent for [`STUCK`]. Ends when the sender is dropped.
fn start_watchdog() -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            match receiver.recv_timeout(STUCK) {
                Ok(()) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // The thread of the test is busy and cannot panic.
                    eprintln!("/readyz was not answered for {STUCK:?}");
                    std::process::abort();
                }
            }
        }
    });
    sender
}

impl Drop for ReadinessProbe {
    fn drop(&mut self) {
        self.task.abort();
        if !std::thread::panicking() {
            let failures = self.answers.failures.load(Ordering::Relaxed);
            assert!(failures == 0 && !self.answers.is_late(), "/readyz was not answered in time");
        }
    }
}
