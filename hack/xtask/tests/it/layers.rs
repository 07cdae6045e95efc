//! Checks that dependencies between crates follow the layers, and that only some crates use HTTP.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Crates of HTTP.
const HTTP: &[&str] = &[
    "h2",
    "http",
    "http-body",
    "http-body-util",
    "hyper",
    "hyper-util",
    "kube-client",
    "reqwest",
    "tower",
    "tower-http",
];
/// Crates that may depend on them. kubectl-acceptance compares responses of API servers, beside-upstream contains a proxy, and
/// config-copies and pod-pool have a client of kube-rs.
const MAY_KNOW_HTTP: &[&str] = &[
    "beside-upstream",
    "config-copies",
    "kcm-client",
    "kcm-kube",
    "kcm-rollout-simulation",
    "kcm-serving",
    "kcm-apiserver",
    "kcm-sandbox-server",
    "kcm-simulation",
    "kcm-testing",
    "kcm-testkit",
    "kube-controller-manager",
    "kube-sandbox",
    "kubectl-acceptance",
    "kubectl-rollouts",
    "pod-pool",
];

/// Crates of pure functions, which neither wait nor log.
const PURE: &[&str] = &["kcm-api", "kcm-flowcontrol", "kcm-deployment-util"];
const IMPURE: &[&str] = &["tokio", "async-trait", "futures-util", "tracing", "log"];

/// A crate of the workspace.
struct Package {
    /// Folder, from the root of the tree.
    folder: String,
    /// Dependencies other than those of tests and of optional features.
    dependencies: Vec<String>,
    /// Dependencies of optional features.
    optional: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The crates of the workspace by name.
fn packages() -> BTreeMap<String, Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let package = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let name = |dependency: &Value| (dependency["optional"] == true, text(&dependency["name"]));
        let names: Vec<_> = dependencies.filter(|dependency| dependency["kind"] != "dev").map(name).collect();
        let of_kind = |optional| {
            names.iter().filter(move |name| name.0 == optional).map(|(_, name)| name.clone()).collect()
        };
        let (required, optional) = (of_kind(false), of_kind(true));
        let manifest = PathBuf::from(text(&package["manifest_path"])).canonicalize().unwrap();
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        Package { folder, dependencies: required, optional }
    };
    metadata["packages"].as_array().unwrap().iter().map(|one| (text(&one["name"]), package(one))).collect()
}

/// The layers, lowest first: the folders in `members` of the workspace's manifest.
fn layers() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let layer = |member: &str| member.trim().trim_matches('"').trim_end_matches("/*").to_owned();
    members.split(',').map(layer).filter(|layer| !layer.is_empty()).collect()
}

/// Number of the layer of a folder.
fn layer_of(layers: &[String], folder: &str) -> usize {
    let is_in = |layer: &&String| Path::new(folder).starts_with(layer.as_str());
    layers.iter().position(|layer| is_in(&layer)).unwrap()
}

#[test]
fn crate_depends_on_no_higher_layer() {
    let (packages, layers) = (packages(), layers());
    let mut upward = Vec::new();
    for (name, package) in &packages {
        for dependency in &package.dependencies {
            if let Some(other) = packages.get(dependency)
                && layer_of(&layers, &other.folder) > layer_of(&layers, &package.folder)
            {
                upward.push((name.as_str(), dependency.as_str()));
            }
        }
    }
    assert!(upward.is_empty(), "{upward:?}");
}

#[test]
fn architecture_lists_the_layers_in_their_order() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let rows: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("### `")?.split('`').next()).collect();
    let layers: Vec<_> = layers().into_iter().filter(|layer| layer.starts_with("crates/")).collect();
    assert_eq!(rows, layers);
}

#[test]
fn http_is_known_only_to_transport_crates() {
    for (name, package) in packages() {
        if MAY_KNOW_HTTP.contains(&name.as_str()) {
            continue;
        }
        let known: Vec<_> = package
            .dependencies
            .iter()
            .chain(&package.optional)
            .filter(|d| HTTP.contains(&d.as_str()))
            .collect();
        assert!(known.is_empty(), "{name} depends on {known:?}");
    }
}

#[test]
fn pure_crates_neither_wait_nor_log() {
    let packages = packages();
    for name in PURE {
        let impure: Vec<_> =
            packages[*name].dependencies.iter().filter(|d| IMPURE.contains(&d.as_str())).collect();
        assert!(impure.is_empty(), "{name} depends on {impure:?}");
    }
}

/// Modules that compute plans and statuses contain no I/O and do not log. The executor logs the plan.
#[test]
fn plans_are_pure() {
    const FORBIDDEN: &[&str] = &["tracing", "async ", ".await", "println!", "dyn Clock"];
    let mut files = Vec::new();
    for controller in ["deployment-controller", "replicaset-controller"] {
        let source = root().join("crates/controller").join(controller).join("src");
        files.extend(["plan.rs", "status.rs", "view.rs"].map(|file| source.join(file)));
        let decisions = fs::read_dir(source.join("plan")).unwrap().map(|entry| entry.unwrap().path());
        files.extend(decisions.filter(|path| path.is_file() && path.file_name().unwrap() != "tests.rs"));
    }
    assert!(files.len() > 20, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for word in FORBIDDEN {
            assert!(!text.contains(word), "{} contains {word}", file.display());
        }
    }
}

/// Returns the dependencies of a crate, direct and indirect, within the workspace and one step beyond.
fn all_dependencies(packages: &BTreeMap<String, Package>, name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut queue = vec![name.to_owned()];
    while let Some(name) = queue.pop() {
        let package = packages.get(&name);
        for dependency in package.into_iter().flat_map(|package| &package.dependencies) {
            if found.insert(dependency.clone()) {
                queue.push(dependency.clone());
            }
        }
    }
    found
}

#[test]
fn informer_workqueue_and_runtime_depend_on_no_api_type() {
    let packages = packages();
    for name in ["kcm-informer", "kcm-workqueue", "kcm-runtime"] {
        let dependencies = all_dependencies(&packages, name);
        assert!(dependencies.contains("kcm-clock"), "{name}: {dependencies:?}");
        for api in ["kcm-api", "k8s-openapi"] {
            assert!(!dependencies.contains(api), "{name} depends on {api}");
        }
    }
}
