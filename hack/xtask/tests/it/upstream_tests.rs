//! `docs/upstream-tests.md` names existing tests, and these refer to the upstream tests.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helper functions of tests may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
};

use regex::Regex;

const PAGE: &str = "docs/upstream-tests.md";

/// Repeats the cell above.
const DITTO: &str = "″";

fn read(path: &str) -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).ok()
}

/// Row of the page, with repeated cells filled in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    line: usize,
    /// Upstream's file or folder, test, and case, which may be unnamed.
    file: String,
    test: String,
    case: String,
    here: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PAGE}:{}: {} {:?}", self.line, self.test, self.case)
    }
}

/// Parsed last cell of a row.
enum Here<'a> {
    Test { name: &'a str, path: &'a str },
    NotPorted(&'a str),
    Neither,
}

impl Row {
    fn here(&self) -> Here<'_> {
        if let Some(reason) = self.here.strip_prefix("not ported: ") {
            return Here::NotPorted(reason);
        }
        let link = self.here.strip_prefix("[`").and_then(|text| text.strip_suffix(')'));
        match link.and_then(|text| text.split_once("`](../")) {
            Some((name, path)) => Here::Test { name, path },
            None => Here::Neither,
        }
    }
}

fn rows() -> Vec<Row> {
    let page = read(PAGE).unwrap();
    let mut rows: Vec<Row> = Vec::new();
    let mut file = String::new();
    for (line, text) in page.lines().enumerate() {
        if let Some(title) = text.strip_prefix("## ") {
            file = title.trim_matches('`').to_owned();
        }
        let Some(cells) = text.strip_prefix("| ").and_then(|text| text.strip_suffix(" |")) else { continue };
        let cells: Vec<_> = cells.split(" | ").map(|cell| cell.trim().replace(r"\|", "|")).collect();
        let [test, case, here] = &cells[..] else { panic!("{PAGE}:{}: {} cells", line + 1, cells.len()) };
        if test == "Upstream test" {
            continue;
        }
        // Empty cells repeat the row above.
        let above = rows.last().filter(|above| above.file == file);
        let or_above = |text: &str, sign: &str, of: fn(&Row) -> &String| {
            if text == sign { above.map(of).cloned().unwrap_or_default() } else { text.to_owned() }
        };
        let test = or_above(test, "", |above| &above.test).trim_matches('`').to_owned();
        let here = or_above(here, DITTO, |above| &above.here);
        rows.push(Row { line: line + 1, file: file.clone(), test, case: case.clone(), here });
    }
    assert!(!rows.is_empty(), "{PAGE} has no rows");
    rows
}

/// Test function in the source.
struct Found {
    comment: String,
    /// Attributes and body.
    code: String,
}

/// Returns the function `name` in `source`.
fn find(source: &str, name: &str) -> Option<Found> {
    let head = Regex::new(&format!(r"^(\s*)(async )?fn {}\(", regex::escape(name))).unwrap();
    let lines: Vec<&str> = source.lines().collect();
    let at = lines.iter().position(|line| head.is_match(line))?;
    let indent = head.captures(lines[at])?.get(1)?.as_str();
    let is_above = |line: &&&str| line.trim_start().starts_with("///") || line.trim_start().starts_with("#[");
    let above = lines[..at].iter().rev().take_while(is_above).count();
    let end = at + lines[at..].iter().position(|line| *line == format!("{indent}}}"))?;
    let (comments, attributes): (Vec<&str>, Vec<&str>) =
        lines[at - above..at].iter().map(|line| line.trim_start()).partition(|line| line.starts_with("///"));
    let comment =
        comments.iter().map(|line| line.trim_start_matches('/').trim()).collect::<Vec<_>>().join(" ");
    Some(Found { comment, code: [attributes.join("\n"), lines[at..=end].join("\n")].join("\n") })
}

/// Converts the name of an upstream test, such as `TestGetReplicaSets`, to snake case.
fn snake(name: &str) -> String {
    let name = name.trim_start_matches("Test").trim_start_matches("DeploymentController_");
    let mut snake = String::new();
    let mut previous = ' ';
    for letter in name.chars() {
        if letter.is_uppercase() && (previous.is_lowercase() || previous.is_ascii_digit()) {
            snake.push('_');
        }
        snake.push(if letter.is_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
        previous = letter;
    }
    snake.replace("__", "_")
}

/// Checks a row against `source`. Returns the problem, if any.
fn fault(row: &Row, name: &str, source: &str) -> Option<&'static str> {
    let Some(found) = find(source, name) else { return Some("function not found") };
    if !found.code.contains("#[test]") && !found.code.contains("#[tokio::test") {
        return Some("function is not a test");
    }
    if !name.contains(&snake(&row.test)) && !found.comment.contains(&row.test) {
        return Some("neither the name nor the comment of the test contains upstream's name");
    }
    let literal = format!("{:?}", row.case);
    if !found.code.contains(&literal) && !found.comment.contains(&row.case) {
        return Some("neither the test nor its comment contains the case");
    }
    None
}

#[test]
fn listed_tests_exist_and_refer_to_upstream() {
    let mut sources = BTreeMap::new();
    let mut faults = Vec::new();
    for row in rows() {
        match row.here() {
            Here::Test { name, path } => {
                let source = sources.entry(path.to_owned()).or_insert_with(|| read(path));
                let fault = match source {
                    Some(source) => fault(&row, name, source),
                    None => Some("file not found"),
                };
                faults.extend(fault.map(|fault| format!("{row}: {fault}: {path}: {name}")));
            }
            Here::NotPorted(reason) if reason.len() > 5 => {}
            Here::NotPorted(_) | Here::Neither => faults.push(format!("{row}: neither a test nor a reason")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn cases_are_listed_once() {
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = rows()
        .into_iter()
        .filter(|row| !seen.insert((row.file.clone(), row.test.clone(), row.case.clone())))
        .map(|row| row.to_string())
        .collect();
    assert!(twice.is_empty(), "{}", twice.join("\n"));
}

#[test]
fn summary_counts_the_rows() {
    let rows = rows();
    let tests: BTreeSet<_> = rows.iter().map(|row| (&row.file, &row.test)).collect();
    let left_out = rows.iter().filter(|row| matches!(row.here(), Here::NotPorted(_))).count();
    let sum = format!(
        "Of {} tests with {} cases, {} cases have a test here and {left_out} say why not.",
        tests.len(),
        rows.len(),
        rows.len() - left_out,
    );
    assert!(read(PAGE).unwrap().contains(&sum), "the page should say: {sum}");
}

#[test]
fn faults_are_detected() {
    let row = |test: &str, case: &str| Row {
        line: 1,
        file: String::new(),
        test: test.to_owned(),
        case: case.to_owned(),
        here: String::new(),
    };
    let source = "/// Upstream: TestOther, all.\n#[test]\nfn scale_all_cases() {\n    (\"a case\", 1);\n}\n\nfn helper() {\n}\n";
    let of = |test, case, name| fault(&row(test, case), name, source);
    assert_eq!(of("TestScale", "a case", "scale_all_cases"), None);
    assert_eq!(of("TestOther", "", "scale_all_cases"), None, "by its comment");
    assert_eq!(of("TestScale", "a case", "scale"), Some("function not found"));
    assert_eq!(of("TestHelper", "", "helper"), Some("function is not a test"));
    assert!(of("TestElse", "", "scale_all_cases").unwrap().contains("upstream's name"));
    assert!(of("TestScale", "another", "scale_all_cases").unwrap().contains("the case"));
}
