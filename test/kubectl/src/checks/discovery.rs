//! Checks 1 to 4: server address and discovery.

use http::{Method, header};
use serde_json::Value;

use super::CheckResult;
use crate::{
    failure::{ensure, same},
    kubectl::Kubectl,
    test_env::TestEnv,
};

pub(super) async fn without_kubeconfig(env: &TestEnv) -> CheckResult {
    // The default address of kubectl. If the port is taken, KUBERNETES_MASTER selects another one.
    let at_default = env.program()?.start(env.folder(), env.version(), &["--listen", "127.0.0.1:8080"]).await;
    let (cluster, environment) = match at_default {
        Ok(cluster) => (cluster, Vec::new()),
        Err(_) => {
            let cluster = env.program()?.start(env.folder(), env.version(), &[]).await?;
            let master = ("KUBERNETES_MASTER".to_owned(), format!("http://{}", cluster.http.authority));
            (cluster, vec![master])
        }
    };
    let unconfigured = Kubectl {
        kubeconfig: None,
        namespace: None,
        environment,
        home: env.folder().join("home"),
        ..env.kubectl.clone()
    };
    unconfigured.run("get ns").await?.prints_exactly(
        "NAME STATUS AGE
         default Active *s
         kube-node-lease Active *s
         kube-public Active *s
         kube-system Active *s",
    )?;
    drop(cluster);
    Ok(())
}

pub(super) async fn version(env: &TestEnv) -> CheckResult {
    let version = env.run("version").await?;
    version.prints("Client Version: v1.*\nServer Version: v1.*")?;
    // An existing cluster may have any version.
    let Some(minor) = env.version().minor.filter(|_| env.sandbox.is_some()) else { return Ok(()) };
    version
        .has_empty_stderr()?
        .prints(&format!("Client Version: v1.{minor}.*\nServer Version: v1.{minor}.*"))?;
    if let Some(dispatcher) = &env.version().dispatcher {
        let selected = env.kubectl.run_program(dispatcher, "version").await?;
        selected.prints(&format!("Client Version: v1.{minor}.*\nServer Version: v1.{minor}.*"))?;
    }
    Ok(())
}

pub(super) async fn api_resources(env: &TestEnv) -> CheckResult {
    env.run("api-resources").await?.prints(
        "NAME SHORTNAMES APIVERSION NAMESPACED KIND
         configmaps cm v1 true ConfigMap
         events ev v1 true Event
         namespaces ns v1 false Namespace
         nodes no v1 false Node
         pods po v1 true Pod
         replicationcontrollers rc v1 true ReplicationController
         resourcequotas quota v1 true ResourceQuota
         secrets v1 true Secret
         serviceaccounts sa v1 true ServiceAccount
         services svc v1 true Service
         customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition
         deployments deploy apps/v1 true Deployment
         replicasets rs apps/v1 true ReplicaSet
         selfsubjectreviews authentication.k8s.io/v1 false SelfSubjectReview
         selfsubjectaccessreviews authorization.k8s.io/v1 false SelfSubjectAccessReview
         horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler
         leases coordination.k8s.io/v1 true Lease
         events ev events.k8s.io/v1 true Event
         poddisruptionbudgets pdb policy/v1 true PodDisruptionBudget
         priorityclasses pc scheduling.k8s.io/v1 false PriorityClass",
    )?;
    Ok(())
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(super) async fn plain_discovery(env: &TestEnv) -> CheckResult {
    let wire = &env.http;
    let versions = wire.get("/api").await?.expect(200)?;
    same("the kind of /api", &versions["kind"], &Value::from("APIVersions"))?;
    same("the versions of /api", &versions["versions"], &serde_json::json!(["v1"]))?;
    let groups = wire.get("/apis").await?.expect(200)?;
    same("the kind of /apis", &groups["kind"], &Value::from("APIGroupList"))?;
    let groups = text_list(&groups["groups"], "name");

    let mut aggregated = Vec::new();
    for root in ["/api", "/apis"] {
        let response = wire.send(Method::GET, root, (header::ACCEPT, AGGREGATED), None).await?;
        same("the media type", &response.content_type.as_str(), &AGGREGATED)?;
        let body = response.expect(200)?;
        aggregated.extend(body["items"].as_array().cloned().unwrap_or_default());
    }
    for item in aggregated {
        let group = item["metadata"]["name"].as_str().unwrap_or_default();
        // Groups of other checks may be deleted meanwhile.
        if group.ends_with(".example.com") {
            continue;
        }
        ensure(group.is_empty() || groups.iter().any(|name| name == group), || {
            format!("/apis has no group {group}")
        })?;
        for version in item["versions"].as_array().into_iter().flatten() {
            let name = version["version"].as_str().unwrap_or_default();
            let path =
                if group.is_empty() { format!("/api/{name}") } else { format!("/apis/{group}/{name}") };
            let plain = wire.get(&path).await?.expect(200)?;
            same("the kind of a list of resources", &plain["kind"], &Value::from("APIResourceList"))?;
            same(&path, &plain_names(&plain), &aggregated_names(version))?;
        }
    }
    Ok(())
}

fn text_list(items: &Value, key: &str) -> Vec<String> {
    let items = items.as_array().into_iter().flatten();
    items.filter_map(|item| item[key].as_str().map(str::to_owned)).collect()
}

/// Name, kind and verbs of each resource and subresource.
fn plain_names(list: &Value) -> Vec<String> {
    let described = |item: &Value| format!("{} {} {}", item["name"], item["kind"], item["verbs"]);
    sorted(list["resources"].as_array().into_iter().flatten().map(described))
}

fn aggregated_names(version: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for resource in version["resources"].as_array().into_iter().flatten() {
        let plural = resource["resource"].as_str().unwrap_or_default();
        let described = |name: String, item: &Value| {
            format!("{name:?} {} {}", item["responseKind"]["kind"], item["verbs"])
        };
        if !resource["responseKind"].is_null() {
            names.push(described(plural.to_owned(), resource));
        }
        for part in resource["subresources"].as_array().into_iter().flatten() {
            names.push(described(
                format!("{plural}/{}", part["subresource"].as_str().unwrap_or_default()),
                part,
            ));
        }
    }
    sorted(names.into_iter())
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
