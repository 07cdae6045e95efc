//! Files that may change while they are in use.

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

/// Files are looked at no more often than this, and only when what is in them is asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A file as it was read.
pub(crate) struct File {
    /// What it is for, such as `certificate file`.
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

type Parse<T> = Box<dyn Fn(&[File]) -> Result<T, ServingError> + Send + Sync>;

/// What is in some files, read anew when they change. While they are broken, what was in them before stays; that
/// is told once for each way of being broken.
///
/// Upstream counterpart: `dynamiccertificates.DynamicFileCAContent` and its kin, which watch instead.
pub(crate) struct Watched<T> {
    files: Vec<(&'static str, PathBuf)>,
    parse: Parse<T>,
    clock: Arc<dyn Clock>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    /// Of the content that was parsed last, well or not.
    print: u64,
    looked: Duration,
    complaint: Option<String>,
}

impl<T> Watched<T> {
    /// Reads `files` and parses them.
    ///
    /// # Errors
    ///
    /// When one cannot be read, or `parse` fails.
    pub(crate) fn open(
        files: Vec<(&'static str, PathBuf)>,
        parse: impl Fn(&[File]) -> Result<T, ServingError> + Send + Sync + 'static,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let looked = clock.monotonic();
        let read = read(&files)?;
        let state = State { value: Arc::new(parse(&read)?), print: print(&read), looked, complaint: None };
        Ok(Self { files, parse: Box::new(parse), clock, state: Mutex::new(state) })
    }

    /// What is in the files. Blocks, for as long as reading some small files takes, at most once a second.
    pub(crate) fn current(&self) -> Arc<T> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if now.saturating_sub(state.looked) >= LOOK_EVERY {
            state.looked = now;
            if let Err(error) = self.look(&mut state) {
                state.complain(&error);
            }
        }
        Arc::clone(&state.value)
    }

    fn look(&self, state: &mut State<T>) -> Result<(), ServingError> {
        let read = read(&self.files)?;
        let print = print(&read);
        if state.print == print {
            return Ok(());
        }
        state.print = print;
        state.value = Arc::new((self.parse)(&read)?);
        state.complaint = None;
        tracing::info!(files = %self, "Loaded what has changed");
        Ok(())
    }
}

impl<T> State<T> {
    fn complain(&mut self, error: &ServingError) {
        let text = error.to_string();
        if self.complaint.as_ref() != Some(&text) {
            tracing::error!(err = text, "Cannot load what has changed, going on with what was there before");
            self.complaint = Some(text);
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
    /// An error that names this file.
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

/// Of the content, so that no second copy of a key is kept.
fn print(files: &[File]) -> u64 {
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
    fn watched_file_that_changes_is_read_after_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("n");
        std::fs::write(&path, "1").unwrap();
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let watched = open(&path, &clock).unwrap();
        std::fs::write(&path, "2").unwrap();
        assert_eq!(*watched.current(), 1);
        clock.step(LOOK_EVERY);
        assert_eq!(*watched.current(), 2);
    }

    #[test]
    fn watched_file_that_breaks_leaves_what_was_there_and_heals() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("n");
        std::fs::write(&path, "1").unwrap();
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let watched = open(&path, &clock).unwrap();
        std::fs::write(&path, "x").unwrap();
        clock.step(LOOK_EVERY);
        assert_eq!(*watched.current(), 1);
        std::fs::remove_file(&path).unwrap();
        clock.step(LOOK_EVERY);
        assert_eq!(*watched.current(), 1);
        assert!(watched.state.lock().complaint.as_ref().unwrap().starts_with("number file \""));
        std::fs::write(&path, "3").unwrap();
        clock.step(LOOK_EVERY);
        assert_eq!(*watched.current(), 3);
        assert_eq!(watched.state.lock().complaint, None);
    }

    #[test]
    fn watched_file_that_is_not_there_is_named() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let error = open(std::path::Path::new("/no/such"), &clock).unwrap_err().to_string();
        assert_eq!(error, "number file \"/no/such\": No such file or directory (os error 2)");
    }
}
