//! The manager with the roles in `deploy/`.

use std::{fs, path::Path, sync::Arc};

use kcm_api::ApiError;
use kcm_client::{ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::RealClock;
use kcm_stories::external::Authorization;
use serde_json::{Value, json};

use crate::{
    harness::{Cluster, Manager, until},
    restarts::assert_no_extra_pods,
};

const REPLICAS: usize = 10;

/// Service account of the manifests.
const ACCOUNT: &str = "kube-controller-manager-rs";
const USER: &str = "system:serviceaccount:kube-system:kube-controller-manager-rs";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployment_has_sufficient_and_minimal_roles() {
    let Some(mut cluster) = Cluster::real_with(Authorization::Rbac).await else { return };
    apply(&cluster, "deployment").await;
    let token = token(&cluster).await;
    let kubeconfig = cluster.kubeconfig("account", &cluster.control_plane().url(), &token);

    // In a pod, these options have defaults.
    let port = kcm_testkit::unused_address().port();
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
    assert_no_other_rights(&cluster).await;
    let priorities =
        [("system-leader-election", "leader-election"), ("kube-system-service-accounts", "workload-high")];
    assert_priorities(&cluster, priorities).await;

    // Authentication and authorization also require rights.
    let port = format!("https://127.0.0.1:{port}");
    let admin = get(&cluster.kubeconfig("admin-of-manager", &port, "admintoken"), "/metrics").await;
    assert!(admin.unwrap().contains("workqueue_adds_total"));
    let account = get(&cluster.kubeconfig("account-of-manager", &port, &token), "/metrics").await;
    assert!(matches!(&account, Err(error) if error.code() == Some(403)), "{account:?}");

    assert_no_denied_requests(&manager);
    assert_eq!(manager.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn static_pod_has_sufficient_roles() {
    let priorities = [
        ("kube-controller-manager-rs-leader-election-static-pod", "leader-election"),
        ("kube-controller-manager-rs-static-pod", "workload-high"),
    ];
    run_static_pod("static-pod", "kube-controller-manager-rs", priorities).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn static_pod_with_upstreams_user_has_sufficient_roles() {
    let priorities =
        [("system-leader-election", "leader-election"), ("kube-controller-manager", "workload-high")];
    run_static_pod("static-pod-old-kubeconfig", "system:kube-controller-manager", priorities).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variants_can_be_removed_separately() {
    let Some(cluster) = Cluster::real_with(Authorization::Rbac).await else { return };
    remove_rights_of_distributions(&cluster).await;
    let variants = [
        ("deployment", USER),
        ("static-pod", "kube-controller-manager-rs"),
        ("static-pod-old-kubeconfig", "system:kube-controller-manager"),
    ];
    let renews = async |user: &str| {
        is_allowed(&cluster, user, ["update", "coordination.k8s.io", "leases", "kube-system", ACCOUNT]).await
    };
    for (folder, user) in variants {
        apply(&cluster, folder).await;
        until(&format!("{user} can renew the Lease"), async || renews(user).await).await;
    }
    for (removed, user) in variants {
        remove(&cluster, removed).await;
        until(&format!("{user} cannot renew the Lease"), async || !renews(user).await).await;
        for (folder, user) in variants.iter().filter(|(folder, _)| *folder != removed) {
            assert!(renews(user).await, "{folder} without {removed}");
            let creates = is_allowed(&cluster, user, ["create", "", "pods", "default", ""]).await;
            assert_eq!(creates, *folder != "static-pod-old-kubeconfig", "{folder} without {removed}");
        }
        apply(&cluster, removed).await;
        until(&format!("{user} can renew the Lease again"), async || renews(user).await).await;
    }
}

/// Runs the static pod in `folder` as `user`, with the API server's default roles and those in `folder`.
async fn run_static_pod(folder: &str, user: &str, priorities: [(&str, &str); 2]) {
    let Some(mut cluster) = Cluster::real_with(Authorization::Rbac).await else { return };
    remove_rights_of_distributions(&cluster).await;
    apply(&cluster, folder).await;

    let kubeconfig = cluster.control_plane().kubeconfig(user);
    let [pod] = documents(&format!("{folder}/kube-controller-manager-rs.yaml")).try_into().unwrap();
    let path = pod["spec"]["volumes"][0]["hostPath"]["path"].as_str().unwrap();
    let port = kcm_testkit::unused_address().port();
    let mut flags: Vec<_> = pod["spec"]["containers"][0]["command"].as_array().unwrap()[1..]
        .iter()
        .map(|flag| match flag.as_str().unwrap().split_once('=').unwrap() {
            (name, value) if value == path => format!("{name}={}", kubeconfig.display()),
            ("--secure-port", _) => format!("--secure-port={port}"),
            (name, value) => format!("{name}={value}"),
        })
        .collect();
    flags.push(format!("--cert-dir={}", cluster.folder().join("certs").display()));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let manager = cluster.manager_as("manager", &kubeconfig, &flags).await;

    roll_out(&mut cluster).await;
    assert_priorities(&cluster, priorities).await;
    let port = cluster.kubeconfig("admin-of-manager", &format!("https://127.0.0.1:{port}"), "admintoken");
    assert_eq!(get(&port, "/readyz").await.unwrap(), "ok");
    assert!(get(&port, "/metrics").await.unwrap().contains("workqueue_adds_total"));
    assert_no_denied_requests(&manager);
    assert_eq!(manager.terminate().await, Some(0));
}

/// Some distributions allow upstream's user to update every Lease in kube-system. Upstream does not.
async fn remove_rights_of_distributions(cluster: &Cluster) {
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/\
                   system::leader-locking-kube-controller-manager";
    match cluster.api.send(&Request::delete(binding, "{}")).await {
        Ok(_) => {}
        Err(error) => assert!(error.is_not_found(), "{error}"),
    }
}

/// Asserts that each FlowSchema has matched requests and set its priority level, and that no request had the level of
/// unknown users. Requests of other clients are exempt.
async fn assert_priorities(cluster: &Cluster, priorities: [(&str, &str); 2]) {
    let metrics = get(&cluster.control_plane().kubeconfig("admin"), "/metrics").await.unwrap();
    let dispatched: Vec<_> = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_flowcontrol_dispatched_requests_total{"))
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    let is_of = |line: &str, label: &str, value: &str| line.contains(&format!("{label}=\"{value}\""));
    for (schema, level) in priorities {
        let matched = dispatched
            .iter()
            .any(|line| is_of(line, "flow_schema", schema) && is_of(line, "priority_level", level));
        assert!(matched, "{schema}: {dispatched:#?}");
    }
    let unknown = |line: &&&str| {
        ["global-default", "workload-low", "catch-all"]
            .iter()
            .any(|level| is_of(line, "priority_level", level))
    };
    assert_eq!(dispatched.iter().find(unknown), None);
}

/// Uses the API server's role for upstream's manager, and a service account for each controller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_roles_are_sufficient_with_service_account_credentials() {
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
    let flags =
        ["--use-service-account-credentials=true", "--leader-elect-resource-name=kube-controller-manager"];
    let manager = cluster.manager_as("manager", &kubeconfig, &flags).await;
    roll_out(&mut cluster).await;
    assert_no_denied_requests(&manager);
    assert_eq!(manager.terminate().await, Some(0));
}

async fn roll_out(cluster: &mut Cluster) {
    cluster.deploy("web", REPLICAS).await;
    cluster.until_rolled_out("web").await;
    cluster.roll("web", "image:2").await;
    cluster.until_rolled_out("web").await;
    assert_no_extra_pods(cluster).await;
}

fn assert_no_denied_requests(manager: &Manager) {
    let log = manager.log();
    assert!(log.contains("Successfully acquired lease"), "{log}");
    let is_denied = |line: &&str| {
        ["orbidden", "nauthorized", "code=403", "code=401"].iter().any(|word| line.contains(word))
    };
    let line = log.lines().filter(|line| !line.contains("FLAG: ")).find(is_denied);
    assert_eq!(line, None, "a request was denied");
}

/// Token of the service account.
async fn token(cluster: &Cluster) -> String {
    let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{ACCOUNT}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let response = cluster.post(&path, &request).await.unwrap();
    response["status"]["token"].as_str().unwrap().to_owned()
}

/// Creates the objects of the kustomization in `folder`, except Deployments, because there are no nodes.
async fn apply(cluster: &Cluster, folder: &str) {
    let objects = resources(Path::new(folder));
    for object in objects.iter().filter(|object| object["kind"] != "Deployment") {
        let path = collection(object);
        cluster.post(&path, object).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    // A FlowSchema has conditions once the API server uses it.
    for object in objects.iter().filter(|object| object["kind"] == "FlowSchema") {
        let path = format!("{}/{}", collection(object), object["metadata"]["name"].as_str().unwrap());
        until(&format!("{path} is used"), async || {
            cluster.get(&path).await.unwrap()["status"]["conditions"].is_array()
        })
        .await;
    }
}

/// Deletes the objects of the kustomization in `folder`.
async fn remove(cluster: &Cluster, folder: &str) {
    for object in resources(Path::new(folder)).iter().filter(|object| object["kind"] != "Deployment") {
        let path = format!("{}/{}", collection(object), object["metadata"]["name"].as_str().unwrap());
        cluster
            .api
            .send(&Request::delete(&path, "{}"))
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

/// Objects of the kustomization in `folder`, a path below `deploy/`, with its name suffix.
fn resources(folder: &Path) -> Vec<Value> {
    let [kustomization] = documents(folder.join("kustomization.yaml").to_str().unwrap()).try_into().unwrap();
    let mut objects = Vec::new();
    for resource in kustomization["resources"].as_array().unwrap() {
        let path = folder.join(resource.as_str().unwrap());
        if path.extension().is_some() {
            objects.extend(documents(path.to_str().unwrap()));
        } else {
            objects.extend(resources(&path));
        }
    }
    let suffix = kustomization["nameSuffix"].as_str().unwrap_or_default();
    let own: Vec<_> = objects.iter().map(|object| object["metadata"]["name"].clone()).collect();
    for object in &mut objects {
        for pointer in ["/metadata/name", "/roleRef/name"] {
            if let Some(name) = object.pointer_mut(pointer).filter(|name| own.contains(name)) {
                *name = format!("{}{suffix}", name.as_str().unwrap()).into();
            }
        }
    }
    objects
}

/// Documents of a file below `deploy/`.
fn documents(path: &str) -> Vec<Value> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cmd/kube-controller-manager/deploy").join(path);
    let text = fs::read_to_string(&file).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// API path of an object's collection.
fn collection(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let kind = text("/kind").to_lowercase();
    let resource = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    format!("{root}/{version}{namespace}/{resource}")
}

/// Returns `true` if `user` may send a request with this verb, group, resource, namespace and name.
async fn is_allowed(cluster: &Cluster, user: &str, request: [&str; 5]) -> bool {
    let [verb, group, resource, namespace, name] = request;
    let groups: &[&str] = match user.starts_with("system:serviceaccount:") {
        true => &["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
        false => &["system:authenticated"],
    };
    let attributes =
        json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
    });
    let review = cluster.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.unwrap();
    review["status"]["allowed"] == true
}

async fn assert_no_other_rights(cluster: &Cluster) {
    let is_allowed = async |verb: &str, group: &str, resource: &str, namespace: &str, name: &str| {
        is_allowed(cluster, USER, [verb, group, resource, namespace, name]).await
    };
    // The review works.
    assert!(is_allowed("create", "", "pods", "default", "").await);
    assert!(is_allowed("update", "coordination.k8s.io", "leases", "kube-system", ACCOUNT).await);
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
        let allowed = is_allowed(verb, group, resource, namespace, name).await;
        assert!(!allowed, "{verb} {resource} {group} {name:?} in {namespace:?}");
    }
}

/// GET of `path` with a kubeconfig.
async fn get(kubeconfig: &Path, path: &str) -> Result<String, ApiError> {
    let options = ClientOptions::new(UserAgent::new("e2e-test", "v0", ""), Arc::new(RealClock::new()));
    let access = Server::Kubeconfig { path: kubeconfig.to_owned(), master: None };
    let clients = ClientFactory::connect(access, options).await.unwrap();
    let response = clients.client("test", RateLimit::UNLIMITED).send(&Request::get(path)).await?;
    Ok(String::from_utf8(response.to_vec()).unwrap())
}
