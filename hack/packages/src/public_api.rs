//! Snapshots of the public API of each published crate in `docs/api`.
//!
//! rustdoc's JSON is unstable. The version of the crate `public-api` belongs to the toolchain in `rust-toolchain.toml`.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

use public_api::Builder;

pub(crate) use public_api::Error;

use crate::{
    TaskError, failed,
    workspace::{Workspace, cargo, run},
};

/// Folder of the snapshots, from the root of the workspace.
const FOLDER: &str = "docs/api";

/// Compares the public API of each crate with its snapshot.
pub(crate) fn check(workspace: &Workspace) -> Result<(), TaskError> {
    document(workspace)?;
    let mut changes = String::new();
    for name in names(workspace) {
        let old = fs::read_to_string(snapshot(workspace, name)).unwrap_or_default();
        changes.push_str(&difference(name, &old, &describe(workspace, name)?));
    }
    if changes.is_empty() { Ok(()) } else { Err(TaskError::Changed(changes)) }
}

/// Writes the snapshots.
pub(crate) fn update(workspace: &Workspace) -> Result<(), TaskError> {
    document(workspace)?;
    fs::create_dir_all(workspace.root.join(FOLDER)).map_err(failed("create docs/api"))?;
    for name in names(workspace) {
        let file = snapshot(workspace, name);
        fs::write(&file, describe(workspace, name)?).map_err(failed(format!("write {}", file.display())))?;
    }
    Ok(())
}

fn names(workspace: &Workspace) -> impl Iterator<Item = &str> {
    workspace.published.iter().map(|published| published.name.as_str())
}

fn snapshot(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.root.join(FOLDER).join(format!("{name}.txt"))
}

/// Writes rustdoc's JSON of all published crates, with default features.
fn document(workspace: &Workspace) -> Result<(), TaskError> {
    let mut command = cargo(&workspace.root);
    command.args(["doc", "--no-deps", "--lib", "--locked", "--target-dir"]).arg(target(workspace));
    for name in names(workspace) {
        command.args(["--package", name]);
    }
    // Unstable options on a stable toolchain.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    run(&mut command).map(drop)
}

/// Folder of the JSON. It is not that of other builds, whose documentation stays as it is.
fn target(workspace: &Workspace) -> PathBuf {
    workspace.target.join("public-api")
}

/// Returns the public API of a crate, one item per line.
fn describe(workspace: &Workspace, name: &str) -> Result<String, TaskError> {
    let file = target(workspace).join("doc").join(format!("{}.json", name.replace('-', "_")));
    let api = Builder::from_rustdoc_json(&file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .map_err(|source| TaskError::PublicApi { file: file.clone(), source })?;
    let mut text = String::new();
    for item in api.items() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{item}");
    }
    Ok(text)
}

/// Returns the lines that only one of two snapshots has.
fn difference(name: &str, old: &str, new: &str) -> String {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (old.lines().collect(), new.lines().collect());
    let removed = old.difference(&new).map(|line| format!("{name}: - {line}\n"));
    let added = new.difference(&old).map(|line| format!("{name}: + {line}\n"));
    removed.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_lists_removed_and_added_items() {
        assert_eq!(difference("x", "pub fn a()\npub fn b()\n", "pub fn b()\n"), "x: - pub fn a()\n");
        assert_eq!(difference("x", "", "pub fn b()\n"), "x: + pub fn b()\n");
        assert_eq!(difference("x", "pub fn b()\n", "pub fn b()\n"), "");
    }
}
