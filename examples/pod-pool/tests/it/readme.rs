//! Tables of the README that tests write and compare.

use std::{env, fs};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

/// Compares the table called `name` with `rows`. With `UPDATE_README=1`, writes it.
pub(crate) fn check_table(name: &str, rows: &[Vec<String>]) {
    let lines = rows.iter().map(|row| format!("| {} |\n", row.join(" | ")));
    let mut lines: Vec<_> = lines.collect();
    let columns = rows[0].len() - 1;
    lines.insert(1, format!("|---|{}\n", "--:|".repeat(columns)));
    let table = lines.concat();
    let readme = fs::read_to_string(README).unwrap();
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = readme.split_once(&start).unwrap();
    let (current, after) = rest.split_once(&end).unwrap();
    if env::var_os("UPDATE_README").is_some() {
        fs::write(README, format!("{before}{start}{table}{end}{after}")).unwrap();
    } else {
        assert_eq!(current, table, "{name} in README.md: run with UPDATE_README=1");
    }
}

/// Number with separators, such as 12,345.
pub(crate) fn number(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}
