//! The scenarios on the embedded cluster, in simulated time, and those of objects.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

mod view;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use parking_lot::Mutex;
use rollout_scenarios::{
    CAUSES, Outcome, RULES, Scenario, Truth, Verdict, WorkloadScenario, judge, load, load_workloads, table,
};

/// Variable that limits the run to the scenarios whose name contains its value.
const FILTER: &str = "ROLLOUT_SCENARIO";
/// Variable that prints the objects and the diagnosis of each scenario.
const PRINT: &str = "ROLLOUT_PRINT";
/// Number of scenarios at least.
const SCENARIOS: usize = 150;
/// Number of scenarios of StatefulSets and DaemonSets at least.
const WORKLOADS: usize = 20;
/// One of so many scenarios at most has the state `unknown`.
const TOLD: usize = 20;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn scenarios() -> Vec<Scenario> {
    load(&directory()).unwrap_or_else(|error| panic!("{error}"))
}

fn workloads() -> Vec<WorkloadScenario> {
    load_workloads(&directory().join("workloads")).unwrap_or_else(|error| panic!("{error}"))
}

/// Scenario of either kind.
struct Described {
    name: String,
    rules: Vec<String>,
    truth: Truth,
    /// Objects and steps.
    course: String,
}

fn all() -> Vec<Described> {
    let played = scenarios().into_iter().map(|one| {
        let course = format!("{:?}", (&one.objects, &one.deployment, one.settle, &one.steps));
        Described { name: one.name, rules: one.rules, truth: one.truth, course }
    });
    let given = workloads().into_iter().map(|one| {
        let course = format!("{:?}", (one.workload(), one.objects()));
        Described { name: one.name, rules: one.rules, truth: one.truth, course }
    });
    played.chain(given).collect()
}

#[test]
fn diagnoses_are_right() {
    let mut scenarios = scenarios();
    if let Ok(part) = std::env::var(FILTER) {
        scenarios.retain(|scenario| scenario.name.contains(&part));
    }
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::<(usize, Outcome)>::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(scenario) = scenarios.get(index) else { return };
            let Ok((diagnosis, objects)) = panic::catch_unwind(|| world::play(scenario)) else {
                panic!("scenario {:?} cannot be played", scenario.name);
            };
            if std::env::var_os(PRINT).is_some() {
                println!("{}\n{objects}\n{diagnosis:#}", scenario.name);
            }
            let outcome = judge(&scenario.name, &scenario.truth, &diagnosis);
            outcomes.lock().push((index, outcome));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut outcomes = outcomes.into_inner();
    outcomes.sort_by_key(|(index, _)| *index);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    if std::env::var_os(PRINT).is_some() {
        println!("{}", table(&outcomes));
    }
    assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Right), "\n{}", table(&outcomes));
}

#[test]
fn diagnoses_of_workloads_are_right() {
    let mut outcomes = Vec::new();
    for scenario in workloads() {
        let diagnosis = view::workload_diagnosis(&scenario);
        if std::env::var_os(PRINT).is_some() {
            println!("{}\n{diagnosis:#}", scenario.name);
        }
        outcomes.push(judge(&scenario.name, &scenario.truth, &diagnosis));
    }
    assert!(outcomes.len() >= WORKLOADS, "{} scenarios", outcomes.len());
    assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Right), "\n{}", table(&outcomes));
}

const PAGE: &str = include_str!("../../../../docs/rollouts.md");

#[test]
fn page_lists_what_cannot_be_told() {
    let (_, section) = PAGE.split_once("## Accuracy").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let words: Vec<&str> = section.split_whitespace().collect();
    let section_in_one_line = words.join(" ");
    let (all, workloads) = (all(), workloads().len());
    let untold: Vec<&Described> = all.iter().filter(|one| one.truth.state == "unknown").collect();
    for figure in [
        format!("contains {} scenarios", all.len()),
        format!("{workloads} of them are StatefulSets and DaemonSets"),
        format!("{} combine two or more causes", combined(&all)),
        format!("In {} scenarios", untold.len()),
    ] {
        assert!(section_in_one_line.contains(&figure), "{figure}");
    }
    for scenario in &untold {
        assert!(section.contains(&format!("* {}\n", scenario.name)), "{}", scenario.name);
    }
    assert_eq!(section.matches("\n* ").count(), untold.len());
}

/// Number of scenarios with two or more causes.
fn combined(scenarios: &[Described]) -> usize {
    let causes = |truth: &Truth| truth.causes.len() + usize::from(!truth.any_of.is_empty());
    scenarios.iter().filter(|one| causes(&one.truth) > 1).count()
}

#[test]
fn scenarios_cover_rules_and_causes() {
    let scenarios = all();
    assert!(scenarios.len() >= SCENARIOS, "{} scenarios", scenarios.len());
    let combined = combined(&scenarios);
    assert!(combined * 3 >= scenarios.len(), "{combined} of {} scenarios combine causes", scenarios.len());
    let untold = scenarios.iter().filter(|one| one.truth.state == "unknown").count();
    assert!(untold * TOLD <= scenarios.len(), "{untold} of {} cannot be told", scenarios.len());
    for cause in CAUSES {
        assert!(scenarios.iter().any(|one| one.truth.found().any(|other| other == cause)), "{cause}");
    }
    for (rule, _) in RULES {
        assert!(scenarios.iter().any(|one| one.rules.iter().any(|other| other == rule)), "{rule}");
    }
}

#[test]
fn scenarios_differ() {
    let (mut courses, mut names) = (BTreeMap::new(), BTreeSet::new());
    for Described { name, course, .. } in all() {
        if let Some(other) = courses.insert(course, name.clone()) {
            panic!("the scenarios {name:?} and {other:?} are equal");
        }
        assert!(names.insert(name.clone()), "{name:?} is the name of two scenarios");
    }
}
