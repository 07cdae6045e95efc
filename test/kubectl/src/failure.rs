//! Failures of checks.

use std::{fmt, io};

/// Description of an unexpected result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// Creates a failure.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The first line, truncated for a table.
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

/// Returns a failure with `message` unless `holds`.
pub(super) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure(message())) }
}

/// Returns a failure unless both values are equal.
pub(super) fn same<T: PartialEq + fmt::Debug>(what: &str, actual: &T, expected: &T) -> Result<(), Failure> {
    ensure(actual == expected, || format!("{what} is {actual:?}, expected {expected:?}"))
}
