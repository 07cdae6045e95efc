//! Objects that clients and test suites expect in a new cluster, and `--bare`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helper functions of tests may panic")]

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use http::Request;
use kube_client::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Running program. Killed on drop.
struct Sandbox {
    process: Child,
    folder: TempDir,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sandbox {
    fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kube-sandbox"));
        command.args(["--listen=127.0.0.1:0", "--kubeconfig"]).arg(folder.path().join("kubeconfig"));
        let mut process = command.args(flags).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        // Printed once the server listens.
        lines.next().expect("the process ended without output").unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, folder }
    }

    fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig::read_from(self.folder.path().join("kubeconfig")).unwrap()
    }

    async fn client(&self) -> Client {
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(self.kubeconfig(), &options).await.unwrap();
        Client::try_from(config).unwrap()
    }
}

async fn get(client: &Client, path: &str) -> Option<Value> {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await.ok()
}

async fn post(client: &Client, path: &str, body: &Value) -> Value {
    let request = Request::post(path).header("content-type", "application/json");
    client.request(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap()
}

/// Waits until the object exists.
async fn wait_for(client: &Client, path: &str) -> Value {
    loop {
        if let Some(object) = get(client, path).await {
            return object;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ROOT_CA: &str = "configmaps/kube-root-ca.crt";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod() -> Value {
    let containers = json!([{"name": "c", "image": "agnhost:2", "args": ["serve-hostname"]}]);
    json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
}

#[tokio::test]
async fn root_ca_verifies_the_server() {
    let sandbox = Sandbox::start(&["--tls"]);
    let client = sandbox.client().await;
    let service = wait_for(&client, SERVICE).await;
    assert!(!service["spec"]["clusterIP"].as_str().unwrap().is_empty());
    post(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    let published = wait_for(&client, &format!("/api/v1/namespaces/team/{ROOT_CA}")).await;
    let mut kubeconfig = sandbox.kubeconfig();
    let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
    let trusted = cluster.certificate_authority_data.take().unwrap();
    let encoded = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(published["data"]["ca.crt"].as_str().unwrap())
    };
    assert_eq!(encoded, trusted);
    // Without credentials, `kubectl --server` prompts for a password.
    assert!(kubeconfig.auth_infos[0].auth_info.as_ref().unwrap().token.is_some());
}

#[tokio::test]
async fn default_version_is_that_of_the_behaviour() {
    for (flags, version) in
        [(&["--bare"][..], "v1.36."), (&["--bare", "--advertise-version=v1.33.4"], "v1.33.4")]
    {
        let sandbox = Sandbox::start(flags);
        let info = get(&sandbox.client().await, "/version").await.unwrap();
        assert!(info["gitVersion"].as_str().unwrap().starts_with(version), "{info}");
    }
}

#[tokio::test]
async fn pod_answers_through_the_proxy() {
    let sandbox = Sandbox::start(&["--pod-ready-delay=10ms"]);
    let client = sandbox.client().await;
    post(&client, PODS, &pod()).await;
    let path = format!("{PODS}/p:9376/proxy/");
    let text = loop {
        let request = Request::get(&path).body(Vec::new()).unwrap();
        if let Ok(text) = client.request_text(request).await {
            break text;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(text, "p");
}

#[tokio::test]
async fn bare_server_writes_nothing() {
    let sandbox = Sandbox::start(&["--bare"]);
    let client = sandbox.client().await;
    let created = post(&client, PODS, &pod()).await;
    let mut owned = json!({"metadata": {"name": "owned"}});
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent"}]);
    let owned = post(&client, "/api/v1/namespaces/default/configmaps", &owned).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": created["spec"]});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let deployment = post(&client, "/apis/apps/v1/namespaces/default/deployments", &deployment).await;
    // Longer than the delays of all components.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for (path, object) in [
        (format!("{PODS}/p"), created),
        ("/api/v1/namespaces/default/configmaps/owned".to_owned(), owned),
        ("/apis/apps/v1/namespaces/default/deployments/web".to_owned(), deployment),
    ] {
        assert_eq!(get(&client, &path).await.unwrap(), object);
    }
    assert_eq!(get(&client, SERVICE).await, None);
    assert_eq!(get(&client, &format!("/api/v1/namespaces/default/{ROOT_CA}")).await, None);
    for (list, expected) in
        [("/api/v1/nodes", 0), ("/api/v1/serviceaccounts", 0), ("/apis/apps/v1/replicasets", 0)]
    {
        let items = get(&client, list).await.unwrap()["items"].as_array().map(Vec::len);
        assert_eq!(items, Some(expected), "{list}");
    }
}
