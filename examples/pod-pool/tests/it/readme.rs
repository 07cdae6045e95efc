//! Tables of the README that tests write and compare.

use std::{env, fs};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/", "README.md");

/// Compares the first `columns` columns of the table called `name` with `rows`. With `UPDATE_README=1`, writes the table.
pub(crate) fn check_table(name: &str, columns: usize, rows: &[Vec<String>]) {
    let lines = rows.iter().map(|row| format!("| {} |\n", row.join(" | ")));
    let mut lines: Vec<_> = lines.collect();
    lines.insert(1, format!("|---|{}\n", "--:|".repeat(rows[0].len() - 1)));
    let table = lines.concat();
    let readme = fs::read_to_string(README).unwrap();
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = readme.split_once(&start).unwrap();
    let (current, after) = rest.split_once(&end).unwrap();
    if env::var_os("UPDATE_README").is_some() {
        fs::write(README, format!("{before}{start}{table}{end}{after}")).unwrap();
    } else {
        let first = |table: &str| {
            let cells = |line: &str| line.split('|').skip(1).take(columns).map(str::to_owned).collect();
            table.lines().map(cells).collect::<Vec<Vec<String>>>()
        };
        assert_eq!(first(current), first(&table), "{name} in README.md: run with UPDATE_README=1");
    }
}

/// Number with separators, such as 12,345.
pub(crate) fn number(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}
