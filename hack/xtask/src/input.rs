//! Reading recorded cases: JSON lines, xz-compressed or not.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use serde_json::Value;
use thiserror::Error;

/// Cases that cannot be read.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Why not.
        source: io::Error,
    },
    /// The file is no xz data.
    #[error("cannot decompress {name}: {reason}")]
    Xz {
        /// The file.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A line is no JSON.
    #[error("{name}:{line}: {source}")]
    Json {
        /// The file.
        name: String,
        /// The line, from 1.
        line: usize,
        /// Why not.
        source: serde_json::Error,
    },
}

/// What an xz stream starts with.
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

/// The cases of the file `name`, one a line; `-` is standard input.
///
/// # Errors
///
/// When the file cannot be read, is cut off, or has a line that is no JSON.
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
