//! The page `docs/e2e.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{ginkgo::Test, scope::OutOfScope};

/// All results.
#[derive(Debug)]
pub(super) struct Page<'a> {
    /// Versions of the programs, the version of Kubernetes first.
    pub(super) versions: Vec<&'a str>,
    pub(super) integration: Vec<Integration>,
    /// E2e tests of workloads, by run.
    pub(super) workloads: Vec<Suite>,
    pub(super) conformance: Suite,
    pub(super) others: Suite,
    pub(super) scope: &'a OutOfScope,
}

/// Results of a package of integration tests.
#[derive(Debug)]
pub(super) struct Integration {
    pub(super) package: &'static str,
    pub(super) controllers: &'static str,
    pub(super) server: &'static str,
    /// Names and results.
    pub(super) results: Vec<(String, String)>,
}

impl Integration {
    /// Returns the result of each test. A failed test that is listed is out of scope.
    fn outcomes<'a>(&'a self, scope: &'a OutOfScope) -> BTreeSet<(Outcome<'a>, &'a str)> {
        let outcome = |(name, result): &'a (String, String)| {
            let outcome = match (result.as_str(), scope.reason(name)) {
                ("PASS", _) => Outcome::Passed,
                (_, Some(reason)) => Outcome::OutOfScope(reason),
                _ => Outcome::Failed(""),
            };
            (outcome, name.as_str())
        };
        self.results.iter().map(outcome).collect()
    }
}

/// Results of e2e tests.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) selected: Vec<String>,
    pub(super) results: Vec<Test>,
}

/// Result of an e2e test.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome<'a> {
    Failed(&'a str),
    Passed,
    OutOfScope(&'a str),
}

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed("") => f.write_str("**fail**"),
            Self::Failed(message) => write!(f, "**fail**: {}", message.replace('|', "\\|")),
            Self::Passed => f.write_str("pass"),
            Self::OutOfScope(reason) => write!(f, "out of scope: {reason}"),
        }
    }
}

impl Suite {
    /// Returns the result of each selected test, failed tests first. A test that is neither run nor listed as out of
    /// scope has failed.
    fn outcomes<'a>(&'a self, scope: &'a OutOfScope) -> BTreeSet<(Outcome<'a>, &'a str)> {
        let results: BTreeMap<&str, &Test> =
            self.results.iter().map(|test| (test.name.as_str(), test)).collect();
        let outcome = |name: &str| match (results.get(name), scope.reason(name)) {
            (Some(Test { failure: None, .. }), _) => Outcome::Passed,
            (_, Some(reason)) => Outcome::OutOfScope(reason),
            (Some(Test { failure: Some(message), .. }), None) => Outcome::Failed(message),
            (None, None) => Outcome::Failed("not run"),
        };
        self.selected.iter().map(|name| (outcome(name), name.as_str())).collect()
    }
}

/// Numbers of tests that passed, failed, and are out of scope.
fn counts(outcomes: &BTreeSet<(Outcome<'_>, &str)>) -> [usize; 3] {
    let mut counts = [0; 3];
    for (outcome, _) in outcomes {
        counts[match outcome {
            Outcome::Passed => 0,
            Outcome::Failed(_) => 1,
            Outcome::OutOfScope(_) => 2,
        }] += 1;
    }
    counts
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conformance = self.conformance.outcomes(self.scope);
        let others = self.others.outcomes(self.scope);
        let [passed, failed, out_of_scope] = counts(&conformance);
        let kubernetes = self.versions.first().unwrap_or(&"");
        writeln!(
            f,
            "# Kubernetes' own tests

<!-- Written by test/upstream/run. -->

Of the {} conformance tests of {kubernetes}, {passed} pass on the sandbox, {failed} fail and {out_of_scope} are out of
scope: they require running containers, networking, storage, controllers or effects of kinds that the sandbox only stores, or
scheduling by resources, taints or priority.

| Tests | Controllers | API server | Pass | Fail | Out of scope |
|---|---|---|--:|--:|--:|",
            self.conformance.selected.len(),
        )?;
        for run in &self.integration {
            let Integration { package, controllers, server, .. } = run;
            let [passed, failed, out_of_scope] = counts(&run.outcomes(self.scope));
            writeln!(
                f,
                "| integration tests, `{package}` | {controllers} | {server} | {passed} | {failed} | {out_of_scope} |"
            )?;
        }
        let e2e = |f: &mut fmt::Formatter<'_>, name: &str, [passed, failed, out_of_scope]: [usize; 3]| {
            writeln!(f, "| {name} | this manager | sandbox | {passed} | {failed} | {out_of_scope} |")
        };
        for (at, run) in self.workloads.iter().enumerate() {
            let name = format!("e2e tests of workloads, run {}", at + 1);
            e2e(f, &name, counts(&run.outcomes(self.scope)))?;
        }
        e2e(f, "conformance tests", counts(&conformance))?;
        e2e(f, "other e2e tests", counts(&others))?;
        writeln!(f, "\n{}", HOW_TO_RUN.trim())?;
        writeln!(f, "\nVersions: {}.", self.versions.join(", "))?;
        self.write_integration(f)?;
        self.write_workloads(f)?;
        write_outcomes(f, "Conformance tests", &conformance)?;
        write_outcomes(f, "Other e2e tests", &others)
    }
}

const HOW_TO_RUN: &str = include_str!("how_to_run.txt");

impl Page<'_> {
    /// Writes a table of each package with a column per run.
    fn write_integration(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n## Integration tests")?;
        let packages: BTreeSet<&str> = self.integration.iter().map(|run| run.package).collect();
        for package in packages {
            let runs: Vec<&Integration> =
                self.integration.iter().filter(|run| run.package == package).collect();
            let columns: Vec<String> =
                runs.iter().map(|run| format!("{}, {}", run.controllers, run.server)).collect();
            let results = runs.iter().map(|run| in_columns(run.outcomes(self.scope))).collect();
            writeln!(f, "\n### `test/integration/{package}`\n")?;
            write_columns(f, &columns, results)?;
        }
        Ok(())
    }

    fn write_workloads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n## Workloads\n")?;
        let columns: Vec<String> = (1..=self.workloads.len()).map(|round| format!("Run {round}")).collect();
        let results = self.workloads.iter().map(|run| in_columns(run.outcomes(self.scope))).collect();
        write_columns(f, &columns, results)
    }
}

/// Results of a run by name.
fn in_columns<'a>(outcomes: BTreeSet<(Outcome<'_>, &'a str)>) -> Vec<(&'a str, String)> {
    outcomes.into_iter().map(|(outcome, name)| (name, outcome.to_string())).collect()
}

/// Writes a table with a row per test and a column per run.
fn write_columns(
    f: &mut fmt::Formatter<'_>,
    columns: &[String],
    results: Vec<Vec<(&str, String)>>,
) -> fmt::Result {
    let mut rows: BTreeMap<&str, BTreeMap<usize, String>> = BTreeMap::new();
    for (column, results) in results.into_iter().enumerate() {
        for (name, result) in results {
            rows.entry(name).or_default().insert(column, result);
        }
    }
    writeln!(f, "| Test | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len()))?;
    for (name, results) in rows {
        write!(f, "| {} |", short(name))?;
        for column in 0..columns.len() {
            write!(f, " {} |", results.get(&column).map_or("**fail**: not run", String::as_str))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn write_outcomes(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    outcomes: &BTreeSet<(Outcome<'_>, &str)>,
) -> fmt::Result {
    writeln!(f, "\n## {title}\n\n| Test | Result |\n|---|---|")?;
    for (outcome, name) in outcomes {
        writeln!(f, "| {} | {outcome} |", short(name))?;
    }
    Ok(())
}

/// Name of a test without the labels that all or most tests of a table have.
fn short(name: &str) -> String {
    name.replace(" [Conformance]", "").replace(" [NodeConformance]", "").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, failure: Option<&str>) -> Test {
        Test { name: name.into(), failure: failure.map(Into::into) }
    }

    #[test]
    fn tests_that_are_neither_run_nor_listed_have_failed() {
        let scope = OutOfScope::parse("storage\n\tb\n");
        let suite = Suite {
            selected: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            results: vec![test("a", None), test("d", Some("timeout"))],
        };
        let outcomes = suite.outcomes(&scope);
        assert_eq!(counts(&outcomes), [1, 2, 1]);
        let all: Vec<_> = outcomes.into_iter().collect();
        assert_eq!(
            all,
            [
                (Outcome::Failed("not run"), "c"),
                (Outcome::Failed("timeout"), "d"),
                (Outcome::Passed, "a"),
                (Outcome::OutOfScope("storage"), "b"),
            ]
        );
    }

    #[test]
    fn first_lines_count_the_conformance_tests() {
        let scope = OutOfScope::parse("storage\n\t[sig-storage] b\nswitches a gate\n\tTestC\n");
        let page = Page {
            versions: vec!["Kubernetes v1.36.2", "kubectl v1.36.4"],
            integration: vec![Integration {
                package: "deployment",
                controllers: "this manager",
                server: "sandbox",
                results: [("TestA", "PASS"), ("TestB", "FAIL"), ("TestC", "FAIL")]
                    .map(|(name, result)| (name.to_owned(), result.to_owned()))
                    .into(),
            }],
            workloads: vec![
                Suite { selected: vec!["[sig-apps] a".into()], results: vec![test("[sig-apps] a", None)] },
                Suite { selected: vec![], results: vec![] },
            ],
            conformance: Suite {
                selected: vec!["[sig-apps] a [Conformance]".into(), "[sig-storage] b [Conformance]".into()],
                results: vec![test("[sig-apps] a [Conformance]", None)],
            },
            others: Suite { selected: vec![], results: vec![] },
            scope: &scope,
        };
        let text = page.to_string();
        assert!(
            text.contains(
                "Of the 2 conformance tests of Kubernetes v1.36.2, 1 pass on the sandbox, 0 fail and 1 are out of"
            ),
            "{text}"
        );
        for line in [
            "| integration tests, `deployment` | this manager | sandbox | 1 | 1 | 1 |",
            "| TestB | **fail** |",
            "| TestC | out of scope: switches a gate |",
            "| [sig-apps] a | pass | **fail**: not run |",
            "| [sig-storage] b | out of scope: storage |",
            "Versions: Kubernetes v1.36.2, kubectl v1.36.4.",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in {text}");
        }
    }
}
