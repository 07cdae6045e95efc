//! Processes that run the parts of an exploration in copies of themselves.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Write as _},
    ops::Range,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use parking_lot::Mutex;

use crate::{Report, Survey};

/// Workers of an exploration. Each calls [`run_parts`](crate::run_parts) with its standard input and output.
#[derive(Debug)]
pub struct Workers {
    words: Vec<String>,
    survey: Survey,
    idle: Mutex<Vec<Worker>>,
}

impl Workers {
    /// Workers that run this program with other arguments.
    pub fn new(words: Vec<String>) -> Self {
        Self { words, survey: Survey::default(), idle: Mutex::default() }
    }

    /// Ends schedules at the states of schedules with one surprise.
    #[must_use]
    pub fn with_survey(self, survey: Survey) -> Self {
        Self { survey, ..self }
    }

    /// Runs consecutive parts. Each ends at the states of those before it. Several threads can run parts at once.
    ///
    /// # Errors
    ///
    /// If a worker cannot be started, or fails.
    pub fn run_parts(&self, parts: Range<usize>) -> io::Result<Vec<Report>> {
        let idle = {
            let mut idle = self.idle.lock();
            let at = idle.iter().position(|worker| worker.next <= parts.start);
            // One that is past the parts is replaced.
            at.map(|at| idle.swap_remove(at)).or_else(|| idle.pop())
        };
        let mut worker = match idle.filter(|worker| worker.next <= parts.start) {
            Some(worker) => worker,
            None => Worker::start(Command::new(env::current_exe()?).args(&self.words), &self.survey)?,
        };
        let reports = worker.run_parts(parts)?;
        self.idle.lock().push(worker);
        Ok(reports)
    }
}

/// A process that runs parts in ascending order.
#[derive(Debug)]
struct Worker {
    process: Child,
    requests: ChildStdin,
    reports: BufReader<ChildStdout>,
    /// Lowest number of a part that the process can still run.
    next: usize,
}

impl Worker {
    fn start(command: &mut Command, survey: &Survey) -> io::Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (mut requests, reports) = pipes.ok_or_else(|| io::Error::other("a worker has no pipes"))?;
        serde_json::to_writer(&requests, survey)?;
        writeln!(requests)?;
        Ok(Self { process, requests, reports: BufReader::new(reports), next: 0 })
    }

    fn run_parts(&mut self, parts: Range<usize>) -> io::Result<Vec<Report>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        serde_json::to_writer(&self.requests, &parts)?;
        writeln!(self.requests)?;
        self.next = parts.end;
        parts.map(|part| self.read_report(part)).collect()
    }

    fn read_report(&mut self, part: usize) -> io::Result<Report> {
        let mut line = String::new();
        if self.reports.read_line(&mut line)? == 0 {
            let status = self.process.wait()?;
            return Err(io::Error::other(format!("a worker failed at part {part}: {status}")));
        }
        let report: Report = serde_json::from_str(&line)?;
        if report.schedules + report.left_out == 0 {
            return Err(io::Error::other(format!("a worker has run no schedule of part {part}")));
        }
        Ok(report)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Its copies exit before their next child.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
