//! `docs/tutorial.md`: its code blocks are the files of this crate, which are compiled and tested.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

/// Code block of the tutorial.
struct Block {
    /// File that the paragraph before the block names last, relative to this crate.
    file: String,
    language: String,
    text: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tutorial = fs::read_to_string(root.join("docs/tutorial.md")).unwrap();
    let mut blocks = Vec::new();
    let (mut before, mut lines) = (String::new(), tutorial.lines());
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            let file = before.rsplit('`').nth(1).unwrap_or_default().to_owned();
            blocks.push(Block { file, language: language.to_owned(), text: text.join("\n") });
        } else if !line.is_empty() {
            line.clone_into(&mut before);
        }
    }
    blocks
}

fn without_blank_lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty()).collect()
}

#[test]
fn blocks_are_parts_of_the_files_that_they_name() {
    for Block { file, language, text } in blocks() {
        match language.as_str() {
            "rust" | "yaml" => assert!(read(&file).contains(&text), "not in {file}:\n{text}"),
            // Checked below.
            "toml" | "sh" => {}
            _ => panic!("language {language:?} of a block is not checked:\n{text}"),
        }
    }
}

#[test]
fn blocks_of_a_source_file_make_up_the_file() {
    let mut files = BTreeMap::<String, String>::new();
    for Block { file, text, .. } in blocks() {
        if file.starts_with("src/") && !file.ends_with("/tests.rs") {
            let whole = files.entry(file).or_default();
            whole.push_str(&text);
            whole.push('\n');
        }
    }
    let sources = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let sources: BTreeSet<_> = sources
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".rs"))
        .map(|name| format!("src/{name}"))
        .collect();
    assert_eq!(files.keys().cloned().collect::<BTreeSet<_>>(), sources);
    for (file, text) in files {
        let source = read(&file);
        assert_eq!(without_blank_lines(&text), without_blank_lines(&source), "{file}");
    }
}

#[test]
fn shell_blocks_print_what_the_text_says() {
    let shell: Vec<_> = blocks().into_iter().filter(|block| block.language == "sh").collect();
    let commands: Vec<_> = shell.iter().flat_map(|block| block.text.lines()).collect();
    // `cargo test` is this test.
    assert_eq!(commands, ["cargo new website-operator", "cargo test", "cargo run -- crd > deploy/crd.yaml"]);
    let output = Command::new(env!("CARGO_BIN_EXE_website-operator")).arg("crd").output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), read("deploy/crd.yaml"));
}

/// The manifest of the tutorial has the dependencies of this crate, with versions in place of the workspace's paths.
#[test]
fn manifest_has_the_dependencies_of_this_crate() {
    let block = manifest();
    let own = read("Cargo.toml");
    for table in ["dependencies", "dev-dependencies"] {
        assert_eq!(dependencies(&block, table), dependencies(&own, table), "{table}");
    }
    let version = env!("CARGO_PKG_VERSION");
    for line in block.lines().filter(|line| line.starts_with("kcm-")) {
        assert!(line.contains(&format!("\"{version}\"")), "{line}");
    }
}

/// Builds the crate from the blocks alone, outside of the workspace. Ignored because it compiles all dependencies again:
///
/// `cargo test -p website-operator --test tutorial -- --ignored`
#[test]
#[ignore = "compiles all dependencies"]
fn crate_of_the_blocks_builds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut manifest = manifest();
    manifest.push_str("\n[workspace]\n\n[patch.crates-io]\n");
    for line in fs::read_to_string(root.join("Cargo.toml")).unwrap().lines() {
        if let Some((head, path)) = line.split_once("path = \"crates/") {
            let (name, path) = (head.split(' ').next().unwrap(), path.split('"').next().unwrap());
            let path = root.join("crates").join(path);
            manifest.push_str(&format!("{name} = {{ path = {path:?} }}\n"));
        }
    }
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    let mut files = BTreeMap::<String, String>::new();
    for Block { file, text, .. } in blocks() {
        if file.starts_with("src/") && !file.ends_with("/tests.rs") {
            files.entry(file).or_default().push_str(&format!("{text}\n"));
        }
    }
    for (file, text) in files {
        fs::write(folder.path().join(file), text).unwrap();
    }
    let status = Command::new(env!("CARGO"))
        .args(["check", "--offline"])
        .env("CARGO_TARGET_DIR", root.join("target/tutorial"))
        .current_dir(&folder)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Returns the manifest in the tutorial.
fn manifest() -> String {
    blocks().into_iter().find(|block| block.file == "Cargo.toml").unwrap().text
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
