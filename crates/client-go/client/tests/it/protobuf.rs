//! Objects in protobuf.

use futures_util::StreamExt;
use kcm_api::{ApiError, Deployment, Lease, ObjectKey, Pod, ReplicaSet, protobuf::open_envelope};
use kcm_apiserver::{ApiServer, ApiServerConfig, protobuf};
use kcm_client::{
    Api, ApiClient, ClientFactory, ClientOptions, ContentType, DeleteOptions, ListParams, Patch,
    Preconditions, RateLimit, WatchEvent, WatchOptions, WriteOptions,
};
use kcm_testkit::{FakeApiServer, FakeResponse};
use serde_json::{Value, json};

use crate::support::options;

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
    client.api::<Lease>().get(&ObjectKey::new("default", "web")).await.unwrap();
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
    // The phase is a number.
    let at = undecodable.windows(7).position(|bytes| bytes == b"Running").unwrap();
    undecodable[at - 2] = 1 << 3;
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
        assert_eq!(undecodable.error, "cannot decode Pod: wire type mismatch on field 1: expected 2, got 0");
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

mod lossless {
    use super::*;

    const JSON: &str = "application/json";
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

    fn deployment(version: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "default", "name": "web", "resourceVersion": version},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}, "status": {},
        })
    }

    /// The same object with a field of a newer version.
    fn newer(version: &str) -> Value {
        let mut newer = deployment(version);
        newer["spec"]["futureField"] = json!("x");
        newer
    }

    /// Protobuf of [`newer`].
    fn newer_protobuf(version: &str) -> Vec<u8> {
        let object = deployment(version);
        let metadata = [field(1, b"web"), field(3, b"default"), field(6, version.as_bytes())].concat();
        let message = [field(1, &metadata), field(2, &[field(15, b"x")].concat())].concat();
        kcm_api::protobuf::envelope(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
            message,
        )
    }

    fn headers(server: &FakeApiServer) -> Vec<(String, String, String)> {
        let header = |request: &kcm_testkit::RecordedRequest, name| {
            request.header(name).unwrap_or_default().to_owned()
        };
        let of = |request: &kcm_testkit::RecordedRequest| {
            let method = request.to_string().split(' ').next().unwrap_or_default().to_owned();
            (method, header(request, "accept"), header(request, "content-type"))
        };
        server.requests().iter().map(of).collect()
    }

    fn line(method: &str, accept: &str, content_type: &str) -> (String, String, String) {
        (method.to_owned(), accept.to_owned(), content_type.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_read_and_written_in_protobuf() {
        let server = FakeApiServer::new(|_| FakeResponse::protobuf(200, encode(&deployment("7"))));
        let deployments = client(&server).api::<Deployment>();
        let web = deployments.get(&ObjectKey::new("default", "web")).await.unwrap();
        assert_eq!(web, serde_json::from_value(deployment("7")).unwrap());
        assert_eq!(deployments.replace_status(&web).await.unwrap(), web);
        assert_eq!(headers(&server), [line("GET", ACCEPT, ""), line("PUT", ACCEPT, PROTOBUF)]);
    }

    #[tokio::test(start_paused = true)]
    async fn list_with_an_unknown_field_is_requested_in_json() {
        let item = newer_protobuf("7");
        let item = open_envelope(&item).unwrap();
        let page = [field(1, &field(2, b"9")), field(2, item)].concat();
        let page = kcm_api::protobuf::envelope("apps/v1", "DeploymentList", page);
        let server = FakeApiServer::scripted([
            FakeResponse::protobuf(200, page),
            FakeResponse::ok(list(&[newer("7")])),
            FakeResponse::ok(newer("8")),
        ]);
        let deployments = client(&server).api::<Deployment>();
        let list = deployments.list(&ListParams::default()).await.unwrap();
        assert_eq!(list.items[0].spec.extra.get("futureField"), Some(&json!("x")));
        deployments.replace(&list.items[0]).await.unwrap();
        assert_eq!(server.requests()[2].json()["spec"]["futureField"], "x");
        assert_eq!(
            headers(&server),
            [line("GET", ACCEPT, ""), line("GET", JSON, ""), line("PUT", JSON, JSON)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn watch_with_an_unknown_field_is_resumed_in_json() {
        let event = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", newer("8"));
        let stream =
            [frame("ADDED", &encode(&deployment("7"))), frame("MODIFIED", &newer_protobuf("8"))].concat();
        let server =
            FakeApiServer::scripted([FakeResponse::protobuf_stream([stream]), FakeResponse::stream([event])]);
        let deployments = client(&server).api::<Deployment>();
        let watch = async || {
            Box::pin(deployments.watch(&ListParams::default(), &WatchOptions::default()).await.unwrap())
        };
        let mut events = watch().await;
        assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));
        // The reflector watches again from the last version that it received.
        assert!(matches!(events.next().await, Some(Err(ApiError::Transport(_)))));
        assert!(events.next().await.is_none());
        let Some(Ok(WatchEvent::Modified(web))) = watch().await.next().await else { panic!() };
        assert_eq!(web.spec.extra.get("futureField"), Some(&json!("x")));
        assert_eq!(headers(&server), [line("GET", ACCEPT, ""), line("GET", JSON, "")]);
    }

    /// The write is not repeated.
    #[tokio::test(start_paused = true)]
    async fn response_with_an_unknown_field_is_requested_in_json() {
        let server = FakeApiServer::scripted([
            FakeResponse::protobuf(200, newer_protobuf("8")),
            FakeResponse::ok(newer("8")),
        ]);
        let deployments = client(&server).api::<Deployment>();
        let web: Deployment = serde_json::from_value(deployment("7")).unwrap();
        let stored = deployments.replace(&web).await.unwrap();
        assert_eq!(stored, serde_json::from_value(newer("8")).unwrap());
        assert_eq!(headers(&server), [line("PUT", ACCEPT, PROTOBUF), line("GET", JSON, "")]);
    }

    #[tokio::test(start_paused = true)]
    async fn object_with_an_unknown_field_and_server_without_protobuf_get_json() {
        let refused = || FakeResponse::failure(415, "UnsupportedMediaType", "no protobuf");
        let stored = || FakeResponse::ok(deployment("8"));
        let server = FakeApiServer::scripted([stored(), refused(), stored(), stored()]);
        let deployments = client(&server).api::<Deployment>();
        let (known, newer) = (deployment("7"), newer("7"));
        for object in [newer, known.clone(), known] {
            deployments.replace(&serde_json::from_value(object).unwrap()).await.unwrap();
        }
        let put = |accept, content_type| line("PUT", accept, content_type);
        assert_eq!(
            headers(&server),
            [put(ACCEPT, JSON), put(ACCEPT, PROTOBUF), put(JSON, JSON), put(JSON, JSON)]
        );
    }

    /// All fields survive both ways with the embedded server.
    #[tokio::test]
    async fn embedded_server() {
        let server = ApiServer::new(ApiServerConfig::default());
        let clock: std::sync::Arc<dyn kcm_clock::Clock> = std::sync::Arc::new(kcm_clock::RealClock::new());
        let factory = ClientFactory::in_process(server.service(), protobuf_options(options(clock.clone())));
        let protobuf = factory.client("test", RateLimit::UNLIMITED).api::<ReplicaSet>().namespaced("default");
        let json = ClientFactory::in_process(server.service(), options(clock));
        let json = json.client("test", RateLimit::UNLIMITED).api::<ReplicaSet>().namespaced("default");
        let web: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}},
                             "spec": {"containers": [{"name": "web", "image": "nginx:1"}]}},
            },
        }))
        .unwrap();
        let mut created = protobuf.create(&web).await.unwrap();
        assert_eq!(created, json.get("web").await.unwrap());
        created.status.observed_generation = 1;
        let updated = protobuf.replace_status(&created).await.unwrap();
        assert_eq!(updated.status.observed_generation, 1);
        assert_eq!(updated, json.get("web").await.unwrap());
        assert_eq!(protobuf.list(&ListParams::default()).await.unwrap().items, [updated]);
    }
}

#[tokio::test(start_paused = true)]
async fn options_of_deletions() {
    let server = FakeApiServer::scripted([
        FakeResponse::ok("{}"),
        FakeResponse::failure(415, "UnsupportedMediaType", "JSON only"),
        FakeResponse::ok("{}"),
    ]);
    let pods = pods(&client(&server));
    let preconditions = Preconditions { uid: Some("u".to_owned()), resource_version: None };
    let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
    pods.delete("a", &options).await.unwrap();
    pods.delete("a", &options).await.unwrap();
    let json = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "u"}});
    let requests = server.requests();
    for request in &requests[..2] {
        assert_eq!(open_envelope(request.body.as_bytes()).unwrap(), open_envelope(&encode(&json)).unwrap());
    }
    assert_eq!(requests[2].json(), json);
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
