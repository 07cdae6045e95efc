//! Decoding of arbitrary bytes: bodies, patches and requests.
//!
//! A property processes one input. It must not panic or exhaust the stack or memory. The tests run the properties on
//! mutations of `fuzz/seeds`; the targets in `fuzz` run them under libFuzzer.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, reason = "a test")]
#![cfg_attr(not(test), allow(dead_code, reason = "a target uses one property"))]

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use kcm_apiserver::{
    ApiServer, ApiServerConfig, ListOptions, Resource, WriteOptions, patch, protobuf, strict,
};
use kcm_clock::{FakeClock, SeededRandom, Timestamp};
use serde_json::{Value, json};
use tower::Service;

#[cfg(test)]
#[path = "../../../../fuzz/mutate.rs"]
mod mutate;

/// A protobuf body is rejected, or decodes to a valid object of its kind.
pub fn protobuf(data: &[u8]) {
    let Ok(object) = protobuf::decode(data) else { return };
    let text = |member: &str| object[member].as_str().unwrap().to_owned();
    decode(&text("apiVersion"), &text("kind"), object.clone());
}

/// Decoding is idempotent.
fn decode(api_version: &str, kind: &str, object: Value) {
    let Ok(decoded) = strict::decode_value(api_version, kind, object) else { return };
    let again = strict::decode_value(api_version, kind, decoded.object.clone()).unwrap();
    assert_eq!(again.object, decoded.object);
    assert_eq!(again.strict_errors, Vec::<String>::new());
}

/// A JSON body decodes to the same object from text and from a value.
pub fn strict(data: &[u8]) {
    for (api_version, kind) in [
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("v1", "ReplicationController"),
        ("v1", "Pod"),
        ("v1", "Service"),
        ("v1", "Event"),
        ("coordination.k8s.io/v1", "Lease"),
    ] {
        if let Ok(decoded) = strict::decode(api_version, kind, data) {
            decode(api_version, kind, decoded.object);
        }
    }
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}, "annotations": {"a": "b"}},
        "spec": {
            "replicas": 3, "paused": true, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [{"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
            },
        },
    })
}

/// A patch is applied or rejected, and its result is decoded or rejected.
pub fn patches(data: &[u8]) {
    let Ok(patch) = serde_json::from_slice::<Value>(data) else { return };
    let target = deployment();
    let patched = [
        patch::json_patch(&target, &patch).ok(),
        patch::merge(&target, &patch).ok(),
        patch::strategic(&target, &patch, "Deployment").ok(),
    ];
    for object in patched.into_iter().flatten() {
        decode("apps/v1", "Deployment", object);
    }
}

/// Definition of a custom kind.
fn definition() -> Value {
    serde_json::from_str(include_str!("../../../../fuzz/seeds/definition.json")).unwrap()
}

/// A request does not fail with an internal error, and the server continues to serve.
///
/// The input is a line with method and path, a line with the content type, and the body.
pub fn http(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (line, content_type, body) = (part(), part(), part());
    let Some((method, path)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' ')) else {
        return;
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .body(Full::<Bytes>::from(body.to_vec()));
    let Ok(request) = request else { return };
    let server = ApiServer::new(ApiServerConfig {
        clock: Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH)),
        random: Arc::new(SeededRandom::new(1)),
        ..ApiServerConfig::default()
    });
    let create = |resource, object| server.create(resource, "default", object, &WriteOptions::default());
    create(Resource::DEPLOYMENTS, deployment()).unwrap();
    let mut pod = deployment()["spec"]["template"].take();
    pod["metadata"]["name"] = json!("web-1");
    create(Resource::PODS, pod).unwrap();
    let definitions = Resource::CUSTOM_RESOURCE_DEFINITIONS;
    server.create(definitions, "", definition(), &WriteOptions::default()).unwrap();
    let websites = server.resource("example.com", "websites").unwrap();
    create(websites, json!({"metadata": {"name": "a"}, "spec": {"replicas": 1}})).unwrap();
    // A watch and a blocked deletion do not respond yet.
    if let Some(answer) = server.service().call(request).now_or_never() {
        let (head, body) = answer.unwrap().into_parts();
        let is_json = head.headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
        let body = body.collect().now_or_never().map(|body| body.unwrap().to_bytes()).unwrap_or_default();
        // Upstream's own 500 responses have another message.
        let text = String::from_utf8_lossy(&body);
        assert!(head.status != 500 || !text.contains("Internal error occurred"), "{text}");
        if is_json && !body.is_empty() {
            assert!(serde_json::from_slice::<Value>(&body).is_ok(), "{body:?}");
        }
    }
    for object in server.list(Resource::DEPLOYMENTS, None, &ListOptions::default()).unwrap().items {
        decode("apps/v1", "Deployment", object.value().clone());
    }
}

#[test]
fn decodes_mutated_protobuf() {
    mutate::check("protobuf", 2000, protobuf);
}

#[test]
fn decodes_mutated_bodies() {
    mutate::check("strict", 300, strict);
}

#[test]
fn applies_mutated_patches() {
    mutate::check("patch", 500, patches);
}

#[test]
fn serves_mutated_requests() {
    mutate::check("http", 200, http);
}
