//! Instructions that the manager executes for a fixed script, compared with a file.
//!
//! The script is the test `budget` of `kube-controller-manager`: manager, API server and nodes in one process, in simulated
//! time. callgrind counts the instructions of the manager only, see `cmd/kube-controller-manager/tests/budget/scope.rs`. A
//! hardware counter (`perf stat`) counts those of the whole process, of which the API server has the larger part, so it is
//! not used.
//!
//! The number depends on compiler, target and profile. It is compared only with numbers of the same build.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{error::TaskError, measure::program::failed};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Budget of the instructions.
const FILE: &str = "cmd/kube-controller-manager/tests/budget/instructions.txt";
/// Budget of the requests. Its headings are the sections of the script.
const SECTIONS: &str = "cmd/kube-controller-manager/tests/budget/requests.txt";
const TEST: &str = "costs_stay_within_the_budget";
/// Test of the workload `BUDGET_WORKLOAD` at the scale `BUDGET_SCALE`. Its sections are setup and workload.
const GROWTH_TEST: &str = "growth::workload";
const GROWTH_WORKLOADS: [&str; 3] = ["burst500", "small50", "mass_roll10"];
const SCALES: [u64; 3] = [1, 3, 10];
/// Part of a number by which it may differ.
const TOLERANCE: u64 = 20;
const HEADING: &str = "\
# Instructions of the manager by section of the script in main.rs, counted by callgrind. `cargo xtask budget --update` writes
# this file.
";

/// Flags of the task.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Task {
    release: bool,
    update: bool,
    growth: bool,
}

/// Sections with their instructions.
type Instructions = Vec<(String, u64)>;

impl Task {
    /// Parses the arguments of `budget`. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self::default();
        for word in words {
            match *word {
                "--release" => task.release = true,
                "--update" => task.update = true,
                "--growth" => task.growth = true,
                _ => return None,
            }
        }
        Some(task)
    }

    /// Counts the instructions, and compares them with the file. Prints `SKIPPED` and the reason if they cannot be counted
    /// or compared.
    pub fn run(&self) -> Result<(), TaskError> {
        if let Err(error) = Command::new("valgrind").arg("--version").output() {
            println!("SKIPPED: budget of instructions (valgrind: {error})");
            return Ok(());
        }
        let build = self.build()?;
        let path = Path::new(ROOT).join(FILE);
        let budget = parse(&read(&path)?);
        let of_build = budget.iter().find(|(name, _)| *name == build);
        if of_build.is_none() && !self.update && !self.growth {
            let builds: Vec<_> = budget.iter().map(|(name, _)| name.as_str()).collect();
            println!("SKIPPED: budget of instructions ({build} is none of {})", builds.join(", "));
            return Ok(());
        }
        let program = self.build_test()?;
        if self.growth {
            return growth(&program);
        }
        let sections = read(&Path::new(ROOT).join(SECTIONS))?;
        let names = sections.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned);
        let counted: Instructions = names.zip(count(&program, TEST, &[])?).collect();
        if self.update {
            let text = to_text(&build, counted, budget);
            return Ok(fs::write(&path, text).map_err(failed(FILE))?);
        }
        println!("{build}");
        counted.iter().for_each(|(name, number)| println!("{name}: {number}"));
        compare(of_build.map_or(&[], |(_, sections)| sections), &counted).map_err(TaskError::Exceeded)
    }

    /// Compiler, target and profile.
    fn build(&self) -> Result<String, TaskError> {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let text = output("rustc", Command::new(rustc).arg("-vV"))?;
        let field = |name| {
            text.lines().find_map(|line: &str| line.strip_prefix(name)).ok_or(TaskError::Content("rustc -vV"))
        };
        let profile = if self.release { "release" } else { "dev" };
        Ok(format!("rustc {} {} {profile}", field("release: ")?, field("host: ")?))
    }

    /// Builds the test. Returns the path of the program.
    fn build_test(&self) -> Result<PathBuf, TaskError> {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // All packages: a build of one has other features, which compiles its dependencies again.
        let arguments = ["test", "--workspace", "--test=budget", "--no-run", "--locked"];
        cargo.args(arguments).arg("--message-format=json").current_dir(ROOT);
        if self.release {
            cargo.arg("--release");
        }
        let text = output("cargo test", &mut cargo)?;
        let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let program = messages
            .filter(|message| message["target"]["name"] == "budget")
            .find_map(|message| message["executable"].as_str().map(PathBuf::from));
        program.ok_or(TaskError::Content("cargo test"))
    }
}

/// Runs a test, and returns the instructions of each of its sections.
fn count(program: &Path, test: &str, environment: &[(&str, String)]) -> Result<Vec<u64>, TaskError> {
    let folder = TempDir::new().map_err(failed("temporary directory"))?;
    let out = folder.path().join("out");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .arg("--tool=callgrind")
        // Functions of tests/budget/scope.rs.
        .arg("--toggle-collect=budget::scope::counted*")
        .arg("--toggle-collect=budget::scope::exclude*")
        .arg("--dump-after=budget::scope::end_section*")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["--exact", test, "--include-ignored", "--test-threads=1"])
        .envs(environment.iter().map(|(name, value)| (name, value)));
    output("valgrind", &mut valgrind)?;
    let mut sections = Vec::new();
    loop {
        let path = folder.path().join(format!("out.{}", sections.len() + 1));
        if !path.exists() {
            return Ok(sections);
        }
        let text = read(&path)?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
        sections.push(total.ok_or(TaskError::Content("callgrind"))?);
    }
}

/// Prints a table of the instructions per object of larger and larger workloads.
fn growth(program: &Path) -> Result<(), TaskError> {
    println!("| Workload | Per | 1× | 3× | 10× | 10× / 1× |\n|---|---|--:|--:|--:|--:|");
    for workload in GROWTH_WORKLOADS {
        let mut each = Vec::new();
        for scale in SCALES {
            eprintln!("{workload}: {scale}×");
            let environment = [("BUDGET_WORKLOAD", workload.to_owned()), ("BUDGET_SCALE", scale.to_string())];
            let sections = count(program, GROWTH_TEST, &environment)?;
            let [_, spent] = sections[..] else { return Err(TaskError::Content("callgrind")) };
            let objects = workload.trim_start_matches(|char: char| !char.is_ascii_digit());
            each.push(spent / (scale * objects.parse::<u64>().unwrap_or(1)));
        }
        let per = if workload == "burst500" { "pod" } else { "Deployment" };
        let ratio = each[2] as f64 / each[0] as f64;
        println!("| {workload} | {per} | {} | {} | {} | {ratio:.2} |", each[0], each[1], each[2]);
    }
    Ok(())
}

/// Returns the lines of sections that differ, or of all sections if these are not the same.
fn compare(budget: &[(String, u64)], counted: &[(String, u64)]) -> Result<(), String> {
    let names =
        |sections: &[(String, u64)]| sections.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(budget) != names(counted) {
        return Err(format!("the sections are {:?}, expected {:?}", names(counted), names(budget)));
    }
    let differing: Vec<_> = budget
        .iter()
        .zip(counted)
        .filter(|((_, budget), (_, counted))| counted.abs_diff(*budget) > budget / TOLERANCE)
        .map(|((name, budget), (_, counted))| format!("{name}: {counted}, budget {budget}"))
        .collect();
    if differing.is_empty() { Ok(()) } else { Err(differing.join("\n")) }
}

/// Parses the file: builds with their sections.
fn parse(text: &str) -> Vec<(String, Instructions)> {
    let mut builds: Vec<(String, Instructions)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.rsplit_once(": "), builds.last_mut()) {
            (Some((name, number)), Some((_, sections))) => {
                sections.extend(number.parse().map(|number| (name.to_owned(), number)));
            }
            _ => builds.push((line.to_owned(), Vec::new())),
        }
    }
    builds
}

/// Text of the file with the numbers of `build`, and those of other profiles of the same compiler.
fn to_text(build: &str, counted: Instructions, budget: Vec<(String, Instructions)>) -> String {
    let compiler = |build: &str| build.rsplit_once(' ').map(|(compiler, _)| compiler.to_owned());
    let mut builds: Vec<_> =
        budget.into_iter().filter(|(name, _)| name != build && compiler(name) == compiler(build)).collect();
    builds.push((build.to_owned(), counted));
    builds.sort();
    let mut text = HEADING.to_owned();
    for (name, sections) in builds {
        text.push_str(&format!("\n{name}\n"));
        sections.iter().for_each(|(name, number)| text.push_str(&format!("{name}: {number}\n")));
    }
    text
}

fn read(path: &Path) -> Result<String, TaskError> {
    Ok(fs::read_to_string(path).map_err(failed(path.display().to_string()))?)
}

/// Runs a program and returns its standard output.
fn output(program: &'static str, command: &mut Command) -> Result<String, TaskError> {
    let Output { status, stdout, stderr } = command.output().map_err(failed(program))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !status.success() {
        return Err(TaskError::Failed { program, output: text(&stdout) + &text(&stderr) });
    }
    Ok(text(&stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(numbers: [u64; 2]) -> Instructions {
        ["start", "at rest"].map(str::to_owned).into_iter().zip(numbers).collect()
    }

    #[test]
    fn file_keeps_other_profiles_of_the_compiler() {
        let text = to_text("rustc 2 linux dev", sections([1, 2]), Vec::new());
        let text = to_text("rustc 2 linux release", sections([3, 4]), parse(&text));
        let both = [
            ("rustc 2 linux dev".to_owned(), sections([1, 2])),
            ("rustc 2 linux release".to_owned(), sections([3, 4])),
        ];
        assert_eq!(parse(&text), both);
        let newer = to_text("rustc 3 linux dev", sections([5, 6]), parse(&text));
        assert_eq!(parse(&newer), [("rustc 3 linux dev".to_owned(), sections([5, 6]))]);
    }

    #[test]
    fn numbers_may_differ_by_5_percent() {
        let budget = sections([1_000, 200]);
        assert_eq!(compare(&budget, &sections([1_050, 190])), Ok(()));
        assert_eq!(compare(&budget, &sections([1_051, 200])), Err("start: 1051, budget 1000".to_owned()));
        assert_eq!(compare(&budget, &sections([1_000, 189])), Err("at rest: 189, budget 200".to_owned()));
        assert!(compare(&budget, &budget[..1]).is_err());
    }
}
