//! Tables in `docs/simulation.md` that the tasks write.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

const PAGE: &str = "docs/simulation.md";

/// A page that cannot be read or written.
#[derive(Debug, Error)]
#[error("failed to access {}: {source}", path.display())]
pub struct PageError {
    path: PathBuf,
    source: io::Error,
}

/// A table of the page.
pub(crate) struct Table {
    /// Its first two lines.
    pub(crate) header: &'static str,
    /// Columns that identify a row and order the table.
    pub(crate) key: &'static [usize],
}

impl Table {
    /// Replaces a row in the table, or adds it.
    pub(crate) fn update(&self, tree: &Path, row: &str) -> Result<(), PageError> {
        let path = tree.join(PAGE);
        let failed = |source| PageError { path: path.clone(), source };
        let text = fs::read_to_string(&path).map_err(failed)?;
        let Some(text) = self.replaced(&text, row) else {
            return Err(failed(io::Error::other(format!(
                "it has no table with the columns {}",
                self.header
            ))));
        };
        fs::write(&path, text).map_err(failed)
    }

    fn replaced(&self, text: &str, row: &str) -> Option<String> {
        let (before, rest) = text.split_once(self.header)?;
        let end = rest.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum();
        let (table, after) = rest.split_at_checked(end)?;
        let key = |line: &str| -> Vec<String> {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            self.key.iter().filter_map(|at| cells.get(at + 1)).map(|cell| (*cell).to_owned()).collect()
        };
        let mut rows: BTreeMap<_, &str> = table.lines().map(|line| (key(line), line)).collect();
        rows.insert(key(row), row);
        let rows: String = rows.into_values().flat_map(|line| [line, "\n"]).collect();
        Some(format!("{before}{}{rows}{after}", self.header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_replaced() {
        let table = Table { header: "| Name | Time | Number |\n|---|---|---|\n", key: &[0, 2] };
        let mut text = format!("before\n\n{}\nafter\n", table.header);
        for row in ["| b | 10 s | 1 |", "| a | 20 s | 1 |", "| b | 30 s | 2 |", "| b | 40 s | 1 |"] {
            text = table.replaced(&text, row).unwrap();
        }
        let rows = "| a | 20 s | 1 |\n| b | 40 s | 1 |\n| b | 30 s | 2 |\n";
        assert_eq!(text, format!("before\n\n{}{rows}\nafter\n", table.header));
    }
}
