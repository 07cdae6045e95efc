//! Runs every schedule of a scenario with a bounded number of surprises.

use std::{convert::Infallible, io, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    choices::{Children, ChoicePoint, Choices, Guide},
    known::{KnownStates, RunStateId, Survey},
    observer::Finding,
    outcome::{Outcome, SimulationError},
    surprises::{Alternative, Surprise},
};

/// A scenario that can be run with surprises.
pub trait Schedule: Clone {
    /// Runs the scenario once. With a guide, the choices contain its choice points.
    fn run_guided(&self, guide: Option<Guide>) -> Result<(Outcome, Arc<Choices>), SimulationError>;

    /// The scenario with these surprises.
    #[must_use]
    fn with_surprises(&self, surprises: &[Surprise]) -> Self;

    /// Compares an outcome with that without surprises. Adds findings to the outcome.
    fn compare(&self, outcome: &mut Outcome, calm: &Outcome);
}

/// Size of a group of schedules with one surprise. Each ends at the states of those before it in its group.
const GROUP: usize = 256;

/// Schedules of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most surprises of a schedule.
    pub surprises: usize,
    /// Of the schedules with the most surprises, one in this number is run.
    pub share: usize,
}

impl Bounds {
    /// Returns `true` if the child of this number is run. Its parent has `surprises`, and its children begin at the choice point
    /// of index `first`. Numbers begin differently for each parent, so that the share is even.
    pub fn include(self, surprises: usize, first: usize, number: usize) -> bool {
        surprises + 1 < self.surprises || (number + first).is_multiple_of(self.share)
    }

    /// Divides parts into groups, for [`Explorer::run_parts`]. With several surprises, each part is a group, because it has many
    /// schedules.
    pub fn groups(self, parts: usize) -> impl Iterator<Item = Range<usize>> + Send {
        let size = if self.surprises > 1 { 1 } else { GROUP };
        (0..parts).step_by(size).map(move |first| first..parts.min(first + size))
    }
}

/// A rule in addition to those of the simulation. Returns a description of a violation. The run may have ended at the state of
/// another schedule.
pub type ExtraRule = fn(&Outcome) -> Option<String>;

/// Exploration of a scenario.
///
/// A schedule is a run of the scenario with some surprises. The schedules are a tree: a child has one surprise more than
/// its parent, at a later choice point. A schedule that violates a rule has no children.
#[derive(Debug)]
pub struct Explorer<S> {
    scenario: S,
    bounds: Bounds,
    /// States at which schedules end.
    known: KnownStates,
    extra: Option<ExtraRule>,
    points: Arc<[ChoicePoint]>,
    outcome: Outcome,
}

/// Result of a part of an exploration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Number of schedules that were run.
    pub schedules: u64,
    /// Number of these that were ended at a state of another schedule.
    pub rejoined: u64,
    /// Number of schedules that do not belong to the share.
    pub left_out: u64,
    /// Schedules that violate rules.
    pub violations: Vec<Violation>,
    /// States of the first of the schedules after its last surprise. Empty if it violates a rule.
    pub states: Vec<RunStateId>,
}

/// A schedule that violates rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// Surprises of the schedule.
    pub surprises: Vec<Surprise>,
    /// Violations of rules.
    pub findings: Vec<Finding>,
}

/// Schedule whose children are run.
struct Parent {
    surprises: Vec<Surprise>,
    points: Arc<[ChoicePoint]>,
    /// Index of the choice point after the last surprise.
    next: usize,
    /// States at which the schedule ends.
    known: KnownStates,
}

impl<S: Schedule> Explorer<S> {
    /// Runs the scenario without surprises. The other schedules have at most `surprises`.
    pub fn new(scenario: S, surprises: usize) -> Result<Self, SimulationError> {
        let guide = Guide::default();
        let (outcome, choices) = scenario.run_guided(Some(guide))?;
        let points: Arc<[ChoicePoint]> = choices.take_points().into();
        let bounds = Bounds { surprises, share: 1 };
        let known = KnownStates::new(states(&points), &Survey::default());
        Ok(Self { scenario, bounds, known, extra: None, points, outcome })
    }

    /// Runs an even share of the schedules with the most surprises: one in `share`.
    #[must_use]
    pub fn with_share(self, share: usize) -> Self {
        let bounds = Bounds { share: share.max(1), ..self.bounds };
        Self { bounds, ..self }
    }

    /// Ends schedules at the states of schedules with one surprise, unless all are run to their end.
    #[must_use]
    pub fn with_survey(self, survey: &Survey) -> Self {
        if !self.known.is_reduced() {
            return self;
        }
        let known = KnownStates::new(states(&self.points), survey);
        Self { known, ..self }
    }

    /// Runs all schedules to their end.
    #[must_use]
    pub fn without_reduction(self) -> Self {
        Self { known: KnownStates::default(), ..self }
    }

    /// Adds a rule.
    #[must_use]
    pub fn with_rule(self, rule: ExtraRule) -> Self {
        Self { extra: Some(rule), ..self }
    }

    /// Outcome of the run without surprises.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Choice points of the run without surprises.
    pub fn choice_points(&self) -> &Arc<[ChoicePoint]> {
        &self.points
    }

    /// Number of the choice points that have alternatives.
    pub fn choice_count(&self) -> usize {
        self.points.iter().filter(|point| point.has_alternatives()).count()
    }

    /// States at which schedules end.
    pub fn known(&self) -> &KnownStates {
        &self.known
    }

    /// Schedules of the exploration.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Number of parts of the exploration: schedules with one surprise.
    pub fn parts(&self) -> usize {
        if self.bounds.surprises == 0 { 0 } else { self.root().extensions().count() }
    }

    /// The schedule without surprises.
    fn root(&self) -> Parent {
        Parent { surprises: Vec::new(), points: Arc::clone(&self.points), next: 0, known: self.known.clone() }
    }

    /// The scenario with surprises.
    pub fn schedule(&self, surprises: &[Surprise]) -> S {
        self.scenario.with_surprises(surprises)
    }

    /// Runs schedules with one surprise, each with all schedules that extend it. They end at the states of those with one surprise
    /// that were run before.
    pub fn run_parts(&self, parts: Range<usize>) -> Result<Vec<Report>, SimulationError> {
        let mut root = self.root();
        let extensions: Vec<_> = root.extensions().enumerate().skip(parts.start).take(parts.len()).collect();
        let mut reports = Vec::new();
        for (part, extension) in extensions {
            let mut report = Report::default();
            report.states = self.run(&root, part, extension, &mut report)?;
            root.known.add(&report.states);
            reports.push(report);
        }
        Ok(reports)
    }

    /// Runs a child with its children. Returns its states.
    fn run(
        &self,
        parent: &Parent,
        number: usize,
        (at, becomes): (usize, Alternative),
        report: &mut Report,
    ) -> Result<Vec<RunStateId>, SimulationError> {
        let Some(ChoicePoint { step, nth, .. }) = parent.points.get(at) else { return Ok(Vec::new()) };
        if !self.bounds.include(parent.surprises.len(), parent.next, number) {
            report.left_out += 1;
            return Ok(Vec::new());
        }
        let mut surprises = parent.surprises.clone();
        surprises.push(Surprise { step: step.to_string(), nth: *nth, becomes });
        let mut known = parent.known.clone();
        known.begin_child(number);
        let guide = Guide { parent: Arc::clone(&parent.points), known: known.clone(), children: None };
        let (outcome, choices) = self.schedule(&surprises).run_guided(Some(guide))?;
        let mut of_schedule = self.judge(outcome, &choices, &surprises);
        let has_children = surprises.len() < self.bounds.surprises && of_schedule.violations.is_empty();
        let states = std::mem::take(&mut of_schedule.states);
        report.add(of_schedule);
        if !has_children {
            return Ok(states);
        }
        let mut child = Parent { surprises, points: choices.take_points().into(), next: at + 1, known };
        child.known.add(&states);
        let extensions: Vec<_> = child.extensions().collect();
        for (number, extension) in extensions.into_iter().enumerate() {
            let states = self.run(&child, number, extension, report)?;
            child.known.add(&states);
        }
        Ok(states)
    }

    /// Runs the scenario without surprises, with its children. Returns only with an error.
    pub fn run_children(&self, children: Box<dyn Children>) -> Result<Infallible, SimulationError> {
        let guide = Guide { children: Some(children), ..Guide::default() };
        let (outcome, choices) = self.scenario.run_guided(Some(guide))?;
        // A copy that has run its schedule to the end.
        let lost = || SimulationError::Children(io::Error::other("the run has no children"));
        let mut children = choices.take_children().ok_or_else(lost)?;
        let report = self.judge(outcome, &choices, &choices.chosen());
        let points = if report.violations.is_empty() { choices.take_points() } else { Vec::new() };
        children.end(report, points)
    }

    /// Applies the rules for the end that compare runs. Returns the report of the schedule.
    fn judge(&self, mut outcome: Outcome, choices: &Choices, surprises: &[Surprise]) -> Report {
        let mut report = Report { schedules: 1, states: choices.states(), ..Report::default() };
        let extra = self.extra.and_then(|rule| rule(&outcome));
        let is_clean = outcome.has_no_findings();
        if choices.is_rejoined() && is_clean && extra.is_none() {
            report.rejoined = 1;
            return report;
        }
        if is_clean && !choices.is_rejoined() {
            self.scenario.compare(&mut outcome, &self.outcome);
        }
        outcome.findings.extend(extra.map(|what| Finding { rule: "extra".to_owned(), what }));
        if !outcome.has_no_findings() {
            let surprises = surprises.to_vec();
            report.violations.push(Violation { surprises, findings: outcome.findings });
            report.states.clear();
        }
        report
    }
}

impl Report {
    /// Adds the report of other schedules, without their states.
    pub fn add(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.rejoined += other.rejoined;
        self.left_out += other.left_out;
        self.violations.extend(other.violations);
    }
}

/// States of a run.
fn states(points: &[ChoicePoint]) -> impl Iterator<Item = RunStateId> {
    points.iter().map(|point| point.state)
}

impl Parent {
    /// Surprises that extend the schedule: indexes of choice points, and alternatives.
    fn extensions(&self) -> impl Iterator<Item = (usize, Alternative)> {
        self.points
            .iter()
            .enumerate()
            .skip(self.next)
            .flat_map(|(at, point)| point.kind.alternatives().iter().map(move |becomes| (at, *becomes)))
    }
}
