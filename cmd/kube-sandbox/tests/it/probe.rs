//! Periodic requests to `/readyz` during a test.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::mpsc::{self, RecvTimeoutError},
    thread::JoinHandle,
    time::Duration,
};

/// Time between two requests.
const INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of a request. Much longer than any response takes on a busy machine.
const LATE: Duration = Duration::from_secs(10);

/// Requests `/readyz` every [`INTERVAL`] until dropped. Dropping it fails the test if a response was late.
pub(crate) struct ReadinessProbe {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl ReadinessProbe {
    /// Probes the server at `url`, an `http://` URL.
    pub(crate) fn start(url: &str) -> Self {
        let address: SocketAddr = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let answer =
                    request(address).map_err(|error| format!("/readyz was not answered: {error}"))?;
                if !answer.starts_with("HTTP/1.1 200 ") {
                    return Err(format!("/readyz was answered with {answer}"));
                }
            }
            Ok(())
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

fn request(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, LATE)?;
    stream.set_read_timeout(Some(LATE))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

impl Drop for ReadinessProbe {
    fn drop(&mut self) {
        drop(self.stop.take());
        let outcome = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(outcome, Some(Ok(Ok(())))), "{outcome:?}");
        }
    }
}
