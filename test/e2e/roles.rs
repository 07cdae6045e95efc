//! The manager with the roles that we ship, and no others.

use std::{fs, path::Path, sync::Arc};

use kcm_api::ApiError;
use kcm_client::{ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::RealClock;
use kcm_stories::external::Authorization;
use serde_json::{Value, json};

use crate::{
    harness::{Cluster, Manager, free_port},
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
    let token = token(&cluster).await;
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

    roll_out(&mut cluster).await;
    assert_may_not_do_anything_else(&cluster).await;

    // Whom it serves it finds out from the API server, which needs rights, too.
    let port = format!("https://127.0.0.1:{port}");
    let admin = answer(&cluster.kubeconfig("admin-of-manager", &port, "admintoken"), "/metrics").await;
    assert!(admin.unwrap().contains("workqueue_adds_total"));
    let account = answer(&cluster.kubeconfig("account-of-manager", &port, &token), "/metrics").await;
    assert!(matches!(&account, Err(error) if error.code() == Some(403)), "{account:?}");

    assert_was_refused_nothing(&manager);
    assert_eq!(manager.terminate().await, Some(0));
}

/// As a control plane runs its manager: with the API server's own role for it, and a service account for each controller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_of_upstreams_manager_suffice_with_service_account_credentials() {
    let Some(mut cluster) = Cluster::real_with(Authorization::Rbac).await else { return };
    let [account] = documents("deployment/service-account.yaml").try_into().unwrap();
    cluster.post(&collection(&account), &account).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "manager"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kube-controller-manager",
        },
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}],
    });
    cluster.post(&collection(&binding), &binding).await.unwrap();
    let token = token(&cluster).await;
    let kubeconfig = cluster.kubeconfig("account", &cluster.control_plane().url(), &token);
    let flags = ["--use-service-account-credentials=true", "--leader-elect=true"];
    let manager = cluster.manager_as("manager", &kubeconfig, &flags).await;
    roll_out(&mut cluster).await;
    assert_was_refused_nothing(&manager);
    assert_eq!(manager.terminate().await, Some(0));
}

async fn roll_out(cluster: &mut Cluster) {
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_rolled_out("web").await;
    assert_no_pod_was_made_in_vain(cluster).await;
}

fn assert_was_refused_nothing(manager: &Manager) {
    let log = manager.log();
    assert!(log.contains("Successfully acquired lease"), "{log}");
    let refusal = |line: &&str| {
        ["orbidden", "nauthorized", "code=403", "code=401"].iter().any(|word| line.contains(word))
    };
    let line = log.lines().filter(|line| !line.contains("FLAG: ")).find(refusal);
    assert_eq!(line, None, "it was refused something");
}

/// A token of the service account.
async fn token(cluster: &Cluster) -> String {
    let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{ACCOUNT}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = cluster.post(&path, &request).await.unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
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

/// What a server answers to somebody with this kubeconfig.
async fn answer(kubeconfig: &Path, path: &str) -> Result<String, ApiError> {
    let options = ClientOptions::new(UserAgent::new("e2e-test", "v0", ""), Arc::new(RealClock::new()));
    let access = Server::Kubeconfig { path: kubeconfig.to_owned(), master: None };
    let clients = ClientFactory::connect(access, options).await.unwrap();
    let answer = clients.client("test", RateLimit::UNLIMITED).send(&Request::get(path)).await?;
    Ok(String::from_utf8(answer.to_vec()).unwrap())
}
