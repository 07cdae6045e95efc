//! Every schedule with one surprise of the scenarios in `test/stories/explore`, or an even share of them. The test has no
//! harness, because the processes that explore must have a single thread.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use std::{
    collections::{BTreeSet, HashMap},
    env, fs,
    io::{self, BufReader},
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
};

use kcm_rollout_simulation::{Explorer, Outcome, Report, Scenario, Survey, Workers, parallel, run_parts};
use kcm_simulation::engine::{
    choices::{ChoicePoint, Guide},
    explore::Schedule as _,
    known::RunStateId,
    surprises::Surprise,
};

/// One in this number of schedules is run. `EXPLORE_SHARE=1` runs all, and 0 ignores all tests.
const SHARE: usize = if cfg!(debug_assertions) { 400 } else { 4 };

/// Number of scenarios in tests that compare explorations.
const COMPARED: usize = if cfg!(debug_assertions) { 1 } else { usize::MAX };

/// Choice points that each scenario must have.
const CHOICE_POINTS: usize = 150;

/// First argument of a process that explores.
const WORKER: &str = "explore-worker";

const TESTS: [(&str, fn()); 4] = [
    ("schedules_with_one_surprise_violate_no_rule", schedules_with_one_surprise_violate_no_rule),
    ("copies_do_the_same_as_repetitions", copies_do_the_same_as_repetitions),
    ("equal_states_have_equal_successors", equal_states_have_equal_successors),
    ("reduction_finds_the_same_violations", reduction_finds_the_same_violations),
];

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [WORKER, scenario, rule, reduction, surprises, share] =
        *words.iter().map(String::as_str).collect::<Vec<_>>()
    {
        let task = Exploration {
            scenario: scenario.to_owned(),
            has_rule: rule == "true",
            is_reduced: reduction == "true",
            surprises: surprises.parse().unwrap(),
            share: share.parse().unwrap(),
        };
        let Err(error) = run_parts(task.explorer(), BufReader::new(io::stdin()), io::stdout());
        panic!("{error}");
    }
    // A word after a flag may be its value.
    let filter = words.first().filter(|word| !word.starts_with('-')).map_or("", String::as_str);
    for (name, test) in TESTS {
        if words.iter().any(|word| word == "--list") {
            println!("{name}: test");
        } else if name.contains(filter) {
            let is_ignored = share() == 0;
            if !is_ignored {
                test();
            }
            println!("test {name} ... {}", if is_ignored { "ignored, EXPLORE_SHARE is 0" } else { "ok" });
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../test/stories/explore")
}

fn share() -> usize {
    env::var("EXPLORE_SHARE").map_or(SHARE, |share| share.parse().unwrap())
}

/// An exploration of a scenario.
#[derive(Debug, Clone)]
struct Exploration {
    scenario: String,
    /// `true` if [`conflicts`] is a rule.
    has_rule: bool,
    is_reduced: bool,
    surprises: usize,
    share: usize,
}

impl Exploration {
    fn new(scenario: &str, surprises: usize, share: usize) -> Self {
        Self { scenario: scenario.to_owned(), has_rule: false, is_reduced: true, surprises, share }
    }

    fn with_conflicts(self) -> Self {
        Self { has_rule: true, ..self }
    }

    fn without_reduction(self) -> Self {
        Self { is_reduced: false, ..self }
    }

    fn explorer(&self) -> Explorer {
        let scenario = Scenario::read(&folder().join(format!("{}.yaml", self.scenario))).unwrap();
        let explorer = Explorer::new(scenario, self.surprises).unwrap().with_share(self.share);
        let explorer = if self.has_rule { explorer.with_rule(conflicts) } else { explorer };
        if self.is_reduced { explorer } else { explorer.without_reduction() }
    }

    /// States of the schedules with one surprise of these parts.
    fn survey(&self, parts: Range<usize>) -> Survey {
        let exploration = Self { surprises: 1, share: 1, ..self.clone() };
        let (explorer, mut survey) = (exploration.explorer(), Survey::default());
        for (part, report) in parts.clone().zip(explorer.run_parts(parts).unwrap()) {
            survey.add(part, report.states);
        }
        survey
    }

    /// Processes that explore.
    fn workers(&self) -> Workers {
        let Self { scenario, has_rule, is_reduced, surprises, share } = self;
        Workers::new(vec![
            WORKER.to_owned(),
            scenario.clone(),
            has_rule.to_string(),
            is_reduced.to_string(),
            surprises.to_string(),
            share.to_string(),
        ])
    }

    /// Runs parts of the exploration in one process.
    fn run(&self, parts: Range<usize>, survey: Survey) -> Report {
        let mut sum = Report::default();
        let reports = self.workers().with_survey(survey).run_parts(parts).unwrap();
        reports.into_iter().for_each(|report| sum.add(report));
        sum
    }
}

fn schedules_with_one_surprise_violate_no_rule() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 24, "{} scenarios", files.len());
    let names = files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap());
    let explore = |name: &&str| {
        let exploration = Exploration::new(name, 1, share());
        let explorer = exploration.explorer();
        assert!(explorer.outcome().has_no_findings(), "{name}: {}", explorer.outcome());
        let points = explorer.choice_count();
        assert!(points >= CHOICE_POINTS, "{name} has {points} choice points");
        let report = exploration.run(0..explorer.parts(), Survey::default());
        assert_eq!(report.schedules + report.left_out, explorer.parts() as u64, "{name}");
        report.violations
    };
    let mut problems = String::new();
    parallel::each(names, parallel::available(), explore, |name, violations| {
        for violation in violations {
            problems += &format!("{name}: {violation:?}\n");
        }
        ControlFlow::<()>::Continue(())
    });
    assert!(problems.is_empty(), "{problems}");
}

/// Resources of writes with an outdated resource version, without late ones. They depend on the order of events.
fn conflicts(outcome: &Outcome) -> Option<String> {
    let lines = outcome.log.iter().filter(|line| line.contains(" 409 at ") && !line.contains("(late)"));
    let resources: BTreeSet<&str> = lines.filter_map(|line| line.split_whitespace().nth(3)).collect();
    (!resources.is_empty()).then(|| resources.into_iter().collect::<Vec<_>>().join(", "))
}

fn copies_do_the_same_as_repetitions() {
    let explorations =
        [("recreate", 1, 8, [0..60, 60..120]), ("rolling-update", 2, 25, [500..501, 501..502])];
    let explorations = explorations.into_iter().take(COMPARED);
    parallel::for_each(explorations, parallel::available(), |(name, surprises, share, groups)| {
        let exploration = Exploration::new(name, *surprises, *share).with_conflicts();
        let survey = exploration.survey(480..500);
        let explorer = exploration.explorer().with_survey(&survey);
        let workers = exploration.workers().with_survey(survey);
        let mut rejoined = 0;
        for group in groups {
            let repeated = explorer.run_parts(group.clone()).unwrap();
            assert_eq!(workers.run_parts(group.clone()).unwrap(), repeated, "{name}, parts {group:?}");
            rejoined += repeated.iter().map(|report| report.rejoined).sum::<u64>();
        }
        assert!(rejoined > 0, "{name}");
    });
}

/// Scenarios whose states are compared.
const STATES: [&str; 6] = [
    "rolling-update",
    "overlapping-replica-sets",
    "two-managers",
    "adoption-and-release",
    "min-ready-seconds",
    "restore",
];

/// After one in this number of surprises, states are compared.
const STATES_SHARE: usize = 40;

/// Number of steps after a surprise among which there is a second one.
const PAIRS: usize = 20;

/// A state is followed by the same state, and an end by the same effect, whatever the surprises before it. Most exceptions are due
/// to names and UIDs, which are drawn. `docs/simulation.md` lists the others.
fn equal_states_have_equal_successors() {
    parallel::for_each(STATES.into_iter().take(COMPARED), parallel::available(), |name| {
        let explorer = Exploration::new(name, 1, 1).explorer();
        let points = explorer.choice_points();
        let surprises = points.iter().flat_map(|point| {
            let ChoicePoint { step, nth, kind, .. } = point;
            let surprise = |becomes: &_| Surprise { step: step.to_string(), nth: *nth, becomes: *becomes };
            kind.alternatives().iter().map(surprise)
        });
        let mut runs: Vec<Vec<RunStateId>> = vec![points.iter().map(|point| point.state).collect()];
        let mut effects = HashMap::new();
        let mut run = |surprises: &[Surprise]| {
            let (outcome, choices) = explorer.schedule(surprises).run_guided(Some(Guide::default())).unwrap();
            let states = choices.states();
            let effect = effects.entry(states.last().copied()).or_insert_with(|| outcome.effect.clone());
            assert_eq!(*effect, outcome.effect, "{name}");
            let points = choices.take_points();
            let after = points.len() - states.len();
            runs.push(states);
            points.into_iter().skip(after).filter(ChoicePoint::has_alternatives).collect::<Vec<_>>()
        };
        for (number, first) in surprises.step_by(STATES_SHARE).enumerate() {
            // Also with a second one, soon after it.
            let points = run(std::slice::from_ref(&first));
            if let Some(ChoicePoint { step, nth, kind, .. }) = points.get(number % PAIRS) {
                let becomes = kind.alternatives()[number % kind.alternatives().len()];
                run(&[first, Surprise { step: step.to_string(), nth: *nth, becomes }]);
            }
        }
        let mut successors: HashMap<u64, Option<u64>> = HashMap::new();
        let (mut equal, mut different) = (0, 0);
        for states in &runs {
            let states: Vec<u64> = states.iter().map(|state| state.fingerprint).collect();
            // Timers can be repeated within the resolution of times.
            let mut counts: HashMap<u64, u32> = HashMap::new();
            states.iter().for_each(|state| *counts.entry(*state).or_default() += 1);
            for (at, state) in states.iter().enumerate().filter(|(_, state)| counts[*state] == 1) {
                let next = states.get(at + 1).copied();
                match successors.insert(*state, next) {
                    Some(other) if other != next => different += 1,
                    Some(_) => equal += 1,
                    None => {}
                }
            }
        }
        println!("{name}: {different} of {equal} states, {} ends of {}", effects.len(), runs.len());
        assert!(different * 40 <= equal, "{name}: {different} of {equal}");
        assert!(equal > 100, "{name}: {equal}");
    });
}

fn reduction_finds_the_same_violations() {
    // Schedules with two surprises also end at states of those with one.
    let explorations = [
        ("replica-set-alone", 1, 20, 0..usize::MAX),
        ("recreate", 1, 20, 0..usize::MAX),
        ("rolling-update", 2, 20, 300..320),
    ];
    let explorations = explorations.into_iter().take(COMPARED);
    parallel::for_each(explorations, parallel::available(), |(name, surprises, share, parts)| {
        let exploration = Exploration::new(name, *surprises, *share).with_conflicts();
        let survey = if *surprises > 1 { exploration.survey(200..300) } else { Survey::default() };
        let parts = parts.start..parts.end.min(exploration.explorer().parts());
        let violations = |exploration: Exploration| -> (BTreeSet<String>, u64) {
            let report = exploration.run(parts.clone(), survey.clone());
            let findings = report.violations.iter().flat_map(|violation| &violation.findings);
            // A run that ends early has only some of the conflicts.
            let resources = findings.flat_map(|finding| finding.what.split(", ").map(str::to_owned));
            (resources.collect(), report.rejoined)
        };
        let (complete, none) = violations(exploration.clone().without_reduction());
        let (reduced, rejoined) = violations(exploration);
        assert!(!complete.is_empty() && rejoined > 0, "{name}: {complete:?}, {rejoined} rejoined");
        assert_eq!(none, 0);
        assert_eq!(reduced, complete, "{name}");
    });
}
