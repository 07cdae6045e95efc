//! Decoding of arbitrary bytes: lists, watches, refusals and kubeconfig files.
//!
//! Each property takes the bytes of one input. It must not panic, and must not exhaust the stack or the memory. The tests
//! run it on mutations of `fuzz/seeds`, the targets in `fuzz` run it under libFuzzer.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, reason = "a test")]
#![cfg_attr(not(test), allow(dead_code, reason = "a target uses one property"))]

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;
use kcm_api::{ApiError, Deployment, Pod};
use kcm_client::{
    ApiClient, ClientFactory, ClientOptions, Decode, Kind, ListParams, RateLimit, Request, Server, UserAgent,
};
use kcm_clock::{SimulatedClock, Timestamp};
use kcm_informer::{List, ListOptions, ListWatchError, WatchEvent, WatchOptions};
use serde_json::value::RawValue;

#[cfg(test)]
#[path = "../../../../fuzz/mutate.rs"]
mod mutate;

/// An object that decodes, before and after the others in lists and watches.
const VALID: &str =
    r#"{"metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"1"},"spec":{}}"#;

/// Runs `future` in simulated time.
fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(future)
}

fn options() -> ClientOptions {
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    ClientOptions::new(UserAgent::new("fuzz", "v1", "abc"), clock)
}

/// A client of a server that answers with `code` and `body`, in pieces of different sizes. Further pages are empty.
fn client(code: u16, body: &[u8]) -> ApiClient {
    let body = Bytes::copy_from_slice(body);
    let service = tower::service_fn(move |request: http::Request<kcm_client::Body>| {
        let next_page = request.uri().query().is_some_and(|query| query.contains("continue="));
        let body = if next_page { Bytes::from_static(b"{}") } else { body.clone() };
        let size = 1 + body.len() % 97;
        let pieces: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
        let frames = stream::iter(pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
        let answer = Response::builder().status(code).body(StreamBody::new(frames));
        async move { answer }
    });
    ClientFactory::in_process(service, options()).without_retries().client("fuzz", RateLimit::UNLIMITED)
}

fn list_of<K: Kind<Decoder: Decode<K>>>(body: &[u8]) -> Result<List<K>, ListWatchError> {
    run(async {
        client(200, body).api::<K>().list_watch(ListParams::default()).list(&ListOptions::default()).await
    })
}

fn watch_of<K: Kind<Decoder: Decode<K>>>(body: &[u8]) -> Vec<Result<WatchEvent<K>, ListWatchError>> {
    let options = WatchOptions { timeout: Duration::from_secs(60), ..WatchOptions::default() };
    run(async {
        client(200, body)
            .api::<K>()
            .list_watch(ListParams::default())
            .watch(&options)
            .await
            .unwrap()
            .collect()
            .await
    })
}

/// A list is decoded or refused.
pub fn list(data: &[u8]) {
    drop(list_of::<Deployment>(data));
    drop(list_of::<Pod>(data));
}

/// A watch ends after its last line, and after its first error.
pub fn watch(data: &[u8]) {
    for events in [watch_of::<Deployment>(data).len(), watch_of::<Pod>(data).len()] {
        assert!(events <= 1 + data.iter().filter(|byte| **byte == b'\n').count());
    }
}

/// A JSON value in the place of an object does not lose the objects around it.
pub fn object(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<&RawValue>(data) else { return };
    // Outside of texts, which have no line ends, these are white space.
    let value = value.get().replace(['\n', '\r'], " ");
    around::<Deployment>(&value);
    around::<Pod>(&value);
}

fn around<K: Kind<Decoder: Decode<K>>>(value: &str) {
    let body = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{VALID},{value},{VALID}]}}"#);
    let List { items, undecodable, resource_version } = list_of::<K>(body.as_bytes()).unwrap();
    assert_eq!(items.len() + undecodable.len(), 3);
    assert!(items.len() >= 2);
    assert_eq!(resource_version, "5");

    let line = |type_, object| format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n");
    let body = [line("ADDED", VALID), line("MODIFIED", value), line("DELETED", value), line("ADDED", VALID)];
    let events: Vec<_> =
        watch_of::<K>(body.concat().as_bytes()).into_iter().map(|event| event.unwrap()).collect();
    assert!(matches!(
        events[..],
        [
            WatchEvent::Added(_),
            WatchEvent::Modified(_) | WatchEvent::Undecodable(_),
            WatchEvent::Deleted(_) | WatchEvent::UndecodableDeleted(_),
            WatchEvent::Added(_)
        ]
    ));
}

/// A refusal has the code of the answer, unless it gives another, and a message.
pub fn refusal(data: &[u8]) {
    for code in [403, 500] {
        let error = run(async { client(code, data).send(&Request::get("/api")).await }).unwrap_err();
        assert!(matches!(error, ApiError::Status(_)), "{error:?}");
        drop(error.to_string());
    }
}

/// A kubeconfig file gives a client, or an error in one line.
pub fn kubeconfig(data: &[u8]) {
    // Plugins would be run, and devices read.
    let forbidden: [&[u8]; 4] = [b"exec", b"cmd", b"/dev", b"/proc"];
    if forbidden.iter().any(|word| data.windows(word.len()).any(|part| part == *word)) {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), data).unwrap();
    let server = Server::Kubeconfig { path: file.path().to_owned(), master: None };
    if let Err(error) = run(ClientFactory::connect(server, options())) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn decodes_mutated_lists() {
    mutate::check("list", 200, list);
}

#[test]
fn decodes_mutated_watches() {
    mutate::check("watch", 200, watch);
}

#[test]
fn keeps_what_is_around_mutated_objects() {
    mutate::check("objects", 200, object);
}

#[test]
fn decodes_mutated_refusals() {
    mutate::check("status", 200, refusal);
}

#[test]
fn reads_mutated_kubeconfigs() {
    // Without a CA, a client reads those of the operating system.
    mutate::check_within(64 << 20, "kubeconfig", 200, kubeconfig);
}
