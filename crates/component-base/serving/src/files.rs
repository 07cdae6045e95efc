//! Files that are reloaded when they change.

use std::{
    collections::hash_map::DefaultHasher,
    fmt,
    hash::{Hash, Hasher},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use kcm_clock::Clock;
use parking_lot::Mutex;

use crate::ServingError;

/// Minimum time between checks for changes. Files are checked only when their value is used.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
/// While the files are invalid, the previous value stays in use. Each distinct error is logged once.
///
/// Upstream counterpart: `dynamiccertificates.DynamicFileCAContent`, which watches the files.
pub(crate) struct Watched<T> {
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
    logged_error: Option<String>,
}

impl<T> Watched<T> {
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
        let state = State { value: Arc::new(parse(&read)?), hash: hash(&read), checked, logged_error: None };
        Ok(Self { files, parse: Box::new(parse), clock, state: Mutex::new(state) })
    }

    /// Current value. Reads the files, which blocks, at most once a second.
    pub(crate) fn current(&self) -> Arc<T> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if now.saturating_sub(state.checked) >= CHECK_INTERVAL {
            state.checked = now;
            if let Err(error) = self.reload(&mut state) {
                state.log_error(&error);
            }
        }
        Arc::clone(&state.value)
    }

    fn reload(&self, state: &mut State<T>) -> Result<(), ServingError> {
        let read = read(&self.files)?;
        let hash = hash(&read);
        if state.hash == hash {
            return Ok(());
        }
        state.hash = hash;
        state.value = Arc::new((self.parse)(&read)?);
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

impl<T> fmt::Display for Watched<T> {
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
        f.debug_struct("Watched").field("files", &self.files).finish_non_exhaustive()
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

    #[test]
    fn reloads_changed_file_after_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("n");
        std::fs::write(&path, "1").unwrap();
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let watched = open(&path, &clock).unwrap();
        std::fs::write(&path, "2").unwrap();
        assert_eq!(*watched.current(), 1);
        clock.step(CHECK_INTERVAL);
        assert_eq!(*watched.current(), 2);
    }

    #[test]
    fn invalid_file_keeps_the_previous_value() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("n");
        std::fs::write(&path, "1").unwrap();
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let watched = open(&path, &clock).unwrap();
        std::fs::write(&path, "x").unwrap();
        clock.step(CHECK_INTERVAL);
        assert_eq!(*watched.current(), 1);
        std::fs::remove_file(&path).unwrap();
        clock.step(CHECK_INTERVAL);
        assert_eq!(*watched.current(), 1);
        assert!(watched.state.lock().logged_error.as_ref().unwrap().starts_with("number file \""));
        std::fs::write(&path, "3").unwrap();
        clock.step(CHECK_INTERVAL);
        assert_eq!(*watched.current(), 3);
        assert_eq!(watched.state.lock().logged_error, None);
    }

    #[test]
    fn error_names_the_file() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let error = open(std::path::Path::new("/no/such"), &clock).unwrap_err().to_string();
        assert_eq!(error, "number file \"/no/such\": No such file or directory (os error 2)");
    }
}
