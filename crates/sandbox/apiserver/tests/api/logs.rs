//! Logs of containers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::client::{Client, PODS, pod};

const P: &str = "/api/v1/namespaces/default/pods/p";
const STARTED: &str = "2026-01-01T00:00:00Z";

/// A bound pod, whose container has a log of three lines.
async fn client() -> Client {
    let client = Client::with(|config| config.logs = Arc::new(|_, _| "one\ntwo\nthree\n".to_owned()));
    client.post(PODS, &pod("p")).await.expect(201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    client.post(&format!("{P}/binding"), &binding).await.expect(201);
    client
}

async fn set_state(client: &Client, state: Value, last: Value) {
    let status = json!({"name": "c", "ready": true, "restartCount": 0, "image": "nginx:1", "imageID": "",
        "state": state, "lastState": last});
    client
        .patch(&format!("{P}/status"), &json!({"status": {"containerStatuses": [status]}}))
        .await
        .expect(200);
}

async fn running() -> Client {
    let client = client().await;
    set_state(&client, json!({"running": {"startedAt": STARTED}}), json!({})).await;
    client
}

#[tokio::test]
async fn default_log_is_simulated() {
    let client = Client::new();
    client.post(PODS, &pod("p")).await.expect(201);
    assert_eq!(client.get(&format!("{P}/log")).await.code, 204);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    client.post(&format!("{P}/binding"), &binding).await.expect(201);
    set_state(&client, json!({"running": {"startedAt": STARTED}}), json!({})).await;
    let log = client.get(&format!("{P}/log?container=c")).await;
    assert_eq!((log.code, log.header("content-type")), (200, "text/plain; charset=utf-8"));
    assert!(log.text.starts_with("(simulated)"), "{}", log.text);
    client.get(&format!("{P}/exec?command=ls")).await.refused(501, "NotImplemented");
}

#[tokio::test]
async fn options_select_lines() {
    let client = running().await;
    client.clock.step(Duration::from_secs(60));
    for (query, expected) in [
        ("", "one\ntwo\nthree\n"),
        ("tailLines=1", "three\n"),
        ("tailLines=0", ""),
        ("tailLines=9", "one\ntwo\nthree\n"),
        ("limitBytes=5", "one\nt"),
        ("limitBytes=500&follow=false", "one\ntwo\nthree\n"),
        ("tailLines=2&limitBytes=4", "two\n"),
        ("timestamps=true&tailLines=1", "2026-01-01T00:00:00Z three\n"),
        ("sinceSeconds=60", "one\ntwo\nthree\n"),
        ("sinceSeconds=59", ""),
        ("sinceTime=2026-01-01T00:00:00Z", "one\ntwo\nthree\n"),
        ("sinceTime=2026-01-01T00:00:01Z", ""),
        ("sinceSeconds=9223372036854775807", "one\ntwo\nthree\n"),
    ] {
        let log = client.get(&format!("{P}/log?{query}")).await;
        assert_eq!((log.code, log.text.as_str()), (200, expected), "{query}");
    }
}

#[tokio::test]
async fn log_requires_a_run() {
    let client = client().await;
    let refused = async |query: &str| client.get(&format!("{P}/log{query}")).await.refused(400, "BadRequest");
    let waiting = "container \"c\" in pod \"p\" is waiting to start: ";
    assert_eq!(refused("").await, format!("{waiting}ContainerCreating"));
    for (reason, expected) in [
        ("ErrImagePull", "image can't be pulled"),
        ("ImagePullBackOff", "trying and failing to pull image"),
        ("PodInitializing", "PodInitializing"),
    ] {
        set_state(&client, json!({"waiting": {"reason": reason}}), json!({})).await;
        assert_eq!(refused("").await, format!("{waiting}{expected}"));
    }
    let previous = "previous terminated container \"c\" in pod \"p\" not found";
    assert_eq!(refused("?previous=true").await, previous);
    let last = json!({"terminated": {"exitCode": 1, "startedAt": STARTED}});
    set_state(&client, json!({"waiting": {"reason": "CrashLoopBackOff"}}), last).await;
    for query in ["", "?previous=true"] {
        assert_eq!(client.get(&format!("{P}/log{query}")).await.text, "one\ntwo\nthree\n");
    }
}

#[tokio::test]
async fn followed_log_ends_with_the_container() {
    let client = running().await;
    let follow = async || {
        let request = Request::builder()
            .uri(format!("{P}/log?follow=true&tailLines=1"))
            .header("accept", "application/vnd.kubernetes.protobuf,application/json");
        let response = client.send(request.body(Full::new(Bytes::new())).unwrap()).await;
        let mut body = response.into_body();
        let text = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(text, "three\n");
        body
    };
    let (mut restarted, mut deleted) = (follow().await, follow().await);
    client.patch(P, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    let open = tokio::time::timeout(Duration::ZERO, restarted.frame()).await;
    assert!(open.is_err(), "{open:?}");
    let state = json!({"running": null, "terminated": {"exitCode": 0, "startedAt": STARTED}});
    set_state(&client, state, json!({})).await;
    assert!(restarted.frame().await.is_none());
    assert!(deleted.frame().await.is_none());
    // The log of a container that has ended is complete.
    let log = client.get(&format!("{P}/log?follow=true")).await;
    assert_eq!(log.text, "one\ntwo\nthree\n");
    set_state(&client, json!({"terminated": null, "running": {"startedAt": STARTED}}), json!({})).await;
    deleted = follow().await;
    client.delete(P, &json!({"gracePeriodSeconds": 0})).await.expect(200);
    assert!(deleted.frame().await.is_none());
}
