//! The same drawn requests, sent to this project's API server and to kube-apiserver, have equal responses.
//!
//! `drawn_responses.txt` has a line per sequence, with a digest of each response of kube-apiserver, with which tests compare
//! without that server. A line ends before the first response that differs for a known reason (see `docs/sandbox.md`).
//! `DRAWN_SEQUENCES` is the number of sequences. `UPDATE_TRANSCRIPTS=1` records the digests.

use std::{collections::HashMap, fmt::Write as _, fs, net::SocketAddr, sync::LazyLock};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use kcm_apiserver::{ApiServer, ApiServerConfig, ApiService};
use kcm_sandbox_server::HttpServer;
use kcm_stories::external::Authorization;
use regex::{Captures, Regex};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::{
    drawn_requests::{DrawnRequest, Table},
    harness::{assets, until},
    transcripts::{Server, exchange},
};

const RECORDED: &str = include_str!("drawn_responses.txt");

const RECORDED_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/drawn_responses.txt");

/// Definition of the custom resource of the table.
const DEFINITION: &str = include_str!("widget.json");

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Part of a warning of this project's API server about kinds without a controller.
const STORED_ONLY: &str = "is stored only";

/// Number of sequences that a test replays from the recording.
const REPLAYED: usize = 200;

#[tokio::test]
async fn drawn_requests_have_the_recorded_responses() {
    let mut server = Embedded::new().await;
    let table = Table::new();
    let mut differences = String::new();
    for (seed, recorded) in (0..).zip(RECORDED.lines().take(sequences(REPLAYED))) {
        let mut state = SequenceState::default();
        for (request, recorded) in table.sequence(seed).iter().zip(recorded.split(' ')) {
            let response = state.send(&mut server, request).await;
            if digest(&response) != recorded {
                write!(differences, "sequence {seed}: {request:?}\n{response}\n\n").unwrap();
                break;
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drawn_requests_have_the_responses_of_kube_apiserver() {
    let Some(assets) = assets() else { return };
    let real = Server::start(&assets, Authorization::AlwaysAllow).await;
    let mut real = Real(real.address());
    real.define().await;
    let mut embedded = Embedded::new().await;
    let table = Table::new();
    let updates = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let (mut lines, mut differences, mut requests) = (String::new(), String::new(), 0);
    let mut recorded = RECORDED.lines();
    for seed in 0..sequences(REPLAYED) {
        let length = recorded.next().map_or(0, |line| line.split(' ').count());
        let (mut of_real, mut of_embedded) = (SequenceState::default(), SequenceState::default());
        let mut digests = Vec::new();
        for (index, request) in table.sequence(seed as u64).iter().enumerate() {
            if index == length && !updates {
                break;
            }
            let expected = of_real.send(&mut real, request).await;
            let found = of_embedded.send(&mut embedded, request).await;
            if expected != found {
                write!(
                    differences,
                    "sequence {seed}: {request:?}\nexpected {expected}\nfound    {found}\n\n"
                )
                .unwrap();
                break;
            }
            digests.push(digest(&expected));
        }
        requests += digests.len();
        lines += &format!("{}\n", digests.join(" "));
    }
    if updates {
        fs::write(RECORDED_FILE, lines).unwrap();
        println!("{differences}{requests} responses are equal");
    } else {
        assert!(differences.is_empty(), "{differences}");
    }
}

fn sequences(default: usize) -> usize {
    std::env::var("DRAWN_SEQUENCES").map_or(default, |number| number.parse().unwrap())
}

/// A server that requests are sent to.
trait Responder {
    /// Returns code, warnings and body.
    async fn respond(&mut self, request: &DrawnRequest) -> (u16, Vec<String>, String);

    /// Creates the definition of the custom resource, and waits until the resource is served.
    async fn define(&mut self) {
        let create =
            DrawnRequest { body: DEFINITION.to_owned(), ..DrawnRequest::new("POST", DEFINITIONS.to_owned()) };
        assert_eq!(self.respond(&create).await.0, 201);
        let list = DrawnRequest::new("GET", "/apis/example.com/v1/widgets".to_owned());
        until("the resource is served", async || self.respond(&list).await.0 == 200).await;
    }
}

struct Embedded(ApiService);

impl Embedded {
    async fn new() -> Self {
        let mut server = Self(HttpServer::new(ApiServer::new(ApiServerConfig::default())).service());
        server.define().await;
        server
    }
}

impl Responder for Embedded {
    async fn respond(&mut self, request: &DrawnRequest) -> (u16, Vec<String>, String) {
        let mut builder = http::Request::builder().method(request.method).uri(&request.path);
        for (name, value) in [("accept", request.accept), ("content-type", request.media_type)] {
            if !value.is_empty() {
                builder = builder.header(name, value);
            }
        }
        let sent =
            builder.header("user-agent", "drawn").body(Full::new(Bytes::from(request.body.clone()))).unwrap();
        let (parts, body) = self.0.clone().oneshot(sent).await.unwrap().into_parts();
        let warnings = parts.headers.get_all("warning").iter();
        let warnings =
            warnings.map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned()).collect();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), warnings, String::from_utf8_lossy(&body).into_owned())
    }
}

struct Real(SocketAddr);

impl Responder for Real {
    async fn respond(&mut self, request: &DrawnRequest) -> (u16, Vec<String>, String) {
        let mut headers = "User-Agent: drawn\r\n".to_owned();
        for (name, value) in [("Accept", request.accept), ("Content-Type", request.media_type)] {
            if !value.is_empty() {
                write!(headers, "{name}: {value}\r\n").unwrap();
            }
        }
        let line = (request.method, request.path.as_str());
        let (code, head, body) = exchange(self.0, line, &headers, &request.body).await.unwrap();
        let warnings = head.lines().filter_map(|line| line.strip_prefix("Warning: ")).map(str::to_owned);
        (code, warnings.collect(), body)
    }
}

/// Patterns of values that differ in each run or for a known reason, with their replacements.
static MASKED: LazyLock<[(Regex, &str); 25]> = LazyLock::new(|| {
    [
        // Descriptions of columns.
        (r#"("format":"\w*"),"description":"(?:[^"\\]|\\.)*""#, "$1"),
        // Path of the build.
        (r#"(in scheme \\")[^"]*/(pkg/)"#, "$1$2"),
        (r"(in record |in the precondition )\([0-9]+\)", "$1(RV)"),
        (r"current: [0-9]+", "current: RV"),
        // Cluster IPs, which this project's API server does not allocate.
        (r#""clusterIPs?":\[?"10\.0\.0\.[0-9]+"\]?,"#, ""),
        (r#""ipFamilies":\["IPv4"\],"ipFamilyPolicy":"SingleStack","#, ""),
        // Upstream prints a strategic merge patch as a map of Go.
        (r#"(patch: Invalid value: \\"map)\[.*"#, "$1"),
        (r#"(\\"\\" is invalid: patch: Invalid value: ).*"#, "$1"),
        (r#""continue":"","resourceVersion":"[0-9]+""#, r#""continue":"","resourceVersion":"LIST""#),
        // Upstream's `null`.
        (r#"("kind":"PartialObjectMetadataList".*),"items":\[\]"#, "$1"),
        // The key in etcd.
        ("StorageError: invalid object, Code: 4, Key: [^,]*, ResourceVersion: 0, AdditionalErrorMsg: ", ""),
        // Upstream adds it to complete objects only.
        (r#","annotations":\{"deprecated.daemonset.template.generation":"[0-9]+"\}"#, ""),
        // Upstream's admission adds a taint that a controller removes.
        (r#",?\{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"\}"#, ""),
        (r#",?"taints":\[\]"#, ""),
        // A difference of Go structs.
        (r#"(if it was previously negative\))(?:[^"\\]|\\.)*"#, "$1"),
        // Rules are required, but may be empty.
        (r#",?"rules":\[\]"#, ""),
        // Unset lists and times, which this project's API server leaves out.
        (r#""\w+":null,"#, ""),
        (r#",?"\w+":null"#, ""),
        (r#""metadata":\{"resourceVersion":"[0-9]+""#, r#""metadata":{"resourceVersion":"LIST""#),
        (r#""continue":"[^"]+""#, r#""continue":"CONTINUE""#),
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z", "TIME"),
        (r#""([0-9]+[smh])+""#, r#""AGE""#),
        (r"\b10\.0\.0\.[0-9]+", "SERVICE-IP"),
        (r#""nodePort":3[0-9]{4}"#, r#""nodePort":PORT"#),
        (r#""(gen-)[bcdfghjklmnpqrstvwxz2456789]{5}\b"#, r#""${1}SUFFIX"#),
    ]
    .map(|(pattern, value)| (Regex::new(pattern).unwrap(), value))
});

/// Cells of a table. Numbers are text for kinds that are only stored.
static CELLS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""cells":\[[^\]]*\]"#).unwrap());

/// Resource versions and UIDs.
static NUMBERED: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#""resourceVersion":"([0-9]+)"|\b([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b"#;
    Regex::new(pattern).unwrap()
});

/// Values that a server returned in a sequence.
#[derive(Default)]
struct SequenceState {
    resource_version: String,
    uid: String,
    continued: String,
    /// Numbers of UIDs and resource versions in order of their first appearance.
    numbers: HashMap<String, usize>,
}

impl SequenceState {
    /// Sends a request with the values of its placeholders. Returns the response in one line.
    async fn send(&mut self, server: &mut impl Responder, request: &DrawnRequest) -> String {
        let filled = |text: &str| {
            let text = text.replace("{rv}", &self.resource_version).replace("{uid}", &self.uid);
            text.replace("{continue}", &self.continued)
        };
        let sent =
            DrawnRequest { path: filled(&request.path), body: filled(&request.body), ..request.clone() };
        let (code, warnings, body) = server.respond(&sent).await;
        // YAML is compared as JSON.
        let yaml =
            (request.accept == "application/yaml").then(|| serde_saphyr::from_str::<Value>(&body).ok());
        let body = yaml.flatten().map_or(body, |value| value.to_string());
        let object: Value = serde_json::from_str(&body).unwrap_or_default();
        let is_single = object.get("items").or(object.get("rows")).is_none();
        for (pointer, value) in [
            ("/metadata/resourceVersion", &mut self.resource_version),
            ("/metadata/uid", &mut self.uid),
            ("/metadata/continue", &mut self.continued),
        ] {
            if let Some(text) = object.pointer(pointer).and_then(Value::as_str)
                && (is_single || pointer.ends_with("/continue"))
            {
                text.clone_into(value);
            }
        }
        // Upstream reports unknown fields of a patch that fails.
        let is_failed_patch = request.method == "PATCH" && code >= 400;
        let warnings: Vec<_> =
            warnings.into_iter().filter(|text| !text.contains(STORED_ONLY) && !is_failed_patch).collect();
        let body = if body.starts_with("{\n") { compact(&body) } else { body };
        self.normalized(&format!(
            "{code} {} {}",
            warnings.join(" "),
            kcm_testkit::without_managed_fields(body.trim_end())
        ))
    }

    fn normalized(&mut self, text: &str) -> String {
        let text = MASKED
            .iter()
            .fold(text.to_owned(), |text, (pattern, value)| pattern.replace_all(&text, *value).into_owned());
        let text = CELLS.replace_all(&text, |cells: &Captures<'_>| cells[0].replace('"', ""));
        let text = NUMBERED.replace_all(&text, |found: &Captures<'_>| {
            let next = self.numbers.len();
            match (found.get(1), found.get(2)) {
                (Some(version), _) => {
                    let number = *self.numbers.entry(version.as_str().to_owned()).or_insert(next);
                    format!("\"resourceVersion\":\"RV{number}\"")
                }
                (_, uid) => {
                    let uid = uid.map_or("", |uid| uid.as_str());
                    format!("UID{}", self.numbers.entry(uid.to_owned()).or_insert(next))
                }
            }
        });
        text.into_owned()
    }
}

/// Returns indented JSON without the white space between its tokens.
fn compact(text: &str) -> String {
    static INDENTED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"\n *|([^\\]":) "#).unwrap());
    INDENTED.replace_all(text, "$1").into_owned()
}

/// Four hexadecimal digits of the FNV-1a hash.
fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{:04x}", hash >> 48)
}
