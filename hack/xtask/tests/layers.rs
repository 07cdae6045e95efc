//! Holds the crates to the layers that docs/architecture.md draws.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::Value;

/// Our crates, lowest first. A crate may depend only on crates before it.
const LAYERS: &[&str] = &[
    "kcm-clock",
    "kcm-api",
    "kcm-workqueue",
    "kcm-informer",
    "kcm-expectations",
    "kcm-controller-ref-manager",
    "kcm-controller-util",
    "kcm-events",
    "kcm-leader-election",
    "kcm-deployment-util",
    "kcm-replicaset-controller",
    "kcm-deployment-controller",
    "kcm-client",
    "kcm-metrics",
    "kcm-serving",
    "kcm-controller-manager",
    "kcm-apiserver",
    "kcm-sandbox",
    "kcm-stories",
    "kcm-simulation",
    "kube-controller-manager",
    "kube-sandbox",
];

/// What knows HTTP, and who may.
const HTTP: &[&str] = &[
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
// xtask judges the server's answers, and so must see them.
const MAY_KNOW_HTTP: &[&str] = &[
    "kcm-client",
    "kcm-serving",
    "kcm-apiserver",
    "kcm-simulation",
    "kube-controller-manager",
    "kube-sandbox",
    "xtask",
];

/// Crates whose functions are pure: nothing asynchronous, nothing that waits.
const PURE: &[&str] = &["kcm-api", "kcm-deployment-util"];
const ASYNC: &[&str] = &["tokio", "async-trait", "futures-util"];

/// The normal dependencies of every crate of the workspace, by name. Tests may look further.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let normal = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| text(&dependency["name"]))
                .collect();
            (text(&package["name"]), normal)
        })
        .collect()
}

#[test]
fn crates_of_the_workspace_are_all_in_the_table_of_layers() {
    let mut unknown: Vec<_> = dependencies().into_keys().filter(|name| name != "xtask").collect();
    unknown.retain(|name| !LAYERS.contains(&name.as_str()));
    assert_eq!(unknown, Vec::<String>::new(), "give each a place in LAYERS and in docs/architecture.md");
}

#[test]
fn crate_depends_only_on_layers_below_it() {
    let all = dependencies();
    for (place, name) in LAYERS.iter().enumerate() {
        for dependency in &all[*name] {
            if let Some(other) = LAYERS.iter().position(|layer| layer == dependency) {
                assert!(other < place, "{name} depends on {dependency}, which lies above it");
            }
        }
    }
}

#[test]
fn http_is_known_only_to_transport_crates() {
    for (name, normal) in dependencies() {
        if MAY_KNOW_HTTP.contains(&name.as_str()) {
            continue;
        }
        let known: Vec<_> = normal.iter().filter(|d| HTTP.contains(&d.as_str())).collect();
        assert!(known.is_empty(), "{name} knows HTTP through {known:?}");
    }
}

#[test]
fn pure_crates_depend_on_nothing_asynchronous() {
    let all = dependencies();
    for name in PURE {
        let known: Vec<_> = all[*name].iter().filter(|d| ASYNC.contains(&d.as_str())).collect();
        assert!(known.is_empty(), "{name} is to be pure, and depends on {known:?}");
    }
}
