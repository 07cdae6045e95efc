//! State of an exploration, in a file with one line for each finished part.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write as _,
    ops::Range,
    path::PathBuf,
    time::Duration,
};

use kcm_rollout_simulation::Report;

use super::TaskError;

/// Characters of a full progress bar.
const BAR: usize = 20;

/// Finished parts and their sums.
#[derive(Debug)]
pub(super) struct Progress {
    path: PathBuf,
    file: File,
    parts: usize,
    done: BTreeSet<usize>,
    pub(super) schedules: u64,
    pub(super) rejoined: u64,
    pub(super) violations: u64,
    /// Time of this run, and of those before it.
    elapsed: Duration,
    before: Duration,
}

impl Progress {
    /// Opens the file of a program, by its hash, and a scenario. With `resume`, keeps the parts that it contains, unless they are
    /// those of another program or scenario, or violate rules: these are run again, so that they are shown.
    pub(super) fn open(
        path: PathBuf,
        parts: usize,
        of: (u64, &str),
        resume: bool,
    ) -> Result<Self, TaskError> {
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        let columns = "part, schedules, ended before, violations, milliseconds";
        let header = format!("# {parts} parts of {:016x}: {columns}", hasher.finish());
        let old = if resume { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let is_same = old.lines().next() == Some(&header);
        let old = if is_same { old } else { String::new() };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(TaskError::file(folder))?;
        }
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(is_same).truncate(!is_same);
        let mut file = options.open(&path).map_err(TaskError::file(&path))?;
        if !is_same {
            writeln!(file, "{header}").map_err(TaskError::file(&path))?;
        }
        let mut progress = Self {
            path,
            file,
            parts,
            done: BTreeSet::new(),
            schedules: 0,
            rejoined: 0,
            violations: 0,
            elapsed: Duration::ZERO,
            before: Duration::ZERO,
        };
        for line in old.lines() {
            let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
            let [part, schedules, rejoined, 0, milliseconds] = numbers[..] else { continue };
            progress.count(usize::try_from(part).unwrap_or(usize::MAX), schedules, rejoined, 0);
            progress.before += Duration::from_millis(milliseconds);
        }
        Ok(progress)
    }

    fn count(&mut self, part: usize, schedules: u64, rejoined: u64, violations: u64) {
        if part < self.parts && self.done.insert(part) {
            self.schedules += schedules;
            self.rejoined += rejoined;
            self.violations += violations;
        }
    }

    /// Groups of parts that are not finished.
    pub(super) fn left(&self, groups: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
        groups.filter(|group| group.clone().any(|part| !self.done.contains(&part))).collect()
    }

    /// Adds a part that is finished after this time.
    pub(super) fn add(&mut self, part: usize, report: &Report, now: Duration) -> Result<(), TaskError> {
        let time = now.saturating_sub(self.elapsed);
        self.elapsed = now;
        let violations = report.violations.len() as u64;
        let Report { schedules, rejoined, .. } = *report;
        self.count(part, schedules, rejoined, violations);
        let line = format!("{part} {schedules} {rejoined} {violations} {}\n", time.as_millis());
        // In one write, so that a killed task leaves no part of a number.
        self.file.write_all(line.as_bytes()).map_err(TaskError::file(&self.path))
    }

    /// Time of all runs.
    pub(super) fn seconds(&self) -> f64 {
        (self.before + self.elapsed).as_secs_f64()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, rate) = (self.done.len(), self.schedules as f64 / self.seconds().max(0.001));
        let Self { parts, schedules, violations, .. } = self;
        let filled = done * BAR / parts.max(&1);
        write!(
            f,
            "[{}{}] {done} of {parts} parts, {schedules} schedules, {rate:.0} a second, {violations} violations",
            "#".repeat(filled),
            ".".repeat(BAR - filled),
        )
    }
}

#[cfg(test)]
mod tests {
    use kcm_rollout_simulation::Violation;

    use super::*;

    #[test]
    fn finished_parts_are_kept_for_the_same_scenario_and_shown() {
        let folder = tempfile::tempdir().unwrap();
        let open = |scenario, resume| {
            Progress::open(folder.path().join("state/a.txt"), 3, (0, scenario), resume).unwrap()
        };
        let report = Report { schedules: 5, rejoined: 2, ..Report::default() };
        let left = |progress: &Progress, size| -> Vec<usize> {
            let groups = (0..3).step_by(size).map(|first| first..3.min(first + size));
            progress.left(groups).into_iter().map(|group| group.start).collect()
        };
        open("one", false).add(1, &report, Duration::from_secs(2)).unwrap();
        let mut progress = open("one", true);
        assert_eq!((left(&progress, 1), progress.schedules, progress.seconds()), (vec![0, 2], 5, 2.0));
        progress.add(0, &report, Duration::from_secs(1)).unwrap();
        let progress = open("one", true);
        assert_eq!((left(&progress, 1), progress.rejoined, progress.seconds()), (vec![2], 4, 3.0));
        let shown = "[#############.......] 2 of 3 parts, 10 schedules, 3 a second, 0 violations";
        assert_eq!(progress.to_string(), shown);
        assert_eq!(left(&progress, 2), [2]);
        let violation = Violation { surprises: Vec::new(), findings: Vec::new() };
        let violated = Report { violations: vec![violation], ..report.clone() };
        open("one", true).add(2, &violated, Duration::from_secs(1)).unwrap();
        let progress = open("one", true);
        assert_eq!((left(&progress, 1), progress.violations), (vec![2], 0));
        assert_eq!(left(&open("other", true), 2), [0, 2]);
        assert_eq!(left(&open("other", false), 1), [0, 1, 2]);
    }
}
