//! Requests of `/readyz` throughout a test.

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

/// Time between two requests, by the clock of the test.
const INTERVAL: Duration = Duration::from_millis(50);
/// Time without an answer, by the clock of the test, after which the test fails. In simulated time, an answer takes
/// none.
const LATE: Duration = Duration::from_secs(10);
/// The same in real time. Simulated time stands still while a task is busy, so a loop without an end shows only here.
const STUCK: Duration = Duration::from_secs(60);

/// Requests `/readyz` every [`INTERVAL`] until it is dropped. Dropping it fails the test if an answer was late.
pub(crate) struct ReadinessProbe {
    task: JoinHandle<()>,
    failures: Arc<AtomicU64>,
}

impl ReadinessProbe {
    pub(crate) fn start(server: &Arc<ApiServer>, clock: &Arc<dyn Clock>) -> Self {
        let options = ClientOptions::new(UserAgent::new("probe", "v0", ""), Arc::clone(clock));
        let client = ClientFactory::in_process(server.service(), options);
        let client = client.client("probe", RateLimit::UNLIMITED);
        let (clock, failures) = (Arc::clone(clock), Arc::new(AtomicU64::new(0)));
        let (failed, answered) = (Arc::clone(&failures), watch_for_a_standstill());
        let task = tokio::spawn(async move {
            loop {
                let began = clock.monotonic();
                let answer = client.send(&Request::get("/readyz")).await;
                clock.sleep(INTERVAL).await;
                if answer.is_err() || clock.monotonic().saturating_sub(began) > INTERVAL + LATE {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                let _ = answered.send(());
            }
        });
        Self { task, failures }
    }
}

/// Ends the process if nothing is sent for [`STUCK`]. Ends by itself when the sender is dropped.
fn watch_for_a_standstill() -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            match receiver.recv_timeout(STUCK) {
                Ok(()) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // The test's own thread cannot fail: it is busy.
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
        let failures = self.failures.load(Ordering::Relaxed);
        if !std::thread::panicking() {
            assert_eq!(failures, 0, "/readyz was not answered in time");
        }
    }
}
