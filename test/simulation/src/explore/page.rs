//! Table of explored scenarios in `docs/simulation.md`.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use super::TaskError;

const PAGE: &str = "docs/simulation.md";

/// Beginning of the table.
const HEADER: &str = "\
| Scenario | Choice points | Surprises | Share | Schedules | Equal to their parents | Time | Schedules per second | Violations |
|---|---|---|---|---|---|---|---|---|
";

/// Result of the exploration of a scenario.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) surprises: usize,
    pub(super) share: usize,
    pub(super) choice_points: usize,
    pub(super) schedules: u64,
    pub(super) rejoined: u64,
    pub(super) seconds: f64,
    pub(super) violations: u64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = if self.share == 1 { "all".to_owned() } else { format!("1/{}", self.share) };
        let rate = self.schedules as f64 / self.seconds.max(0.001);
        write!(
            f,
            "| {} | {} | {} | {share} | {} | {} | {:.0} s | {rate:.0} | {} |",
            self.scenario,
            self.choice_points,
            self.surprises,
            self.schedules,
            self.rejoined,
            self.seconds,
            self.violations,
        )
    }
}

/// Replaces the row of a scenario in the table, or adds it.
pub(super) fn update(tree: &Path, row: &Row) -> Result<(), TaskError> {
    let path = tree.join(PAGE);
    let text = fs::read_to_string(&path).map_err(TaskError::file(&path))?;
    if let Some(text) = replaced(&text, row) {
        fs::write(&path, text).map_err(TaskError::file(&path))?;
    }
    Ok(())
}

fn replaced(text: &str, row: &Row) -> Option<String> {
    let (before, rest) = text.split_once(HEADER)?;
    let end = rest.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum();
    let (table, after) = rest.split_at_checked(end)?;
    let key = |line: &str| {
        let mut cells = line.split(" | ");
        let scenario = cells.next().unwrap_or_default().trim_start_matches("| ").to_owned();
        (scenario, cells.nth(1).unwrap_or_default().to_owned())
    };
    let mut rows: BTreeMap<_, String> = table.lines().map(|line| (key(line), line.to_owned())).collect();
    let line = row.to_string();
    rows.insert(key(&line), line);
    let rows: String = rows.into_values().map(|line| line + "\n").collect();
    Some(format!("{before}{HEADER}{rows}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: &str, surprises: usize, schedules: u64) -> Row {
        Row {
            scenario: scenario.to_owned(),
            surprises,
            share: 1,
            choice_points: 200,
            schedules,
            rejoined: 3,
            seconds: 2.0,
            violations: 0,
        }
    }

    #[test]
    fn rows_are_sorted_and_replaced() {
        let mut text = format!("before\n\n{HEADER}\nafter\n");
        for one in [row("b", 1, 10), row("a", 1, 20), row("b", 2, 30), row("b", 1, 40)] {
            text = replaced(&text, &one).unwrap();
        }
        let rows = "| a | 200 | 1 | all | 20 | 3 | 2 s | 10 | 0 |\n\
                    | b | 200 | 1 | all | 40 | 3 | 2 s | 20 | 0 |\n\
                    | b | 200 | 2 | all | 30 | 3 | 2 s | 15 | 0 |\n";
        assert_eq!(text, format!("before\n\n{HEADER}{rows}\nafter\n"));
    }
}
