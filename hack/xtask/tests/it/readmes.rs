//! Checks that the manifest and the README of each published crate agree.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Manifests of the published crates, as `cargo metadata` prints them.
fn libraries() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let is_published = |package: &&Value| package["publish"].is_null();
    let libraries: Vec<_> =
        metadata["packages"].as_array().unwrap().iter().filter(is_published).cloned().collect();
    assert!(libraries.len() > 20, "{} library crates", libraries.len());
    libraries
}

fn readme(package: &Value) -> String {
    let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
    fs::read_to_string(folder.join(package["readme"].as_str().unwrap())).unwrap()
}

/// Number of crates that a program compiles for `name`, apart from itself.
fn dependencies(name: &str, features: &str) -> usize {
    let tree = cargo(&[
        "tree",
        "--offline",
        "--edges=normal",
        "--prefix=none",
        "--target=x86_64-unknown-linux-gnu",
        "--package",
        name,
        "--features",
        features,
    ]);
    let crates: BTreeSet<_> = tree.lines().filter_map(|line| line.split(" (").next()).collect();
    crates.len() - 1
}

#[test]
fn manifests_describe_each_library() {
    for package in libraries() {
        let name = &package["name"];
        assert!(package["description"].is_string(), "{name} has no description");
        let keywords = package["keywords"].as_array().unwrap();
        assert!((1..=5).contains(&keywords.len()), "{name} has {} keywords", keywords.len());
        // The rule of crates.io.
        assert!(keywords.iter().all(|keyword| keyword.as_str().unwrap().len() <= 20), "{name}: long keyword");
        let categories = package["categories"].as_array().unwrap();
        assert!((1..=5).contains(&categories.len()), "{name} has {} categories", categories.len());
        assert!(package["metadata"]["docs"]["rs"].is_object(), "{name} has no settings for docs.rs");
    }
}

#[test]
fn readmes_list_rust_version_and_features() {
    for package in libraries() {
        let (name, readme) = (&package["name"], readme(&package));
        let version = package["rust_version"].as_str().unwrap();
        assert!(
            readme.contains(&format!("| Minimum Rust version | {version} |\n")),
            "{name}: Rust {version}"
        );
        let features =
            package["features"].as_object().unwrap().keys().filter(|feature| *feature != "default");
        for feature in features {
            assert!(
                readme.contains(&format!("\n| `{feature}` | ")),
                "{name}: feature {feature} is not listed"
            );
        }
    }
}

#[test]
fn readmes_count_dependencies() {
    for package in libraries() {
        let (name, readme) = (package["name"].as_str().unwrap(), readme(&package));
        let count = dependencies(name, "");
        let mut text = match count {
            0 => "No dependencies.".to_owned(),
            _ => format!("{count} crates on Linux with the default features, direct and indirect"),
        };
        if package["features"].get("kube").is_some() {
            let with_kube = dependencies(name, "kube");
            if with_kube != count {
                text = format!("{text}; {with_kube} with `kube`");
            }
        }
        assert!(
            readme.contains(&format!("| Dependencies | {text}")),
            "README of {name} must contain: {text}"
        );
    }
}
