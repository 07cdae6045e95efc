//! Recorded cases: JSON lines, optionally compressed with xz.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use serde_json::Value;
use thiserror::Error;

/// Error while reading recorded cases.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("failed to read {name}: {source}")]
    Read {
        /// File name.
        name: String,
        /// Cause.
        source: io::Error,
    },
    /// The file is not valid xz data.
    #[error("failed to decompress {name}: {reason}")]
    Xz {
        /// File name.
        name: String,
        /// Cause.
        reason: String,
    },
    /// A line is not valid JSON.
    #[error("{name}:{line}: {source}")]
    Json {
        /// File name.
        name: String,
        /// Line number, from 1.
        line: usize,
        /// Cause.
        source: serde_json::Error,
    },
}

/// First bytes of an xz stream.
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

/// Reads the cases in the file `name`, one per line; `-` is stdin.
pub fn cases(name: &str) -> Result<Vec<Value>, InputError> {
    let read = |source| InputError::Read { name: name.to_owned(), source };
    let bytes = if name == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map_err(read)?;
        bytes
    } else {
        fs::read(Path::new(name)).map_err(read)?
    };
    let bytes = if bytes.starts_with(XZ_MAGIC) {
        let mut plain = Vec::new();
        lzma_rs::xz_decompress(&mut bytes.as_slice(), &mut plain)
            .map_err(|error| InputError::Xz { name: name.to_owned(), reason: format!("{error:?}") })?;
        plain
    } else {
        bytes
    };
    bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.trim_ascii().is_empty())
        .map(|(at, line)| {
            serde_json::from_slice(line).map_err(|source| InputError::Json {
                name: name.to_owned(),
                line: at + 1,
                source,
            })
        })
        .collect()
}
