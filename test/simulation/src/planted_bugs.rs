//! `cargo xtask planted-bugs`: holds the simulation to finding bugs that are known.
//!
//! All bugs are planted in a copy of the tree, each behind a switch, and the simulation is built there once. Then seeds and
//! schedules are run with one bug after the other until a rule is violated.

pub mod patch;
mod search;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use kcm_rollout_simulation::{SimulationError, parallel};
use thiserror::Error;

use self::patch::{Patch, PatchError, VARIABLE};
use crate::{
    explore,
    page::{PageError, Table},
    tree,
};

/// Seeds that are run with each bug.
pub const SEEDS: u64 = 2000;

/// Folder of the patches, from the root of the tree.
pub const FOLDER: &str = "test/planted-bugs";

/// Results of the searches.
const RESULTS: Table = Table {
    header: "\
| Bug | Found by seed | Rule | Surprises | Scenario | Rule | Scenario of a defect |
|---|---|---|---|---|---|---|
",
    key: &[0],
};

/// Row of a bug that is not found.
const NOT_FOUND: &str = "none |  | none |  |  | none";

/// Folders that are not copied.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// Arguments of the task.
#[derive(Debug)]
pub struct Task {
    names: Vec<String>,
    folder: Option<PathBuf>,
    jobs: usize,
}

/// Bugs that cannot be planted, or are not found.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A patch cannot be applied.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// A patch is named that does not exist.
    #[error("{FOLDER} has no {0}.patch")]
    Unknown(String),
    /// The copy cannot be made or used.
    #[error("failed to {what}: {source}")]
    Copy {
        /// Failed operation.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The copy does not build.
    #[error("cargo build ended with {0}")]
    Build(ExitStatus),
    /// A simulation cannot be run.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// The search of a bug failed.
    #[error("the search of {bug} ended with {status}")]
    Search {
        /// Name of the bug.
        bug: String,
        /// The exit status.
        status: ExitStatus,
    },
    /// The exploration cannot be run.
    #[error(transparent)]
    Explore(#[from] explore::TaskError),
    /// The table cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The simulation has a gap, or a patch is marked as missed in error.
    #[error("{}", .0.join("; "))]
    Unexpected(Vec<String>),
}

impl Task {
    /// Parses the words after `planted-bugs`; `None` if they make no sense.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let jobs = parallel::available();
        let mut task = Self { names: Vec::new(), folder: None, jobs };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--jobs" => task.jobs = words.next()?.parse().ok().filter(|jobs| *jobs > 0)?,
                "--dir" => task.folder = Some((*words.next()?).into()),
                flag if flag.starts_with('-') => return None,
                name => task.names.push(name.to_owned()),
            }
        }
        Some(task)
    }

    /// Plants the bugs, searches each, and writes the table of `docs/simulation.md`.
    pub fn run(&self) -> Result<(), TaskError> {
        let tree = tree();
        let patches = Patch::read_all(&tree.join(FOLDER))?;
        let chosen: Vec<&Patch> = if self.names.is_empty() {
            patches.iter().collect()
        } else {
            let find = |name: &String| patches.iter().find(|patch| patch.name == *name);
            let find = |name| find(name).ok_or_else(|| TaskError::Unknown(name.clone()));
            self.names.iter().map(find).collect::<Result<_, _>>()?
        };
        let temporary = tempfile::tempdir().map_err(failed("make a temporary folder"))?;
        let copy = self.folder.clone().unwrap_or_else(|| temporary.path().to_owned());
        copy_tree(&tree, &copy)?;
        plant(&patches, &tree, &copy)?;
        let build = Command::new("cargo")
            .args(["build", "--release", "--locked", "--package", "simulation-tasks"])
            .env("CARGO_TARGET_DIR", copy.join("target"))
            .current_dir(&copy)
            .status()
            .map_err(failed("run cargo"))?;
        if !build.success() {
            return Err(TaskError::Build(build));
        }
        let program = copy.join("target/release/find-planted-bug");
        let mut unexpected = Vec::new();
        for patch in chosen {
            let output = Command::new(&program)
                .args([self.jobs.to_string(), SEEDS.to_string()])
                .env(VARIABLE, &patch.name)
                .stderr(Stdio::inherit())
                .output()
                .map_err(failed("run the simulation"))?;
            if !output.status.success() {
                return Err(TaskError::Search { bug: patch.name.clone(), status: output.status });
            }
            let found = String::from_utf8_lossy(&output.stdout);
            let row = format!("| `{}` | {} |", patch.name, found.trim());
            println!("{row}");
            RESULTS.update(&tree, &row)?;
            match (found.trim() == NOT_FOUND, patch.is_missed) {
                (true, false) => unexpected.push(format!("{} is not found", patch.name)),
                (false, true) => unexpected.push(format!("{} is found, but marked as missed", patch.name)),
                _ => {}
            }
        }
        if unexpected.is_empty() { Ok(()) } else { Err(TaskError::Unexpected(unexpected)) }
    }
}

/// Searches the bug that the environment names. Returns the cells of its row: the first of `seeds` that finds it with the
/// rules, the fewest surprises with scenario and rules, and the first scenario of a defect that finds it.
///
/// Only programs built from a tree with planted bugs have any.
pub fn find(jobs: usize, seeds: u64) -> Result<String, TaskError> {
    let seed = search::by_seed(jobs, seeds)?.unwrap_or_else(|| "none | ".to_owned());
    let surprises = search::by_surprises(jobs)?.unwrap_or_else(|| "none |  | ".to_owned());
    let defect = search::by_scenarios_of_defects()?.unwrap_or_else(|| "none".to_owned());
    Ok(format!("{seed} | {surprises} | {defect}"))
}

/// Plants all bugs in a copy of the tree.
fn plant(patches: &[Patch], tree: &Path, copy: &Path) -> Result<(), TaskError> {
    for (file, text) in planted(patches, tree)? {
        let path = copy.join(&file);
        fs::write(&path, text).map_err(failed(&format!("write {file}")))?;
    }
    Ok(())
}

/// The text of all files that patches change, with all bugs planted.
pub fn planted(patches: &[Patch], tree: &Path) -> Result<BTreeMap<String, String>, PatchError> {
    let mut sources = BTreeMap::new();
    for patch in patches {
        patch.apply(tree, &mut sources)?;
    }
    Ok(sources)
}

/// Copies a tree. Files that are the same already are left alone, so that a second build in the same folder is short.
fn copy_tree(from: &Path, to: &Path) -> Result<(), TaskError> {
    fs::create_dir_all(to).map_err(failed("make a folder"))?;
    for entry in fs::read_dir(from).map_err(failed("read a folder"))? {
        let entry = entry.map_err(failed("read a folder"))?;
        let (name, kind) = (entry.file_name(), entry.file_type().map_err(failed("read a folder"))?);
        let target = to.join(&name);
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            let text = fs::read(entry.path()).map_err(failed("read a file"))?;
            if fs::read(&target).ok().as_ref() != Some(&text) {
                fs::write(&target, text).map_err(failed("write a file"))?;
            }
        }
    }
    Ok(())
}

fn failed(what: &str) -> impl Fn(io::Error) -> TaskError + use<> {
    let what = what.to_owned();
    move |source| TaskError::Copy { what: what.clone(), source }
}
