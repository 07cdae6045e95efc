//! Patch files that plant a bug.
//!
//! ```text
//! # A pod that is deleted is not counted off the expectations.
//! file: crates/controller/expectations/src/uid_tracking.rs
//! <<<<
//! the text that is there
//! ====
//! the text in its place
//! >>>>
//! ```
//!
//! Text is found by its content, not by its line number, so that patches apply after changes of other lines. Each block
//! must be found exactly once; indentation is ignored. A line `missed` marks a bug that neither a seed nor a schedule of the
//! search finds. `PLANTED` is replaced by an expression that is `true` if the bug is active: all bugs are compiled into one
//! program, and one of them is active in a run.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Environment variable that names the active bug.
pub const VARIABLE: &str = "KCM_PLANTED_BUG";

/// A planted bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Name of its file, without the ending.
    pub name: String,
    /// Description of the bug.
    pub about: String,
    /// `true` if the bug is not found.
    pub is_missed: bool,
    blocks: Vec<Block>,
}

/// Text to replace in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    file: String,
    old: String,
    new: String,
}

/// A patch that cannot be used.
#[derive(Debug, Error)]
pub enum PatchError {
    /// A file cannot be read or written.
    #[error("failed to access {file}: {source}")]
    File {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not a patch.
    #[error("{name}.patch:{line}: {reason}")]
    Malformed {
        /// Name of the bug.
        name: String,
        /// Line, from 1.
        line: usize,
        /// The cause.
        reason: &'static str,
    },
    /// The code has changed.
    #[error("{name}.patch: found {times} times in {file}:\n{text}")]
    Found {
        /// Name of the bug.
        name: String,
        /// The file to patch.
        file: String,
        /// Number of times that the text was found.
        times: usize,
        /// The text.
        text: String,
    },
}

impl Patch {
    /// Reads all patches of a folder, by name.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>, PatchError> {
        let failed = |source| PatchError::File { file: folder.to_owned(), source };
        let mut patches = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "patch") {
                let text = fs::read_to_string(&path)
                    .map_err(|source| PatchError::File { file: path.clone(), source })?;
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                patches.push(Self::parse(&name, &text)?);
            }
        }
        patches.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(patches)
    }

    fn parse(name: &str, text: &str) -> Result<Self, PatchError> {
        let malformed = |line, reason| PatchError::Malformed { name: name.to_owned(), line, reason };
        let (mut about, mut file, mut blocks) = (String::new(), String::new(), Vec::new());
        let mut is_missed = false;
        // Text of the block that is open: the old one, then the new one.
        let mut open: Option<(String, Option<String>)> = None;
        let mut last = 0;
        for (at, line) in text.lines().enumerate() {
            last = at + 1;
            match (line, &mut open) {
                ("====", Some((_, new @ None))) => *new = Some(String::new()),
                (">>>>", Some((_, Some(_)))) => {
                    if let Some((old, Some(new))) = open.take() {
                        blocks.push(Block { file: file.clone(), old, new });
                    }
                }
                (line, Some((old, None))) => push_line(old, line),
                (line, Some((_, Some(new)))) => push_line(new, line),
                ("<<<<", None) if file.is_empty() => return Err(malformed(at + 1, "no file is named")),
                ("<<<<", None) => open = Some((String::new(), None)),
                ("", None) => {}
                ("missed", None) => is_missed = true,
                (line, None) => match (line.strip_prefix("# "), line.strip_prefix("file: ")) {
                    (Some(words), _) if about.is_empty() => about = words.to_owned(),
                    (Some(words), _) => about = format!("{about} {words}"),
                    (_, Some(named)) => named.clone_into(&mut file),
                    _ => return Err(malformed(at + 1, "neither a comment, a file nor a block")),
                },
            }
        }
        if open.is_some() || blocks.is_empty() || about.is_empty() {
            return Err(malformed(last, "the patch has no end, no block or no description"));
        }
        Ok(Self { name: name.to_owned(), about, is_missed, blocks })
    }

    /// Plants the bug in `sources`, which holds the text of files by their path and is filled from `tree`.
    pub fn apply(&self, tree: &Path, sources: &mut BTreeMap<String, String>) -> Result<(), PatchError> {
        for block in &self.blocks {
            let source = match sources.remove(&block.file) {
                Some(source) => source,
                None => {
                    let file = tree.join(&block.file);
                    fs::read_to_string(&file).map_err(|source| PatchError::File { file, source })?
                }
            };
            let found = find(&source, &block.old);
            let [(start, end)] = found[..] else {
                return Err(PatchError::Found {
                    name: self.name.clone(),
                    file: block.file.clone(),
                    times: found.len(),
                    text: block.old.clone(),
                });
            };
            let new = block.new.replace("PLANTED", &switch(&self.name));
            let patched = format!(
                "{}{new}{}",
                source.get(..start).unwrap_or_default(),
                source.get(end..).unwrap_or_default()
            );
            sources.insert(block.file.clone(), patched);
        }
        Ok(())
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Returns the byte ranges of `source` that have the lines of `text`, ignoring indentation.
fn find(source: &str, text: &str) -> Vec<(usize, usize)> {
    let wanted: Vec<&str> = text.lines().map(str::trim).collect();
    let mut lines = Vec::new();
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        lines.push((at, at + line.len(), line.trim()));
        at += line.len();
    }
    let matching = lines
        .windows(wanted.len().max(1))
        .filter(|window| window.iter().map(|(_, _, line)| *line).eq(wanted.iter().copied()));
    matching.filter_map(|window| Some((window.first()?.0, window.last()?.1))).collect()
}

/// An expression that is `true` if this bug is the active one. It is read once a process.
fn switch(name: &str) -> String {
    format!(
        "({{ static ON: std::sync::OnceLock<bool> = std::sync::OnceLock::new(); *ON.get_or_init(|| \
         std::env::var_os(\"{VARIABLE}\").is_some_and(|bug| bug == \"{name}\")) }})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# Two is three.\n# At times.\nmissed\nfile: a.rs\n<<<<\none\n  two\n====\nif PLANTED {}\n>>>>\n";

    #[test]
    fn patch_replaces_lines_whatever_their_indentation() {
        let patch = Patch::parse("bug", TEXT).unwrap();
        assert_eq!((&*patch.about, patch.is_missed), ("Two is three. At times.", true));
        let mut sources = BTreeMap::from([("a.rs".to_owned(), "zero\n    one\ntwo\nthree\n".to_owned())]);
        patch.apply(Path::new("."), &mut sources).unwrap();
        let patched = &sources["a.rs"];
        assert!(patched.starts_with("zero\nif ({") && patched.ends_with("{}\nthree\n"), "{patched}");
    }

    #[test]
    fn text_that_is_not_there_or_there_twice_is_refused() {
        let patch = Patch::parse("bug", TEXT).unwrap();
        for (source, times) in [("one\n", 0), ("one\ntwo\none\ntwo\n", 2)] {
            let mut sources = BTreeMap::from([("a.rs".to_owned(), source.to_owned())]);
            let error = patch.apply(Path::new("."), &mut sources).unwrap_err();
            assert!(matches!(error, PatchError::Found { times: found, .. } if found == times), "{error}");
        }
    }

    #[test]
    fn text_that_is_no_patch_is_refused() {
        for text in ["", "# About.\n", "file: a.rs\n<<<<\na\n====\n>>>>\n", "# About.\n<<<<\n", "what\n"] {
            assert!(Patch::parse("bug", text).is_err(), "{text:?}");
        }
    }
}
