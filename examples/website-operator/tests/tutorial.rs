//! `docs/tutorial.md`: its code blocks are files of this crate, which is compiled and tested. So is the test in two READMEs.
//! The manifests in `deploy` fit the program.
//!
//! A comment before a block names the file: `<!-- src/plan.rs -->`, without its unit tests, which are in a file of their own. If
//! it names items as well, the block is an excerpt: `<!-- src/plan.rs: pub fn plan, fn owned -->`. `UPDATE_TUTORIAL=1` writes the
//! blocks. `cargo run -p packages -- consumer` builds the crate of the tutorial from the blocks.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use kube_core::CustomResourceExt;
use serde_json::Value;
use website_operator::website::Website;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Pages with excerpts, from the root of the tree.
const PAGES: [&str; 3] = ["docs/tutorial.md", "README.md", "crates/sandbox/testing/README.md"];

fn page(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn tutorial() -> String {
    fs::read_to_string(page(PAGES[0])).unwrap()
}

/// Returns the page with the excerpts that its comments name.
fn with_excerpts(page: &str) -> String {
    let mut written = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        written.push_str(&format!("{line}\n"));
        let named = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        if let Some(named) = named {
            let fence = lines.next().filter(|fence| fence.starts_with("```")).unwrap();
            lines.by_ref().find(|line| *line == "```").unwrap();
            written.push_str(&format!("{fence}\n{}\n```\n", excerpt(named)));
        }
    }
    written
}

/// Returns the excerpt that a comment names.
fn excerpt(named: &str) -> String {
    let Some((file, items)) = named.split_once(": ") else {
        return read(named).trim_end().trim_end_matches("#[cfg(test)]\nmod tests;").trim_end().to_owned();
    };
    let text = read(file);
    let lines: Vec<_> = text.lines().collect();
    let items = items.split(", ").map(|name| {
        item(&lines, name).unwrap_or_else(|| panic!("{file} has no item that begins with {name:?}"))
    });
    items.collect::<Vec<_>>().join("\n\n")
}

/// Returns the item that begins with `name`, with its comments and attributes, and without its indentation.
fn item(lines: &[&str], name: &str) -> Option<String> {
    let at = lines.iter().position(|line| line.trim_start().starts_with(name))?;
    let indentation = lines[at].len() - lines[at].trim_start().len();
    let (first, length) = if name.ends_with(':') {
        // A key of YAML ends before the next line that is not indented.
        (0, lines[at + 1..].iter().take_while(|line| line.starts_with(' ')).count())
    } else {
        let is_outside = |line: &str| line.is_empty() || line.ends_with('{');
        let closes = |line: &&str| line.trim_start() == "}" && line.len() == indentation + 1;
        let first = lines[..at].iter().rev().take_while(|line| !is_outside(line)).count();
        (first, lines[at..].iter().position(closes)?)
    };
    let lines = lines[at - first..=at + length].iter();
    Some(lines.map(|line| line.get(indentation..).unwrap_or_default()).collect::<Vec<_>>().join("\n"))
}

#[test]
fn blocks_are_excerpts_of_this_crate() {
    for path in PAGES {
        let text = fs::read_to_string(page(path)).unwrap();
        let written = with_excerpts(&text);
        if env::var_os("UPDATE_TUTORIAL").is_some() {
            fs::write(page(path), &written).unwrap();
        } else {
            assert!(
                written == text,
                "{path}: run UPDATE_TUTORIAL=1 cargo test -p website-operator --test tutorial"
            );
        }
    }
}

#[test]
fn shell_blocks_print_what_the_text_says() {
    let commands = blocks("sh").join("\n");
    // `cargo test` is this test.
    let expected = [
        "cargo new website-operator",
        "cd website-operator",
        "mkdir tests deploy",
        "cargo test",
        "cargo run -- crd > deploy/crd.yaml",
    ];
    assert_eq!(commands.lines().collect::<Vec<_>>(), expected);
    let output = Command::new(env!("CARGO_BIN_EXE_website-operator")).arg("crd").output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), read("deploy/crd.yaml"));
}

/// The manifest of the tutorial has the dependencies of this crate, with versions in place of the workspace's paths.
#[test]
fn manifest_has_dependencies_of_this_crate() {
    let block = blocks("toml").remove(0);
    let own = read("Cargo.toml");
    for table in ["dependencies", "dev-dependencies"] {
        let own = dependencies(&own, table);
        for (name, features) in dependencies(&block, table) {
            assert!(own.get(&name).is_some_and(|own| features.is_subset(own)), "{table}: {name}");
        }
    }
}

/// Returns the blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let text = tutorial();
    let fence = format!("\n```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// Returns the dependencies in a table of a manifest with their features. Those of the workspace are included.
fn dependencies(manifest: &str, table: &str) -> BTreeMap<String, BTreeSet<String>> {
    let workspace =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).unwrap();
    let inherited = |name: &str| {
        workspace.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap_or_default().to_owned()
    };
    let features = |line: &str| -> BTreeSet<String> {
        let list = line.split_once(" features = ").map_or("[]", |(_, list)| list.trim_end_matches(" }"));
        serde_json::from_str(list).unwrap()
    };
    let body = manifest.split_once(&format!("[{table}]\n")).unwrap().1.split("\n[").next().unwrap();
    let lines = body.lines().filter(|line| line.contains(" = "));
    lines
        .map(|line| {
            let name = line.split(['.', ' ']).next().unwrap();
            let mut all = features(line);
            if line.contains("workspace") {
                all.extend(features(&inherited(name)));
            }
            (name.to_owned(), all)
        })
        .collect()
}

/// `cargo run -p website-operator -- crd > examples/website-operator/deploy/crd.yaml` updates the file.
#[test]
fn crd_is_derived_from_the_type() {
    assert_eq!(read("deploy/crd.yaml"), serde_saphyr::to_string(&Website::crd()).unwrap());
}

#[test]
fn example_is_a_website() {
    let website: Website = serde_saphyr::from_str(&read("deploy/website.yaml")).unwrap();
    assert_eq!(website.spec.replicas, 3);
}

#[test]
fn manifests_are_yaml_of_one_namespace() {
    for name in ["deploy/rbac.yaml", "deploy/deployment.yaml"] {
        for document in read(name).split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            assert!(object["apiVersion"].is_string() && object["kind"].is_string(), "{document}");
            let namespace = &object["metadata"]["namespace"];
            assert!(namespace.is_null() || namespace == "website-operator" || namespace == "kube-system");
        }
    }
}
