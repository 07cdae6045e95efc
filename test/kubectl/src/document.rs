//! Table of results in `README.md`.

use std::{fs, io, path::Path};

use thiserror::Error;

use super::report::Report;

const BEGIN: &str =
    "<!-- kubectl-acceptance begins; written by `cargo xtask kubectl-acceptance --update-docs` -->";
const END: &str = "<!-- kubectl-acceptance ends -->";

/// Error while writing the table.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// The file has no markers.
    #[error("{0} contains no kubectl-acceptance markers")]
    Markers(String),
}

/// Writes the table of the report between the markers in the file at `path`.
pub fn update(path: &Path, report: &Report) -> Result<(), DocumentError> {
    let file = |source| DocumentError::File { path: path.display().to_string(), source };
    let text = fs::read_to_string(path).map_err(file)?;
    let updated = between_markers(&text, &section(report))
        .ok_or_else(|| DocumentError::Markers(path.display().to_string()))?;
    if updated != text {
        fs::write(path, updated).map_err(file)?;
    }
    Ok(())
}

fn section(report: &Report) -> String {
    let total = super::checks::all().len();
    let mut section = format!("{} of {total} pass.\n\n{}", report.passed(), report.table());
    let reasons = report.reasons();
    if !reasons.is_empty() {
        section.push_str("\nFailed and skipped checks:\n\n");
        section.push_str(&reasons);
    }
    section
}

fn between_markers(text: &str, section: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{section}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_replaces_the_text_between_the_markers() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = between_markers(&text, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert_eq!(between_markers(&new, "new\n").unwrap(), new);
        assert_eq!(between_markers("a", "new"), None);
    }
}
