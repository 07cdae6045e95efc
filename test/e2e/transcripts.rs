//! The transcripts that the tests of `kcm-apiserver` replay are those of the given kube-apiserver.
//!
//! `UPDATE_TRANSCRIPTS=1` records them, the table of [stored kinds](stored_kinds) and the results of [rules] again. `kubectl proxy` provides a port without TLS.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use kcm_stories::external::{Authorization, ControlPlane, Program};
use kcm_testkit::{Transcript, TranscriptRequest, unused_address};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};

use crate::{
    harness::{assets, until},
    rules, stored_kinds,
};

const FOLDER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/sandbox/apiserver/tests/api/testdata/transcripts");

/// Table of the kinds that `kcm-apiserver` only stores.
const STORED_KINDS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/sandbox/apiserver/src/stored_kinds.json");

/// Rules in CEL with their results.
const RULES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/sandbox/apiserver/src/cel/tests/rules.jsonl");

/// Time after which a changed definition is served, and a changed policy or configuration of webhooks has an effect.
const SETTLED: Duration = Duration::from_secs(10);

/// File of the transcript of a server that authorizes by roles.
const RBAC: &str = "rbac.txt";

/// File of the transcript of managed fields.
const MANAGED_FIELDS: &str = "managed_fields.txt";

/// A separate kube-apiserver, without the kubelet of other tests, which writes to pods, and `kubectl proxy` to it.
pub(crate) struct Server {
    address: SocketAddr,
    _programs: (ControlPlane, Program, tempfile::TempDir),
}

impl Server {
    pub(crate) async fn start(assets: &Path, authorization: Authorization) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plane = ControlPlane::start(assets, folder.path(), authorization).unwrap();
        let address = unused_address();
        let flags = [
            "proxy".to_owned(),
            format!("--port={}", address.port()),
            format!("--kubeconfig={}", plane.kubeconfig("admin").display()),
        ];
        let log = folder.path().join("kubectl.log");
        let proxy = Program::run("kubectl", assets.join("kubectl").as_os_str(), &flags, &log).unwrap();
        let ready = ["/readyz", "/api/v1/namespaces/default"];
        until("the server is ready", async || {
            let mut codes = Vec::new();
            for path in ready {
                let request = TranscriptRequest { method: "GET", path, ..TranscriptRequest::default() };
                codes.push(send(address, request).await.map(|(code, _)| code).unwrap_or_default());
            }
            codes == [200; 2]
        })
        .await;
        Self { address, _programs: (plane, proxy, folder) }
    }

    /// Address of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcripts_are_those_of_kube_apiserver() {
    let Some(assets) = assets() else { return };
    let server = Server::start(&assets, Authorization::AlwaysAllow).await;
    let mut files: Vec<_> = fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| !file.ends_with(RBAC)) {
        replay(file, server.address).await;
    }
    let send = async |method: &str, path: &str, body: &str| {
        let media_type = "application/json";
        let request = TranscriptRequest { method, path, media_type, body, ..TranscriptRequest::default() };
        let (code, body) = send(server.address, request).await.unwrap();
        (code, serde_json::from_str(&body).unwrap_or_default())
    };
    let rules = rules::record(&fs::read_to_string(RULES).unwrap(), &send).await;
    for (file, recorded) in [(STORED_KINDS, stored_kinds::record(&send).await), (RULES, rules)] {
        if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
            fs::write(file, recorded).unwrap();
        } else {
            assert_eq!(fs::read_to_string(file).unwrap(), recorded);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_those_of_kube_apiserver() {
    let Some(assets) = assets() else { return };
    let server = Server::start(&assets, Authorization::Rbac).await;
    replay(&Path::new(FOLDER).join(RBAC), server.address).await;
}

async fn replay(file: &Path, address: SocketAddr) {
    let text = fs::read_to_string(file).unwrap();
    let mut settles = false;
    let is_managed = file.ends_with(MANAGED_FIELDS);
    let transcript = if is_managed { Transcript::of_managed_fields(&text) } else { Transcript::new(&text) };
    let replayed = transcript
        .replay(async |request| {
            let deadline = Instant::now() + if settles { SETTLED } else { Duration::ZERO };
            let configures =
                ["/customresourcedefinitions", "webhookconfigurations", "/validatingadmissionpolic"];
            settles = request.method != "GET" && configures.iter().any(|path| request.path.contains(path));
            loop {
                let (code, body) = send(address, request).await.unwrap();
                // The definition before is served in the background.
                if transcript.normalized(code, &body) == request.response || Instant::now() >= deadline {
                    return (code, body);
                }
                sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::write(file, replayed).unwrap();
    } else {
        transcript.assert_equal(&replayed);
    }
}

/// Sends a request. Returns code and body of the response.
async fn send(address: SocketAddr, request: TranscriptRequest<'_>) -> std::io::Result<(u16, String)> {
    let TranscriptRequest { method, path, media_type, body, .. } = request;
    let impersonation =
        request.impersonation().into_iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let impersonation: String = impersonation.collect();
    let headers = format!("Accept: application/json\r\nContent-Type: {media_type}\r\n{impersonation}");
    let (code, _, body) = exchange(address, (method, path), &headers, body).await?;
    Ok((code, body))
}

/// Sends a request over its own connection, which ends with the response. Returns code, head and body of the response.
/// Each of the `headers` ends with CRLF.
pub(crate) async fn exchange(
    address: SocketAddr,
    (method, path): (&str, &str),
    headers: &str,
    body: &str,
) -> std::io::Result<(u16, String, String)> {
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(text.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    let response = String::from_utf8_lossy(&response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_default();
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    Ok((code, head.to_owned(), body.to_owned()))
}
