//! Checks of an exposition.

use std::{
    io::{self, Write as _},
    process::{Command, Stdio},
};

/// Problem in an exposition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(pub String);

/// Returns the problems that `promtool check metrics` finds in an exposition. Without promtool, reports that the check is
/// skipped.
///
/// # Panics
///
/// If promtool ends while it reads.
///
/// ```
/// let text = "# HELP up Target is up.\n# TYPE up gauge\nup 1\n";
/// assert_eq!(kcm_testkit::lint(text), []);
/// ```
pub fn lint(text: &str) -> Vec<Problem> {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let Ok(mut promtool) = promtool.spawn() else {
        // Not captured by the test harness.
        let _ = writeln!(io::stderr(), "SKIPPED: the check of metrics (no promtool)");
        return Vec::new();
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).lines().map(|line| Problem(line.to_owned())).collect()
}
