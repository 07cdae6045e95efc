//! The scenarios on the embedded cluster, in simulated time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

mod view;
mod world;

use std::{
    panic,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use parking_lot::Mutex;
use rollout_scenarios::{CAUSES, Outcome, RULES, Scenario, Verdict, judge, load, table};

/// Variable that limits the run to the scenarios whose name contains its value.
const FILTER: &str = "ROLLOUT_SCENARIO";
/// Variable that prints the objects and the diagnosis of each scenario.
const PRINT: &str = "ROLLOUT_PRINT";
/// Number of scenarios at least.
const SCENARIOS: usize = 150;

fn scenarios() -> Vec<Scenario> {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")).unwrap_or_else(|error| panic!("{error}"))
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
            let outcome = judge(scenario, &diagnosis);
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

const PAGE: &str = include_str!("../../../../docs/rollouts.md");

#[test]
fn page_lists_what_cannot_be_told() {
    let (_, section) = PAGE.split_once("## Accuracy").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let scenarios = scenarios();
    let untold: Vec<&Scenario> =
        scenarios.iter().filter(|scenario| scenario.truth.state == "unknown").collect();
    assert!(section.contains(&format!("contains {} scenarios", scenarios.len())), "{}", scenarios.len());
    assert!(section.contains(&format!("In {} of them", untold.len())), "{}", untold.len());
    for scenario in &untold {
        assert!(section.contains(&format!("* {}\n", scenario.name)), "{}", scenario.name);
    }
    assert_eq!(section.matches("\n* ").count(), untold.len());
}

#[test]
fn scenarios_cover_rules_and_causes() {
    let scenarios = scenarios();
    assert!(scenarios.len() >= SCENARIOS, "{} scenarios", scenarios.len());
    let two = scenarios
        .iter()
        .filter(|scenario| scenario.truth.causes.len() + usize::from(!scenario.truth.any_of.is_empty()) > 1)
        .count();
    assert!(two * 3 >= scenarios.len(), "{two} of {} scenarios combine causes", scenarios.len());
    for cause in CAUSES {
        assert!(scenarios.iter().any(|one| one.truth.found().any(|other| other == cause)), "{cause}");
    }
    for (rule, _) in RULES {
        assert!(scenarios.iter().any(|one| one.rules.iter().any(|other| other == rule)), "{rule}");
    }
}
