//! Writes `docs/e2e.md` from the results of `test/upstream/run`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

mod ginkgo;
mod go_test;
mod page;
mod scope;

use page::{Integration, Page, Suite};
use scope::OutOfScope;

/// Root of the workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const OUT_OF_SCOPE: &str = "test/upstream/out-of-scope.txt";
const PAGE: &str = "docs/e2e.md";
/// Packages of integration tests.
const PACKAGES: [&str; 2] = ["deployment", "replicaset"];
/// Runs of the tests of workloads.
const ROUNDS: usize = 3;

/// Error of the task.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A report is invalid.
    #[error("{path}: {source}")]
    Report {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: serde_json::Error,
    },
    /// An entry of the list of tests that are not run matches no test.
    #[error("{OUT_OF_SCOPE}: no test matches {0:?}")]
    Unused(String),
}

/// Reads the results in `folder` and writes the page.
pub fn run(folder: &Path) -> Result<(), TaskError> {
    let scope = OutOfScope::parse(&text(&Path::new(ROOT).join(OUT_OF_SCOPE))?);
    let mut integration = Vec::new();
    for (name, controllers, server) in [
        ("manager", "this manager", "kube-apiserver"),
        ("sandbox", "upstream's", "sandbox"),
        ("both", "this manager", "sandbox"),
    ] {
        for package in PACKAGES {
            let log = text(&folder.join(format!("{name}-{package}.log")))?;
            integration.push(Integration { package, controllers, server, results: go_test::results(&log) });
        }
    }
    let mut workloads = Vec::new();
    for round in 1..=ROUNDS {
        let results = tests(&folder.join(format!("workloads-{round}.json")))?;
        workloads.push(Suite { selected: results.iter().map(|test| test.name.clone()).collect(), results });
    }
    let conformance = suite(folder, "conformance")?;
    let others = suite(folder, "others")?;
    let integration_tests = integration.iter().flat_map(|run| run.results.iter().map(|(name, _)| name));
    let names: Vec<&str> = conformance
        .selected
        .iter()
        .chain(&others.selected)
        .chain(integration_tests)
        .chain(workloads.iter().flat_map(|run| &run.selected))
        .map(String::as_str)
        .collect();
    if let Some(unused) = scope.unused(&names).first() {
        return Err(TaskError::Unused((*unused).to_owned()));
    }
    let versions = text(&folder.join("versions"))?;
    let page = Page {
        versions: versions.lines().collect(),
        integration,
        workloads,
        conformance,
        others,
        scope: &scope,
    };
    let path = Path::new(ROOT).join(PAGE);
    fs::write(&path, page.to_string()).map_err(|source| TaskError::File { path, source })
}

fn suite(folder: &Path, name: &str) -> Result<Suite, TaskError> {
    let selected = tests(&folder.join(format!("{name}-all.json")))?;
    Ok(Suite {
        selected: selected.into_iter().map(|test| test.name).collect(),
        results: tests(&folder.join(format!("{name}.json")))?,
    })
}

fn tests(path: &Path) -> Result<Vec<ginkgo::Test>, TaskError> {
    let json = text(path)?;
    ginkgo::tests(json.as_bytes()).map_err(|source| TaskError::Report { path: path.to_owned(), source })
}

fn text(path: &Path) -> Result<String, TaskError> {
    fs::read_to_string(path).map_err(|source| TaskError::File { path: path.to_owned(), source })
}
