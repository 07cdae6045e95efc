//! Captured log.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::{level_filters::LevelFilter, subscriber::DefaultGuard};
use tracing_subscriber::fmt::MakeWriter;

/// Log in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    /// Captures the lines that the current thread logs at `level` and above, until the guard is dropped.
    #[must_use]
    pub fn of_this_thread(level: LevelFilter) -> (Self, DefaultGuard) {
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
