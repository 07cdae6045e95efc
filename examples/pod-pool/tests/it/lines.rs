//! Lines of code and dependencies of the operators.

use std::{collections::BTreeSet, fs, process::Command};

use crate::readme::{check_table, number};

/// Modules in the program with controller-runtime, without its own, measured as the README describes.
const GO_MODULES: usize = 79;

/// Lines of a source file without comments, blank lines and unit tests.
fn lines(file: &str) -> usize {
    let text = fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let lines = text.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]");
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Lines of a function, by the text of its first line.
fn function(file: &str, start: &str) -> usize {
    let text = fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let function = text.lines().skip_while(|line| !line.starts_with(start));
    let mut lines = function.map_while(|line| (line != "}").then_some(line.trim()));
    1 + lines.by_ref().filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

fn heading(first: &str) -> Vec<String> {
    [first, "`kcm`", "kube-runtime", "controller-runtime"].map(str::to_owned).to_vec()
}

#[test]
fn table() {
    let row = |part: &str, kcm: usize, kube_runtime: usize, go: usize| {
        let go = if go == 0 { "–".to_owned() } else { number(go) };
        vec![part.to_owned(), number(kcm), number(kube_runtime), go]
    };
    let go = |file: &str| lines(&format!("on-controller-runtime/{file}.go"));
    let both = |part: &str, files: &[&str], go: usize| {
        let count = files.iter().map(|file| lines(file)).sum();
        row(part, count, count, go)
    };
    let kube_runtime_wiring = function("src/on_kube_runtime.rs", "pub async fn run");
    let go_wiring = function("on-controller-runtime/controller.go", "func setUp");
    let tests =
        ["cluster", "lifecycle", "faults"].iter().map(|file| lines(&format!("tests/it/{file}.rs"))).sum();
    let (wiring, main) = (lines("src/operator.rs"), lines("src/main.rs"));
    check_table(
        "lines",
        4,
        &[
            heading("Lines of code"),
            both("custom resource", &["src/pool.rs"], go("pool")),
            both("external system, with a fake", &["src/reservations.rs"], go("reservations")),
            both("decisions", &["src/plan.rs"], go("plan")),
            row(
                "requests",
                lines("src/controller.rs"),
                lines("src/on_kube_runtime.rs") - kube_runtime_wiring,
                go("controller") - go_wiring,
            ),
            row("caches and controller", wiring, kube_runtime_wiring, go_wiring),
            row("`main`", main, lines("src/on_kube_runtime/main.rs"), go("main")),
            both("unit tests of the decisions", &["src/plan/tests.rs"], 0),
            row("tests with the API server", tests, tests, 0),
        ],
    );
    assert!(wiring + main <= 60, "{wiring} + {main} lines are no decisions");
}

/// Direct and all dependencies of the operator with `feature`.
fn dependencies(feature: &str) -> [usize; 2] {
    ["1", "99"].map(|depth| {
        let arguments = ["tree", "--offline", "--edges=normal", "--prefix=none", "--package=pod-pool"];
        let target = ["--target=x86_64-unknown-linux-gnu", "--no-default-features", "--features", feature];
        let tree = Command::new(env!("CARGO")).args(arguments).args(target).args(["--depth", depth]).output();
        let tree = String::from_utf8(tree.unwrap().stdout).unwrap();
        let crates: BTreeSet<_> = tree.lines().filter_map(|line| line.split(" (").next()).collect();
        crates.len() - 1
    })
}

/// Requirements in `go.mod`.
fn go_requirements() -> usize {
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/on-controller-runtime/go.mod")).unwrap();
    text.lines().filter(|line| line.starts_with('\t')).count()
}

#[test]
fn dependencies_table() {
    let (kcm, kube_runtime) = (dependencies("kcm"), dependencies("kube-runtime"));
    let row = |text: &str, index: usize, go: usize| {
        vec![text.to_owned(), number(kcm[index]), number(kube_runtime[index]), number(go)]
    };
    let rows =
        [heading("Crates, or Go modules"), row("direct", 0, go_requirements()), row("all", 1, GO_MODULES)];
    check_table("dependencies", 4, &rows);
}
