//! The manager with the roles that we ship, and no others.

use std::{fs, path::Path};

use kcm_stories::external::Authorization;
use serde_json::{Value, json};

use crate::{
    harness::{Cluster, free_port},
    restarts::assert_no_pod_was_made_in_vain,
};

const REPLICAS: usize = 10;

/// The service account in the manifests.
const ACCOUNT: &str = "kube-controller-manager-rs";
const USER: &str = "system:serviceaccount:kube-system:kube-controller-manager-rs";

/// What the manifests of `deploy/deployment` bring, but what needs nodes.
const FILES: [&str; 5] = [
    "rbac/deployment-controller.yaml",
    "rbac/replicaset-controller.yaml",
    "rbac/leader-election.yaml",
    "deployment/service-account.yaml",
    "deployment/bindings.yaml",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_that_we_ship_suffice_for_a_rollout_and_allow_nothing_else() {
    let Some(mut cluster) = Cluster::real_with(Authorization::Rbac).await else { return };
    for object in FILES.into_iter().flat_map(documents) {
        let path = collection(&object);
        cluster.post(&path, &object).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{ACCOUNT}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = cluster.post(&path, &request).await.unwrap()["status"]["token"].as_str().unwrap().to_owned();
    let kubeconfig = cluster.kubeconfig("account", &cluster.control_plane().url(), &token);

    // As the manifest has it, but in a pod the program finds these three by itself.
    let port = free_port();
    let mut flags = vec![format!("--secure-port={port}"), "--bind-address=127.0.0.1".to_owned()];
    for flag in ["authentication-kubeconfig", "authorization-kubeconfig"] {
        flags.push(format!("--{flag}={}", kubeconfig.display()));
    }
    flags.push(format!("--cert-dir={}", cluster.folder().join("certs").display()));
    let [manifest] = documents("deployment/deployment.yaml").try_into().unwrap();
    let command = manifest["spec"]["template"]["spec"]["containers"][0]["command"].as_array().unwrap();
    flags.extend(command[1..].iter().map(|flag| flag.as_str().unwrap().to_owned()));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let manager = cluster.manager_as("manager", &kubeconfig, &flags).await;

    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(&mut cluster).await;
    assert_may_not_do_anything_else(&cluster).await;

    let mut log = manager.log();
    assert_eq!(manager.terminate().await, Some(0));
    log.make_ascii_lowercase();
    assert!(log.contains("successfully acquired lease"), "{log}");
    for refused in ["forbidden", "403", "unauthorized"] {
        let line = log.lines().find(|line| line.contains(refused));
        assert_eq!(line, None, "it was refused something");
    }
}

/// The documents of a file below `deploy/`.
fn documents(path: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path);
    let text = fs::read_to_string(&file).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Where an object of a manifest is posted to.
fn collection(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("{root}/{version}{namespace}/{}s", text("/kind").to_lowercase())
}

async fn assert_may_not_do_anything_else(cluster: &Cluster) {
    let may = async |verb: &str, group: &str, resource: &str, namespace: &str, name: &str| {
        let attributes =
            json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": USER,
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
                "resourceAttributes": attributes,
            },
        });
        let review =
            cluster.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.unwrap();
        review["status"]["allowed"] == true
    };
    // That the question is understood.
    assert!(may("create", "", "pods", "default", "").await);
    assert!(may("update", "coordination.k8s.io", "leases", "kube-system", ACCOUNT).await);
    let others = [
        ("get", "", "secrets", "kube-system", "any"),
        ("list", "", "secrets", "", ""),
        ("list", "", "configmaps", "", ""),
        ("list", "", "nodes", "", ""),
        ("create", "", "serviceaccounts/token", "kube-system", "any"),
        ("create", "", "pods/exec", "default", "any"),
        ("deletecollection", "", "pods", "default", ""),
        ("delete", "", "namespaces", "", "default"),
        ("create", "apps", "deployments", "default", ""),
        ("delete", "apps", "deployments", "default", "web"),
        ("patch", "apps", "deployments", "default", "web"),
        ("list", "apps", "daemonsets", "", ""),
        ("update", "coordination.k8s.io", "leases", "kube-system", "kube-controller-manager"),
        ("update", "coordination.k8s.io", "leases", "default", ACCOUNT),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings", "", ""),
        ("impersonate", "", "users", "", "admin"),
        ("*", "*", "*", "", ""),
    ];
    for (verb, group, resource, namespace, name) in others {
        let allowed = may(verb, group, resource, namespace, name).await;
        assert!(!allowed, "{verb} {resource} {group} {name:?} in {namespace:?}");
    }
}
