//! Programs of the workspace.

use std::path::PathBuf;

/// Path of a program of the workspace that was built with the profile of the running test. Tests of the package that
/// contains the program use cargo's `CARGO_BIN_EXE_NAME` instead.
///
/// `cargo test --workspace` builds all programs before it starts a test.
///
/// # Panics
///
/// If the program has not been built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    // The test is in `target/PROFILE/deps`, the program in `target/PROFILE`.
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join(name);
    assert!(program.exists(), "{} does not exist: run `cargo build -p {name}` first", program.display());
    program
}
