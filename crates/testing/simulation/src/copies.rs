//! Exploration in copies of a process.
//!
//! At each choice point of a schedule, the process is copied (fork) for each of its children, and the copy continues with the
//! surprise. A child therefore costs the steps after its last surprise, and not those before it.
//!
//! A schedule that has children is run twice from its last surprise: once by a copy that runs it to its end, judges it and
//! returns its choice points, and then without its end, to be copied at these choice points.
//!
//! A process that is copied must have a single thread. The copies of a process run one after the other.

use std::{
    convert::Infallible,
    fs,
    io::{self, BufRead, PipeReader, PipeWriter, Read as _, Write},
    ops::Range,
    os::unix::process::{ExitStatusExt as _, parent_id},
    process::{self, ExitStatus},
    sync::Arc,
};

use fork::{Fork, fork, waitpid};
use kcm_simulation::engine::{
    choices::{Children, ChoicePoint, Next},
    explore::Bounds,
    known::{KnownStates, Survey},
    surprises::Alternative,
};
use serde::{Deserialize, Serialize};

use crate::{Explorer, Report, SimulationError};

/// [`Copies::first`] of a schedule that is run to its end.
const TO_THE_END: usize = usize::MAX;

/// Runs parts of an exploration in copies of the process, which must have a single thread. The first line of `requests` contains
/// a [`Survey`], and each line after it a range of parts, in ascending order. A part ends at the states of those of its range that
/// were run before. A line with the [`Report`] of each is written to `reports`.
///
/// Exits at the end of `requests`.
///
/// # Errors
///
/// If the process has several threads, or the scenario cannot be run.
pub fn run_parts(
    explorer: Explorer,
    mut requests: impl BufRead + Send + 'static,
    reports: impl Write + Send + 'static,
) -> Result<Infallible, SimulationError> {
    // A copy has only the thread that copies.
    if fs::read_dir("/proc/self/task").map_or(1, Iterator::count) > 1 {
        return Err(SimulationError::Children(io::Error::other("the process has several threads")));
    }
    let mut survey = String::new();
    requests.read_line(&mut survey).map_err(SimulationError::Children)?;
    let survey: Survey =
        serde_json::from_str(&survey).map_err(|error| SimulationError::Children(error.into()))?;
    let explorer = explorer.with_survey(&survey);
    let mut output = Output::Parts { requests: Box::new(requests), reports: Box::new(reports), next: 0..0 };
    output.read_request().map_err(SimulationError::Children)?;
    explorer.run_children(Box::new(Copies {
        bounds: explorer.bounds(),
        surprises: 0,
        points: Arc::clone(explorer.choice_points()),
        first: 0,
        number: 0,
        known: explorer.known().clone(),
        report: Report::default(),
        output,
    }))
}

/// State of one process of the exploration.
struct Copies {
    bounds: Bounds,
    /// Number of surprises of the schedule.
    surprises: usize,
    /// Choice points of the schedule.
    points: Arc<[ChoicePoint]>,
    /// Index of the choice point after the last surprise.
    first: usize,
    /// Number of the next child.
    number: usize,
    /// States at which the schedule ends.
    known: KnownStates,
    report: Report,
    output: Output,
}

/// Receiver of the result of a process.
enum Output {
    /// The process that requests parts, which are children of the schedule without surprises.
    Parts { requests: Box<dyn BufRead + Send>, reports: Box<dyn Write + Send>, next: Range<usize> },
    /// The process of which this is a copy, and its ID.
    Parent(PipeWriter, u32),
}

/// Result of a copy.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    report: Report,
    /// Choice points of the schedule, if it can have children.
    points: Vec<ChoicePoint>,
}

impl Copies {
    fn try_run_children(&mut self, at: usize, point: &ChoicePoint) -> io::Result<Next> {
        if at < self.first {
            return Ok(Next::Continue);
        }
        if self.points.get(at) != Some(point) {
            return Err(io::Error::other(format!("a repetition differs at {} #{}", point.step, point.nth)));
        }
        for becomes in point.kind.alternatives() {
            let number = self.number;
            self.number += 1;
            if !self.output.is_requested(number) {
                continue;
            }
            if !self.bounds.include(self.surprises, self.first, number) {
                self.report.left_out += 1;
            } else {
                let Some(copy) = self.copy()? else {
                    return self.begin_child(at, number, *becomes);
                };
                let result = copy.result();
                let failed = |error| {
                    io::Error::other(format!("{} #{} becomes {becomes:?}: {error}", point.step, point.nth))
                };
                let report = result.map_err(failed)?.report;
                self.known.add(&report.states);
                if let Output::Parts { .. } = self.output {
                    self.report.states.clone_from(&report.states);
                }
                self.report.add(report);
            }
            if self.output.answer_request(&mut self.report)? {
                self.known.clear();
            }
        }
        if !self.points.iter().skip(at + 1).any(ChoicePoint::has_alternatives) {
            self.finish(Vec::new());
        }
        Ok(Next::Continue)
    }

    /// Begins the schedule of a new copy.
    fn begin_child(&mut self, at: usize, number: usize, becomes: Alternative) -> io::Result<Next> {
        self.report = Report::default();
        self.surprises += 1;
        self.known.begin_child(number);
        let copy = if self.surprises < self.bounds.surprises { self.copy()? } else { None };
        let Some(copy) = copy else {
            self.first = TO_THE_END;
            return Ok(Next::Run(becomes, std::mem::take(&mut self.known)));
        };
        let Message { report, points } = copy.result()?;
        self.known.add(&report.states);
        self.report = report;
        if !points.iter().skip(at + 1).any(ChoicePoint::has_alternatives) {
            self.finish(Vec::new());
        }
        (self.points, self.first, self.number) = (points.into(), at + 1, 0);
        Ok(Next::Extend(becomes))
    }

    /// Copies the process. Returns `None` in the copy.
    fn copy(&mut self) -> io::Result<Option<ChildProcess>> {
        let (pipe, writer) = io::pipe()?;
        let parent = process::id();
        match fork()? {
            Fork::Parent(id) => Ok(Some(ChildProcess { id, pipe })),
            Fork::Child => {
                self.output = Output::Parent(writer, parent);
                Ok(None)
            }
        }
    }

    /// Returns the result of the process, and exits.
    fn finish(&mut self, points: Vec<ChoicePoint>) -> ! {
        let message = Message { report: std::mem::take(&mut self.report), points };
        let is_sent = match &mut self.output {
            Output::Parent(pipe, _) => {
                serde_json::to_vec(&message).is_ok_and(|message| pipe.write_all(&message).is_ok())
            }
            Output::Parts { next, .. } => {
                eprintln!("there are no parts {next:?} after those that were run");
                false
            }
        };
        process::exit(i32::from(!is_sent))
    }
}

impl Children for Copies {
    /// Exits after the last child of the schedule, or with an error if a copy fails.
    fn run(&mut self, at: usize, point: &ChoicePoint) -> Next {
        self.try_run_children(at, point).unwrap_or_else(|error| {
            eprintln!("children of a schedule with {} surprises: {error}", self.surprises);
            process::exit(1)
        })
    }

    fn end(&mut self, report: Report, points: Vec<ChoicePoint>) -> ! {
        if self.first != TO_THE_END {
            eprintln!("a repetition of a schedule with {} surprises has fewer choice points", self.surprises);
            process::exit(1);
        }
        self.report = report;
        let can_have_children = self.surprises < self.bounds.surprises;
        self.finish(if can_have_children { points } else { Vec::new() })
    }
}

impl Output {
    /// `true` if the process was requested to run this child. Exits if the process that requested it is gone.
    fn is_requested(&self, number: usize) -> bool {
        match self {
            Self::Parts { next, .. } => next.start == number,
            Self::Parent(_, parent) if parent_id() != *parent => process::exit(1),
            Self::Parent(..) => true,
        }
    }

    /// Reads the next range of parts. Exits if there is none.
    fn read_request(&mut self) -> io::Result<()> {
        let Self::Parts { requests, next, .. } = self else { return Ok(()) };
        let mut line = String::new();
        if requests.read_line(&mut line)? == 0 {
            process::exit(0);
        }
        *next = serde_json::from_str(&line)?;
        Ok(())
    }

    /// Returns the report of a part that was requested. Returns `true` if it was the last of its range, after it has read the next
    /// request.
    fn answer_request(&mut self, report: &mut Report) -> io::Result<bool> {
        let Self::Parts { reports, next, .. } = self else { return Ok(false) };
        serde_json::to_writer(&mut *reports, &std::mem::take(report))?;
        writeln!(reports)?;
        reports.flush()?;
        next.start += 1;
        let is_last = Range::is_empty(next);
        if is_last {
            self.read_request()?;
        }
        Ok(is_last)
    }
}

/// A copy of this process.
struct ChildProcess {
    id: i32,
    pipe: PipeReader,
}

impl ChildProcess {
    /// Waits for the result of the copy.
    fn result(mut self) -> io::Result<Message> {
        let mut text = Vec::new();
        self.pipe.read_to_end(&mut text)?;
        let status = ExitStatus::from_raw(waitpid(self.id)?);
        if !status.success() {
            return Err(io::Error::other(status.to_string()));
        }
        Ok(serde_json::from_slice(&text)?)
    }
}
