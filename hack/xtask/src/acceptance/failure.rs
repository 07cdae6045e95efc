//! Why a check did not pass.

use std::{fmt, io};

/// What was expected and what happened instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure in these words.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The first line, cut to what fits a table.
    pub fn summary(&self) -> String {
        let line = self.0.lines().next().unwrap_or_default();
        if line.chars().count() > 120 {
            format!("{}…", line.chars().take(119).collect::<String>())
        } else {
            line.to_owned()
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Fails with `message` unless `holds`.
pub(super) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure(message())) }
}

/// Fails unless both are the same.
pub(super) fn same<T: PartialEq + fmt::Debug>(what: &str, is: &T, wanted: &T) -> Result<(), Failure> {
    ensure(is == wanted, || format!("{what} is {is:?}, wanted {wanted:?}"))
}
