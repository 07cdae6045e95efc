//! Scenario files.

use std::{fs, io, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// A scenario file that cannot be used.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("failed to read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// The file is not a scenario.
    #[error("{file} is not a scenario: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// The cause.
        reason: String,
    },
}

/// Reads a scenario from a file.
pub fn read<S: DeserializeOwned>(path: &Path) -> Result<S, ScenarioError> {
    let file = path.display().to_string();
    let text =
        fs::read_to_string(path).map_err(|source| ScenarioError::Read { file: file.clone(), source })?;
    parse(&text, &file)
}

/// Reads a scenario from the text of `file`.
pub fn parse<S: DeserializeOwned>(text: &str, file: &str) -> Result<S, ScenarioError> {
    serde_saphyr::from_str(text)
        .map_err(|error| ScenarioError::Malformed { file: file.to_owned(), reason: error.to_string() })
}

/// The scenario as the text of a file.
pub fn to_text(scenario: &impl Serialize) -> String {
    serde_saphyr::to_string(scenario).unwrap_or_else(|error| format!("# cannot be written: {error}\n"))
}
