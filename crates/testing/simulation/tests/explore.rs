//! Every schedule with one surprise of the scenarios in `test/stories/explore`, or an even share of them.
#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

use std::{
    collections::BTreeSet,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use kcm_rollout_simulation::{Alternative, Explorer, Outcome, Report, Scenario, Surprise, parallel};

/// One in this number of schedules is run. `EXPLORE_SHARE=1` runs all.
const SHARE: usize = if cfg!(debug_assertions) { 500 } else { 4 };

const THREADS: usize = 4;

/// Choice points that each scenario must have.
const CHOICE_POINTS: usize = 150;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../test/stories/explore")
}

fn scenario(name: &str) -> Scenario {
    Scenario::read(&folder().join(format!("{name}.yaml"))).unwrap()
}

fn share() -> usize {
    std::env::var("EXPLORE_SHARE").map_or(SHARE, |share| share.parse().unwrap())
}

/// Runs all parts of an exploration.
fn explore(explorer: &Explorer) -> Report {
    let mut sum = Report::default();
    parallel::each(
        0..explorer.parts(),
        THREADS,
        |part| explorer.run_part(*part).unwrap(),
        |_, report| {
            sum.schedules += report.schedules;
            sum.rejoined += report.rejoined;
            sum.violations.extend(report.violations);
            ControlFlow::<()>::Continue(())
        },
    );
    sum
}

#[test]
fn schedules_with_one_surprise_violate_no_rule() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 24, "{} scenarios", files.len());
    let mut problems = String::new();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let explorer = Explorer::new(Scenario::read(&file).unwrap(), 1).unwrap().with_share(share());
        assert!(explorer.outcome().has_no_findings(), "{name}: {}", explorer.outcome());
        let points = explorer.choice_points();
        assert!(points >= CHOICE_POINTS, "{name} has {points} choice points");
        for violation in explore(&explorer).violations {
            problems += &format!("{name}: {violation:?}\n");
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

/// Resources of writes with an outdated resource version. They depend on the order of events.
fn conflicts(outcome: &Outcome) -> Option<String> {
    let lines = outcome.log.iter().filter(|line| line.contains(" 409 at "));
    let resources: BTreeSet<&str> = lines.filter_map(|line| line.split_whitespace().nth(3)).collect();
    (!resources.is_empty()).then(|| resources.into_iter().collect::<Vec<_>>().join(", "))
}

#[test]
fn reduction_finds_the_same_violations() {
    for name in ["replica-set-alone", "recreate"] {
        let violations = |explorer: Explorer| -> (BTreeSet<String>, u64) {
            let report = explore(&explorer.with_rule(conflicts).with_share(20));
            let findings = report.violations.iter().flat_map(|violation| &violation.findings);
            (findings.map(ToString::to_string).collect(), report.rejoined)
        };
        let explorer = || Explorer::new(scenario(name), 1).unwrap();
        let (reduced, rejoined) = violations(explorer());
        let (complete, none) = violations(explorer().without_reduction());
        assert!(!complete.is_empty() && rejoined > 0, "{name}: {complete:?}, {rejoined} rejoined");
        assert_eq!(none, 0);
        assert_eq!(reduced, complete, "{name}");
    }
}

#[test]
fn late_timer_delays_the_sync_of_its_key() {
    let late = Surprise { step: "m0 timer delayed key".to_owned(), nth: 2, becomes: Alternative::Later };
    let explorer = Explorer::new(scenario("min-ready-seconds"), 1).unwrap();
    let outcome = explorer.schedule(&[late]).run().unwrap();
    assert!(outcome.has_no_findings(), "{outcome}");
    assert_ne!(outcome.log, explorer.outcome().log);
}

/// The user acts before the object of the same name is gone.
#[test]
fn workload_that_cannot_be_created_again_is_not_compared() {
    let late = Surprise { step: "user action".to_owned(), nth: 1, becomes: Alternative::Later };
    let explorer = Explorer::new(scenario("delete-foreground"), 1).unwrap();
    let outcome = explorer.schedule(&[late]).run().unwrap();
    assert!(outcome.has_no_findings(), "{outcome}");
}

#[test]
fn surprise_without_a_step_is_reported() {
    let surprise = Surprise { step: "m0 create pods".to_owned(), nth: 1000, becomes: Alternative::Refuse };
    let explorer = Explorer::new(scenario("recreate"), 1).unwrap();
    let outcome = explorer.schedule(&[surprise]).run_once().unwrap();
    assert_eq!(outcome.rules(), ["surprise"]);
}
