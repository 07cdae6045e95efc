//! Captured log.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};

use tracing::{
    Dispatch,
    level_filters::LevelFilter,
    subscriber::{DefaultGuard, NoSubscriber},
};
use tracing_subscriber::fmt::MakeWriter;

/// Log in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    /// Captures the lines that the current thread logs at `level` and above, until the guard is dropped.
    #[must_use]
    pub fn of_this_thread(level: LevelFilter) -> (Self, DefaultGuard) {
        // With a single dispatcher in the process, a line is enabled for all threads according to the dispatcher of the
        // thread that logs it first. That thread may have none.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(NoSubscriber::new()));
        let log = Self::default();
        let format = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
        let guard = tracing::subscriber::set_default(format.with_writer(log.clone()).finish());
        (log, guard)
    }

    /// Returns the lines.
    ///
    /// # Panics
    ///
    /// If the log is not UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for CapturedLog {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_lines_that_another_thread_has_logged_first() {
        fn log() {
            tracing::warn!("same line");
        }
        let (captured, _guard) = CapturedLog::of_this_thread(LevelFilter::INFO);
        std::thread::spawn(log).join().unwrap();
        log();
        assert_eq!(captured.text().matches("same line").count(), 1);
    }
}
