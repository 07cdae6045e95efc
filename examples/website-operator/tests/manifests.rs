//! The manifests in `deploy` fit the program.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{fs, path::Path};

use kube_core::CustomResourceExt;
use serde_json::Value;
use website_operator::website::Website;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)).unwrap()
}

/// `cargo run -p website-operator -- crd > examples/website-operator/deploy/crd.yaml` updates the file.
#[test]
fn crd_is_derived_from_the_type() {
    assert_eq!(read("crd.yaml"), serde_saphyr::to_string(&Website::crd()).unwrap());
}

#[test]
fn example_is_a_website() {
    let website: Website = serde_saphyr::from_str(&read("website.yaml")).unwrap();
    assert_eq!(website.spec.replicas, 3);
}

#[test]
fn manifests_are_yaml_of_one_namespace() {
    for name in ["rbac.yaml", "deployment.yaml"] {
        for document in read(name).split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            assert!(object["apiVersion"].is_string() && object["kind"].is_string(), "{document}");
            let namespace = &object["metadata"]["namespace"];
            assert!(namespace.is_null() || namespace == "website-operator" || namespace == "kube-system");
        }
    }
}
