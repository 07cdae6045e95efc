//! Objects in protobuf.

#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod support;

use futures_util::StreamExt;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod};
use kcm_apiserver::{ApiServer, ApiServerConfig, protobuf};
use kcm_client::{
    Api, ApiClient, ClientFactory, ClientOptions, ContentType, ListParams, Patch, RateLimit, WatchEvent,
    WatchOptions, WriteOptions,
};
use kcm_testkit::{FakeApiServer, FakeResponse};
use serde_json::{Value, json};

use support::options;

const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";

fn protobuf_options(options: ClientOptions) -> ClientOptions {
    ClientOptions { content_type: ContentType::Protobuf, ..options }
}

fn client(server: &FakeApiServer) -> ApiClient {
    ClientFactory::in_process(server.service(), protobuf_options(options(server.clock())))
        .client("test", RateLimit::UNLIMITED)
}

fn pods(client: &ApiClient) -> Api<Pod> {
    client.api::<Pod>().namespaced("default")
}

fn pod(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version},
        "spec": {"containers": [{"name": "web", "image": "nginx:1"}], "nodeName": "node-1"},
        "status": {"phase": "Running"},
    })
}

fn list(pods: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": pods})
}

fn encode(object: &Value) -> Vec<u8> {
    protobuf::encode(object).unwrap()
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        field.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).unwrap());
    field.extend_from_slice(content);
    field
}

/// Frame of a watch, with its length.
fn frame(type_: &str, object: &[u8]) -> Vec<u8> {
    let event = [field(1, type_.as_bytes()), field(2, &field(1, object))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

#[tokio::test(start_paused = true)]
async fn lists_and_reads() {
    let failure = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no pod", "reason": "NotFound", "code": 404});
    let server = FakeApiServer::scripted([
        FakeResponse::protobuf(200, encode(&list(&[pod("a", "7"), pod("b", "8")]))),
        FakeResponse::protobuf(200, encode(&pod("a", "7"))),
        FakeResponse::protobuf(404, encode(&failure)),
    ]);
    let pods = pods(&client(&server));
    let list = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!((list.items.len(), &*list.resource_version), (2, "9"));
    assert_eq!(list.items[1].node_name.as_deref(), Some("node-1"));
    assert_eq!(pods.get("a").await.unwrap(), list.items[0]);
    let error = pods.get("c").await.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "no pod");
    for request in server.requests() {
        assert_eq!(request.header("accept"), Some(ACCEPT));
    }
}

/// Servers without protobuf, and types without a decoder.
#[tokio::test(start_paused = true)]
async fn json_remains_accepted() {
    let event = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", pod("b", "10"));
    let server = FakeApiServer::scripted([
        FakeResponse::ok(list(&[pod("a", "7")])),
        FakeResponse::stream([event]),
        FakeResponse::ok(json!({"metadata": {"namespace": "default", "name": "web"}})),
    ]);
    let client = client(&server);
    assert_eq!(pods(&client).list(&ListParams::default()).await.unwrap().items.len(), 1);
    let mut events =
        Box::pin(pods(&client).watch(&ListParams::default(), &WatchOptions::default()).await.unwrap());
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(pod))) if &*pod.key.name == "b"));
    client.api::<Deployment>().get(&ObjectKey::new("default", "web")).await.unwrap();
    let accepted: Vec<_> =
        server.requests().iter().map(|request| request.header("accept").unwrap().to_owned()).collect();
    assert_eq!(accepted, [ACCEPT, ACCEPT, "application/json"]);
}

#[tokio::test(start_paused = true)]
async fn watches() {
    let bookmark = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}});
    let expired =
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
    let mut undecodable = encode(&pod("bad", "11"));
    // The phase is not UTF-8.
    let at = undecodable.windows(7).position(|bytes| bytes == b"Running").unwrap();
    undecodable[at] = 0xff;
    let stream = [
        frame("ADDED", &encode(&pod("a", "10"))),
        frame("MODIFIED", &undecodable),
        frame("DELETED", &encode(&pod("a", "11"))),
        frame("BOOKMARK", &encode(&bookmark)),
        frame("ERROR", &encode(&expired)),
    ]
    .concat();
    for size in [1, 7, stream.len()] {
        let server =
            FakeApiServer::scripted([FakeResponse::protobuf_stream(stream.chunks(size).map(<[u8]>::to_vec))]);
        let pods = pods(&client(&server));
        let mut events =
            Box::pin(pods.watch(&ListParams::default(), &WatchOptions::default()).await.unwrap());
        let mut next = async || events.next().await.unwrap();
        assert!(matches!(next().await, Ok(WatchEvent::Added(pod)) if &*pod.resource_version == "10"));
        let Ok(WatchEvent::Undecodable(undecodable)) = next().await else { panic!() };
        assert_eq!(
            (&*undecodable.name, undecodable.resource_version.as_deref()),
            ("default/bad", Some("11"))
        );
        assert_eq!(undecodable.error, "cannot decode Pod: invalid UTF-8 in string field");
        assert!(matches!(next().await, Ok(WatchEvent::Deleted(pod)) if &*pod.resource_version == "11"));
        let Ok(WatchEvent::Bookmark { resource_version, initial_events_end }) = next().await else {
            panic!()
        };
        assert_eq!((&*resource_version, initial_events_end), ("12", true));
        assert!(next().await.unwrap_err().is_expired());
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_responses_are_errors() {
    let whole = frame("ADDED", &encode(&pod("a", "10")));
    let cut = whole[..whole.len() - 1].to_vec();
    let unknown = frame("RENAMED", &encode(&pod("a", "10")));
    struct Case {
        stream: Vec<u8>,
        message: &'static str,
    }
    let cases = [
        Case { stream: cut, message: "the stream ended within an event" },
        Case { stream: unknown, message: "not an event: unknown type \"RENAMED\"" },
        Case {
            stream: frame("ADDED", b"{}"),
            message: "not an event: not a protobuf object: the prefix is missing",
        },
        Case { stream: b"\0\0\0\x01\xff".to_vec(), message: "not an event: unexpected end of buffer" },
        Case { stream: b"\xff\xff\xff\xff".to_vec(), message: "an event of over 33554432 bytes" },
    ];
    for Case { stream, message } in cases {
        let server = FakeApiServer::scripted([FakeResponse::protobuf_stream([stream])]);
        let pods = pods(&client(&server));
        let mut events =
            Box::pin(pods.watch(&ListParams::default(), &WatchOptions::default()).await.unwrap());
        let error = events.next().await.unwrap().unwrap_err().to_string();
        assert!(error.ends_with(message), "{error}");
    }
    for body in [&b"k8s\0"[..], b"k8s\0\xff", b"k8s\0\x12\x02\x0a\x01"] {
        let server = FakeApiServer::new(move |_| FakeResponse::protobuf(200, body));
        let pods = pods(&client(&server));
        if body != b"k8s\0" {
            assert!(matches!(pods.list(&ListParams::default()).await, Err(ApiError::Decode(_))));
            assert!(matches!(pods.get("a").await, Err(ApiError::Decode(_))));
        }
    }
}

/// All verbs against the embedded server, which responds in protobuf.
#[tokio::test]
async fn embedded_server() {
    let server = ApiServer::new(ApiServerConfig::default());
    let clock = std::sync::Arc::new(kcm_clock::RealClock::new());
    let factory = ClientFactory::in_process(server.service(), protobuf_options(options(clock)));
    let whole = pods(&factory.client("test", RateLimit::UNLIMITED));
    let metadata_only = WriteOptions { metadata_only: true, ..WriteOptions::default() };
    let brief = whole.with_write_options(metadata_only);
    let mut events = Box::pin(whole.watch(&ListParams::default(), &WatchOptions::default()).await.unwrap());

    let body = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
               "spec": {"containers": [{"name": "web", "image": "nginx:1"}], "nodeName": "node-1"}})
        .to_string()
    };
    let created = whole.create_json(body("a")).await.unwrap();
    assert_eq!(created.node_name.as_deref(), Some("node-1"));
    let metadata = brief.create_json(body("b")).await.unwrap();
    assert_eq!((&*metadata.key.name, metadata.node_name.as_deref()), ("b", None));
    assert!(brief.create_json(body("b")).await.unwrap_err().is_already_exists());

    let patch = Patch::merge(&json!({"metadata": {"labels": {"app": "db"}}}));
    let patched = brief.patch("a", &patch).await.unwrap();
    assert_eq!(patched.labels["app"], "db");
    let list = whole.list(&ListParams::labels("app=db")).await.unwrap();
    assert_eq!(list.items, [whole.get("a").await.unwrap()]);
    assert_eq!(list.items[0].resource_version, patched.resource_version);
    whole.delete("a", &Default::default()).await.unwrap();
    assert!(matches!(whole.get("c").await, Err(error) if error.is_not_found()));

    let mut next = async || events.next().await.unwrap().unwrap();
    assert!(matches!(next().await, WatchEvent::Added(pod) if pod == created));
    assert!(matches!(next().await, WatchEvent::Added(pod) if &*pod.key.name == "b"));
    assert!(matches!(next().await, WatchEvent::Modified(pod) if pod == list.items[0]));
}
