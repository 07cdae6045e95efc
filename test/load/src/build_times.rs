//! Time that a build of the README's two commands takes, with an empty target folder.

use std::{
    cmp::Reverse,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use kcm_clock::{Clock as _, RealClock};
use serde::Deserialize;
use tempfile::TempDir;

use crate::{
    error::TaskError,
    measure::program::{ProgramError, failed},
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- build-times begins; written by `cargo xtask build-times` -->\n";
const END: &str = "<!-- build-times ends -->";
/// Commands of the README, and the commands that build the same without a run.
const COMMANDS: [(&str, &[&str]); 2] = [
    ("cargo run -p kube-sandbox -- demo", &["build", "-p", "kube-sandbox"]),
    ("cargo test --workspace", &["test", "--workspace", "--no-run"]),
];
/// Number of crates in the table.
const CRATES: usize = 10;
/// Unit of the times in `/proc/PID/stat`, `USER_HZ`. It is 100 on all platforms of Rust's standard library with `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Times of a command.
struct Times {
    command: &'static str,
    wall: Duration,
    /// CPU seconds.
    cpu: f64,
    /// Crates with the wall-clock seconds of their units.
    crates: Vec<(String, f64)>,
}

/// A unit of `cargo build --timings`.
#[derive(Debug, Deserialize)]
struct Unit {
    name: String,
    duration: f64,
}

/// Builds both commands, and writes their times to `docs/performance.md`.
pub fn run() -> Result<(), TaskError> {
    let times = COMMANDS.iter().map(|(command, arguments)| build(command, arguments));
    let text = table(&times.collect::<Result<Vec<_>, _>>()?);
    let path = Path::new(ROOT).join(PAGE);
    let page = fs::read_to_string(&path).map_err(failed(PAGE))?;
    let page = replaced(&page, &text).ok_or_else(|| TaskError::Content(PAGE))?;
    Ok(fs::write(&path, page).map_err(failed(PAGE))?)
}

fn build(command: &'static str, arguments: &[&str]) -> Result<Times, TaskError> {
    let target = TempDir::new().map_err(failed("target folder"))?;
    let clock = RealClock::new();
    let (started, cpu) = (clock.monotonic(), cpu_of_children()?);
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .args(["--locked", "--timings"])
        .env("CARGO_TARGET_DIR", target.path())
        .current_dir(ROOT)
        .status()
        .map_err(failed("cargo"))?;
    if !status.success() {
        return Err(ProgramError::Build(command).into());
    }
    let wall = clock.monotonic().saturating_sub(started);
    let cpu = cpu_of_children()? - cpu;
    let path = target.path().join("cargo-timings/cargo-timing.html");
    let report = fs::read_to_string(&path).map_err(failed(path.display().to_string()))?;
    let crates = crates(&report).ok_or_else(|| TaskError::Content("cargo-timing.html"))?;
    Ok(Times { command, wall, cpu, crates })
}

/// CPU seconds of all descendants that have ended.
fn cpu_of_children() -> Result<f64, TaskError> {
    let path = PathBuf::from("/proc/self/stat");
    let text = fs::read_to_string(&path).map_err(failed("/proc/self/stat"))?;
    // The second field, the name of the program, can contain blanks. `cutime` and `cstime` are the fields 16 and 17.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: Vec<f64> = fields.skip(13).take(2).filter_map(|field| field.parse().ok()).collect();
    match ticks[..] {
        [user, system] => Ok((user + system) / TICKS_PER_SECOND),
        _ => Err(TaskError::Content("/proc/self/stat")),
    }
}

/// Crates of a report of cargo with the sum of the times of their units, the longest first.
fn crates(report: &str) -> Option<Vec<(String, f64)>> {
    let (_, data) = report.split_once("const UNIT_DATA = ")?;
    let mut units = serde_json::Deserializer::from_str(data);
    let mut crates: Vec<(String, f64)> = Vec::new();
    for unit in Vec::<Unit>::deserialize(&mut units).ok()? {
        match crates.iter_mut().find(|(name, _)| *name == unit.name) {
            Some((_, sum)) => *sum += unit.duration,
            None => crates.push((unit.name, unit.duration)),
        }
    }
    crates.sort_by_key(|(_, seconds)| Reverse((seconds * 10.0) as u64));
    crates.truncate(CRATES);
    Some(crates)
}

fn table(times: &[Times]) -> String {
    let mut text =
        "| Command | Wall time | CPU time | Most expensive crates, with their wall time |\n".to_owned();
    text.push_str("|---|--:|--:|---|\n");
    for Times { command, wall, cpu, crates } in times {
        let crates: Vec<_> = crates.iter().map(|(name, seconds)| format!("{name} {seconds:.0} s")).collect();
        let (wall, crates) = (wall.as_secs_f64(), crates.join(", "));
        text.push_str(&format!("| `{command}` | {wall:.0} s | {cpu:.0} s | {crates} |\n"));
    }
    text
}

/// The page with the text between the markers replaced.
fn replaced(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{text}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_sums_of_their_units() {
        let report = r#"<script>const UNIT_DATA = [
            {"i": 0, "name": "a", "mode": "todo", "duration": 1.5, "sections": null},
            {"i": 1, "name": "b", "mode": "run-custom-build", "duration": 2.0},
            {"i": 2, "name": "a", "mode": "todo", "duration": 1.0}
        ];
        const CONCURRENCY_DATA = [];"#;
        assert_eq!(crates(report).unwrap(), [("a".to_owned(), 2.5), ("b".to_owned(), 2.0)]);
        assert!(crates("<script></script>").is_none());
    }

    #[test]
    fn page_has_the_markers() {
        let page = fs::read_to_string(Path::new(ROOT).join(PAGE)).unwrap();
        let page = replaced(&page, "TEXT\n").unwrap();
        assert!(page.contains(&format!("{BEGIN}\nTEXT\n\n{END}")));
    }
}
