//! Files that are reloaded when they change.

use std::{
    collections::hash_map::DefaultHasher,
    fmt,
    hash::{Hash, Hasher},
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use kcm_clock::Clock;
use parking_lot::Mutex;

use crate::ServingError;

/// Minimum time between checks for changes. Files are checked only when their value is used.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which the caller waits for a check, by the clock of the operating system. Only a file system that does not answer takes
/// longer.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// Contents of a file.
pub(crate) struct File {
    /// Purpose of the file, such as `certificate file`.
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

type Parse<T> = Box<dyn Fn(&[File]) -> Result<T, ServingError> + Send + Sync>;

/// Value that is parsed from files and reloaded when they change.
///
/// While the files are invalid, or their file system does not answer, the previous value stays in use. Each distinct error is logged
/// once.
///
/// Upstream counterpart: `dynamiccertificates.DynamicFileCAContent`, which watches the files.
pub(crate) struct Watched<T>(Arc<Inner<T>>);

struct Inner<T> {
    files: Vec<(&'static str, PathBuf)>,
    parse: Parse<T>,
    clock: Arc<dyn Clock>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    /// Hash of the contents that were parsed last, with or without success.
    hash: u64,
    checked: Duration,
    /// `true` while the files are read.
    is_loading: bool,
    logged_error: Option<String>,
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads and parses `files`.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or `parse` fails.
    pub(crate) fn open(
        files: Vec<(&'static str, PathBuf)>,
        parse: impl Fn(&[File]) -> Result<T, ServingError> + Send + Sync + 'static,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let checked = clock.monotonic();
        let read = read(&files)?;
        let (value, hash) = (Arc::new(parse(&read)?), hash(&read));
        let state = State { value, hash, checked, is_loading: false, logged_error: None };
        Ok(Self(Arc::new(Inner { files, parse: Box::new(parse), clock, state: Mutex::new(state) })))
    }

    /// Current value. Reads the files in a thread, at most once a second, and waits for that, for a short time only.
    pub(crate) fn current(&self) -> Arc<T> {
        if self.0.begin_check() {
            let (inner, (sender, receiver)) = (Arc::clone(&self.0), mpsc::channel());
            let check = move || {
                inner.check();
                // The caller may have stopped waiting.
                let _ = sender.send(());
            };
            match thread::Builder::new().name("reload files".to_owned()).spawn(check) {
                // The sender is dropped at the end of the check.
                Ok(_) => drop(receiver.recv_timeout(MAX_WAIT)),
                Err(_) => self.0.state.lock().is_loading = false,
            }
        }
        Arc::clone(&self.0.state.lock().value)
    }
}

impl<T> Inner<T> {
    /// `true` if a check is due, which is counted as begun.
    fn begin_check(&self) -> bool {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let is_due = !state.is_loading && now.saturating_sub(state.checked) >= CHECK_INTERVAL;
        if is_due {
            (state.checked, state.is_loading) = (now, true);
        }
        is_due
    }

    fn check(&self) {
        let outcome = self.reload();
        let mut state = self.state.lock();
        state.is_loading = false;
        if let Err(error) = outcome {
            state.log_error(&error);
        }
    }

    fn reload(&self) -> Result<(), ServingError> {
        let read = read(&self.files)?;
        let hash = hash(&read);
        if self.state.lock().hash == hash {
            return Ok(());
        }
        let value = (self.parse)(&read);
        let mut state = self.state.lock();
        state.hash = hash;
        state.value = Arc::new(value?);
        state.logged_error = None;
        tracing::info!(files = %self, "Reloaded files");
        Ok(())
    }
}

impl<T> State<T> {
    fn log_error(&mut self, error: &ServingError) {
        let text = error.to_string();
        if self.logged_error.as_ref() != Some(&text) {
            tracing::error!(err = text, "Failed to reload files, keeping the previous contents");
            self.logged_error = Some(text);
        }
    }
}

impl<T> fmt::Display for Inner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (_, path)) in self.files.iter().enumerate() {
            let separator = if n == 0 { "" } else { "," };
            write!(f, "{separator}{}", path.display())?;
        }
        Ok(())
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("files", &self.0.files).finish_non_exhaustive()
    }
}

impl File {
    /// Error with the name of this file.
    pub(crate) fn error(&self, cause: impl fmt::Display) -> ServingError {
        ServingError::File { what: self.what, path: self.path.clone(), cause: cause.to_string() }
    }
}

fn read(files: &[(&'static str, PathBuf)]) -> Result<Vec<File>, ServingError> {
    let read = |(what, path): &(&'static str, PathBuf)| match std::fs::read(path) {
        Ok(content) => Ok(File { what, path: path.clone(), content }),
        Err(error) => Err(ServingError::File { what, path: path.clone(), cause: error.to_string() }),
    };
    files.iter().map(read).collect()
}

/// Hash of the contents. Avoids a second copy of private keys in memory.
fn hash(files: &[File]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.content.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    fn number(files: &[File]) -> Result<u32, ServingError> {
        let [file] = files else { panic!("one file") };
        let text = String::from_utf8_lossy(&file.content);
        text.trim().parse().map_err(|error| file.error(error))
    }

    fn open(path: &std::path::Path, clock: &FakeClock) -> Result<Watched<u32>, ServingError> {
        Watched::open(vec![("number file", path.to_owned())], number, Arc::new(clock.clone()))
    }

    /// File with the number 1.
    struct Fixture {
        _directory: tempfile::TempDir,
        path: PathBuf,
        clock: FakeClock,
        watched: Watched<u32>,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("n");
            std::fs::write(&path, "1").unwrap();
            let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
            Self { watched: open(&path, &clock).unwrap(), _directory: directory, path, clock }
        }
    }

    #[test]
    fn reloads_changed_file_after_a_second() {
        let Fixture { path, clock, watched, _directory } = Fixture::new();
        std::fs::write(&path, "2").unwrap();
        assert_eq!(*watched.current(), 1);
        clock.step(CHECK_INTERVAL);
        assert_eq!(*watched.current(), 2);
    }

    #[test]
    fn invalid_file_keeps_the_previous_value() {
        let Fixture { path, clock, watched, _directory } = Fixture::new();
        std::fs::write(&path, "x").unwrap();
        clock.step(CHECK_INTERVAL);
        assert_eq!(*watched.current(), 1);
        std::fs::remove_file(&path).unwrap();
        clock.step(CHECK_INTERVAL);
        assert_eq!(*watched.current(), 1);
        assert!(watched.0.state.lock().logged_error.as_ref().unwrap().starts_with("number file \""));
        std::fs::write(&path, "3").unwrap();
        clock.step(CHECK_INTERVAL);
        assert_eq!(*watched.current(), 3);
        assert_eq!(watched.0.state.lock().logged_error, None);
    }

    #[test]
    fn file_system_that_does_not_answer_keeps_the_previous_value() {
        let Fixture { path, clock, watched, _directory } = Fixture::new();
        // Nothing can be read from a pipe that has no writer.
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        for _ in 0..3 {
            clock.step(CHECK_INTERVAL);
            assert_eq!(*watched.current(), 1);
        }
        std::fs::write(&path, "2").unwrap();
        while *watched.current() != 2 {
            thread::yield_now();
        }
    }

    #[test]
    fn error_names_the_file() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let error = open(std::path::Path::new("/no/such"), &clock).unwrap_err().to_string();
        assert_eq!(error, "number file \"/no/such\": No such file or directory (os error 2)");
    }
}
