//! The folder for `KUBEBUILDER_ASSETS`, and its programs as envtest starts them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helper functions of tests may panic")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
};

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Namespace, Node, Pod},
};
use kcm_testkit::{CertificateAuthority, Identity};
use kube_client::{
    Api, Client, Config, Error,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Files of a test: the programs, and the certificates that envtest makes.
struct Files {
    folder: TempDir,
    clients: CertificateAuthority,
    servers: CertificateAuthority,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (clients, servers) = (CertificateAuthority::new("clients"), CertificateAuthority::new("servers"));
        let Identity { certificate, key, .. } = servers.server(&["localhost", "127.0.0.1"]);
        fs::write(folder.path().join("apiserver.crt"), certificate).unwrap();
        fs::write(folder.path().join("apiserver.key"), key).unwrap();
        fs::write(folder.path().join("client-ca.crt"), clients.pem()).unwrap();
        make(folder.path());
        Self { folder, clients, servers }
    }

    /// Command line of a program, with the flags of controller-runtime's envtest.
    fn command(&self, program: &str) -> Vec<String> {
        let folder = self.folder.path().display();
        let flags = match program {
            "etcd" => vec![
                "--advertise-client-urls=http://127.0.0.1:0".to_owned(),
                format!("--data-dir={folder}"),
                "--listen-client-urls=http://127.0.0.1:0".to_owned(),
                "--listen-peer-urls=http://localhost:0".to_owned(),
                "--unsafe-no-fsync=true".to_owned(),
            ],
            _ => vec![
                "--allow-privileged=true".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--cert-dir={folder}"),
                format!("--client-ca-file={folder}/client-ca.crt"),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                "--etcd-servers=http://127.0.0.1:2379".to_owned(),
                "--secure-port=0".to_owned(),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            ],
        };
        [format!("{folder}/{program}")].into_iter().chain(flags).collect()
    }

    fn start(&self, program: &str, environment: Option<(&str, &str)>) -> Server {
        let words = self.command(program);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(environment).stdout(Stdio::piped());
        Server::of(command.spawn().unwrap())
    }

    async fn client(&self, server: &Server, credentials: &Value) -> Client {
        let authority = self.folder.path().join("servers.crt");
        fs::write(&authority, self.servers.pem()).unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://{}", server.address), "certificate-authority": authority,
            }}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": credentials}],
        });
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Kubeconfig user with a client certificate, as those of `AddUser`.
    fn credentials(&self, name: &str, group: &str) -> Value {
        let Identity { certificate, key, .. } = self.clients.client(name, group);
        let path = |suffix: &str, text: String| {
            let path = self.folder.path().join(format!("{name}.{suffix}"));
            fs::write(&path, text).unwrap();
            path
        };
        json!({"client-certificate": path("crt", certificate), "client-key": path("key", key)})
    }
}

/// Running program. Killed on drop.
struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    /// Reads the line that is printed when the program listens.
    fn of(mut process: Child) -> Self {
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let Some(address) = line.split_whitespace().last() else {
            panic!("the program ended without output")
        };
        let address = address.to_owned();
        Self { process, output, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs `kube-sandbox envtest`. Returns the path that it prints.
fn make(folder: &Path) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kube-sandbox")).arg("envtest").arg("--dir").arg(folder).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().last().unwrap().to_owned()
}

#[test]
fn folder_is_made_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let assets = folder.path().join("assets");
    for _ in 0..2 {
        assert_eq!(make(&assets), assets.canonicalize().unwrap().display().to_string());
    }
    for program in ["kube-apiserver", "etcd"] {
        let help = Command::new(assets.join(program)).arg("--help").output().unwrap();
        let text = String::from_utf8(help.stdout).unwrap();
        let has = |flag: &str| text.lines().any(|line| line.trim_start().starts_with(flag));
        // controller-runtime decides by these.
        assert_eq!((has("--unsafe-no-fsync"), has("--insecure-port")), (program == "etcd", false));
    }
}

#[tokio::test]
async fn etcd_is_healthy() {
    let files = Files::new();
    let etcd = files.start("etcd", None);
    let mut stream = std::net::TcpStream::connect(&etcd.address).unwrap();
    std::io::Write::write_all(
        &mut stream,
        b"GET /health HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\n\r\n",
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with(r#"{"health":"true","reason":""}"#), "{text}");
}

#[tokio::test]
async fn client_certificates_are_users() {
    let files = Files::new();
    let server = files.start("kube-apiserver", None);
    let admin = files.client(&server, &files.credentials("admin", "system:masters")).await;
    let reviews = Api::<SelfSubjectReview>::all(admin.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("admin"));
    assert_eq!(user.groups.unwrap(), ["system:masters", "system:authenticated"]);
    // Without simulated components.
    assert_eq!(Api::<Pod>::all(admin).list(&Default::default()).await.unwrap().items.len(), 0);

    // Without roles, users with a certificate are refused as well.
    for credentials in [json!({}), files.credentials("alice", "dev")] {
        let user = files.client(&server, &credentials).await;
        let refused = Api::<Namespace>::all(user).list(&Default::default()).await;
        assert!(matches!(refused, Err(Error::Api(status)) if status.code == 403));
    }
    let other = Files::new();
    let stranger = files.client(&server, &other.credentials("admin", "system:masters")).await;
    assert!(Api::<Namespace>::all(stranger).list(&Default::default()).await.is_err());
}

#[tokio::test]
async fn controllers_run_if_the_environment_says_so() {
    let files = Files::new();
    let server = files.start("kube-apiserver", Some(("KUBE_SANDBOX_CONTROLLERS", "true")));
    let admin = files.client(&server, &files.credentials("admin", "system:masters")).await;
    let nodes = Api::<Node>::all(admin).list(&Default::default()).await.unwrap();
    assert_eq!(nodes.items.len(), 1);
}

/// Webhook that adds data to every object, at a port of this process. Also returns its certificate.
async fn start_webhook(authority: &CertificateAuthority) -> (std::net::SocketAddr, String) {
    let Identity { certificate, key, .. } = authority.server(&["127.0.0.1"]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = tls.accept(stream).await else { continue };
            let service = hyper::service::service_fn(answer_review);
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await;
        }
    });
    (address, certificate)
}

async fn answer_review(
    request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let patch = json!([{"op": "add", "path": "/data", "value": {"added": "yes"}}]).to_string();
    let patch = base64::engine::general_purpose::STANDARD.encode(patch);
    let response = json!({
        "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch,
    });
    let review = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    Ok(http::Response::new(Full::from(review.to_string())))
}

#[tokio::test]
async fn webhooks_are_called_over_https() {
    let files = Files::new();
    let (address, certificate) = start_webhook(&files.servers).await;
    let server = files.start("kube-apiserver", None);
    let admin = files.client(&server, &files.credentials("admin", "system:masters")).await;
    let configurations = Api::<MutatingWebhookConfiguration>::all(admin.clone());
    let config_maps = Api::<ConfigMap>::namespaced(admin, "default");
    let configuration = |name: &str, bundle: &str| {
        let configuration = json!({"metadata": {"name": name}, "webhooks": [{
            "name": format!("{name}.example.com"),
            "clientConfig": {
                "url": format!("https://{address}/add"),
                "caBundle": base64::engine::general_purpose::STANDARD.encode(bundle),
            },
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            }],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }]});
        serde_json::from_value::<MutatingWebhookConfiguration>(configuration).unwrap()
    };
    let create = async |name: &str| {
        let config_map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        config_maps.create(&PostParams::default(), &config_map).await
    };
    // envtest's bundle is the certificate of the server.
    for (name, bundle) in [("by-authority", files.servers.pem()), ("by-certificate", certificate)] {
        let known = configuration(name, &bundle);
        configurations.create(&PostParams::default(), &known).await.unwrap();
        assert_eq!(create(name).await.unwrap().data.unwrap()["added"], "yes");
    }

    let unknown = configuration("unknown", &files.clients.pem());
    configurations.create(&PostParams::default(), &unknown).await.unwrap();
    let refused = create("b").await.unwrap_err().to_string();
    let cause = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(refused.contains(&format!("Post \"https://{address}/add?timeout=10s\": {cause}")), "{refused}");
}

/// A test that is killed does not stop the programs.
#[test]
fn programs_end_with_their_parent() {
    let files = Files::new();
    for program in ["etcd", "kube-apiserver"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", r#""$@" & wait"#, "sh"]).args(files.command(program)).stdout(Stdio::piped());
        let mut server = Server::of(shell.spawn().unwrap());
        server.process.kill().unwrap();
        // The pipe is closed when the program ends.
        server.output.read_to_end(&mut Vec::new()).unwrap();
    }
}
