//! The published crates of the workspace.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use crate::{TaskError, failed};

/// The workspace that this program belongs to.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Folder of build results.
    pub(crate) target: PathBuf,
    /// Published crates, by name.
    pub(crate) published: Vec<Published>,
}

/// A published crate.
pub(crate) struct Published {
    pub(crate) name: String,
    pub(crate) version: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// Registries to which the crate may be published. `None`: all.
    publish: Option<Vec<String>>,
}

impl Published {
    /// Name of the folder in the package.
    pub(crate) fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

impl Workspace {
    pub(crate) fn read() -> Result<Self, TaskError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().map_err(failed("find the workspace"))?;
        let output = run(cargo(&root).args(["metadata", "--no-deps", "--format-version", "1", "--locked"]))?;
        let metadata: Metadata = serde_json::from_str(&output)?;
        let packages = metadata.packages.into_iter().filter(|package| package.publish.is_none());
        let mut published: Vec<_> =
            packages.map(|Package { name, version, .. }| Published { name, version }).collect();
        published.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { root, target: metadata.target_directory, published })
    }
}

/// Returns a cargo command that runs in `folder`.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(folder);
    command
}

/// Runs a command and returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, TaskError> {
    let described = format!("{command:?}");
    let output = command.output().map_err(failed(format!("run {described}")))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(TaskError::Command { command: described, output });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
