//! Lists that arrive in pieces, are cut, or end early.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kcm_api::{ApiError, Pod, protobuf::open_envelope};
use kcm_apiserver::protobuf::encode;
use kcm_client::{
    Api, Body, ClientFactory, ClientOptions, ListOptions, ListParams, ListSink, RateLimit, Undecodable,
    UserAgent,
};
use kcm_clock::{SeededRandom, SimulatedClock, Timestamp};
use kcm_informer::{InformerConfig, SharedInformer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

type AnswerBody = UnsyncBoxBody<Bytes, io::Error>;

/// End of a body after its pieces.
#[derive(Clone, Copy)]
enum End {
    Complete,
    /// The connection breaks.
    Cut,
    /// Nothing more arrives.
    Silent,
}

/// Server with one answer per list. Watches stay open.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(String, End)>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answers: impl IntoIterator<Item = (String, End)>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, requests: Arc::default() }
    }

    fn answer(&self, request: &http::Request<Body>) -> Response<AnswerBody> {
        let uri = request.uri().to_string();
        if uri.contains("watch=true") {
            return Response::new(body("", End::Silent));
        }
        self.requests.lock().unwrap().push(uri);
        let (text, end) = self.answers.lock().unwrap().pop_front().unwrap();
        Response::new(body(&text, end))
    }

    fn pods(&self, retries: bool) -> Api<Pod> {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = this.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let options = ClientOptions::new(UserAgent::new("cut-lists", "v1", "abc"), clock);
        let factory = ClientFactory::in_process(service, options);
        let factory = if retries { factory } else { factory.without_retries() };
        factory.client("test", RateLimit::UNLIMITED).api()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn body(text: &str, end: End) -> AnswerBody {
    let pieces: Vec<_> = text.as_bytes().chunks(7).map(Bytes::copy_from_slice).collect();
    let pieces = stream::iter(pieces).map(|piece| Ok(Frame::data(piece)));
    let end = match end {
        End::Complete => stream::empty().boxed(),
        End::Cut => stream::iter([Err(io::ErrorKind::ConnectionReset.into())]).boxed(),
        End::Silent => stream::pending().boxed(),
    };
    StreamBody::new(pieces.chain(end)).boxed_unsync()
}

fn pod(name: &str, version: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": version}, "spec": {}})
}

/// List of pods at version 1 of each.
fn list(names: &[&str], next: &str) -> String {
    let items: Vec<_> = names.iter().map(|name| pod(name, "1")).collect();
    json!({"items": items, "metadata": {"resourceVersion": "9", "continue": next}}).to_string()
}

/// Start of a list with these pods.
fn start_of_list(names: &[&str]) -> String {
    let list = list(&[names, &["cut"]].concat(), "");
    list[..list.find(r#""cut""#).unwrap()].to_owned()
}

fn names(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(|pod| &*pod.key.name).collect()
}

fn cached() -> ListParams {
    ListParams { resource_version: Some("0".to_owned()), ..ListParams::default() }
}

/// The state of the second answer can be another one.
#[tokio::test(start_paused = true)]
async fn cut_list_starts_over() {
    let server = Server::new([
        (start_of_list(&["a", "b"]), End::Cut),
        (start_of_list(&["a"]), End::Cut),
        (list(&["b", "c"], ""), End::Complete),
    ]);
    let list = server.pods(true).list(&cached()).await.unwrap();
    assert_eq!(names(&list.items), ["b", "c"]);
    assert_eq!(server.requests(), ["/api/v1/pods?resourceVersion=0"; 3]);
}

#[tokio::test(start_paused = true)]
async fn cut_page_is_requested_again() {
    let server = Server::new([
        (start_of_list(&["x"]), End::Cut),
        (list(&["a", "b"], "t"), End::Complete),
        (start_of_list(&["c", "d"]), End::Cut),
        (start_of_list(&["c"]), End::Cut),
        (list(&["c", "d", "e"], "u"), End::Complete),
        (list(&["f"], ""), End::Complete),
    ]);
    let list = server.pods(true).list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&list.items), ["a", "b", "c", "d", "e", "f"]);
    let (first, second) = ("/api/v1/pods?limit=500", "/api/v1/pods?limit=500&continue=t");
    let third = "/api/v1/pods?limit=500&continue=u";
    assert_eq!(server.requests(), [first, first, second, second, second, third]);
}

#[tokio::test(start_paused = true)]
async fn body_that_is_not_a_list_is_an_error() {
    let invalid_object = list(&["a", "b"], "").replace(r#""uid":"b""#, r#""uid":b"#);
    let whole = list(&["a"], "");
    let bodies = [
        whole[..whole.len() - 1].to_owned(),
        start_of_list(&["a"]),
        invalid_object,
        format!("{whole}{whole}"),
    ];
    for body in bodies {
        let server = Server::new([(body.clone(), End::Complete)]);
        let error = server.pods(true).list(&cached()).await.unwrap_err();
        assert!(
            matches!(&error, ApiError::Decode(text) if text.to_string().contains("/api/v1/pods: not a list: ")),
            "{body}: {error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_list_does_not_change_a_store() {
    let server = Server::new([
        (list(&["a", "b"], ""), End::Complete),
        (start_of_list(&["b", "c"]), End::Cut),
        (start_of_list(&["b", "c"]), End::Complete),
        (list(&["b", "c"], "t"), End::Complete),
        (start_of_list(&["d"]), End::Cut),
        (list(&["b", "d"], ""), End::Complete),
    ]);
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let source = server.pods(false).list_watch(ListParams::default());
    let informer = SharedInformer::new(InformerConfig {
        streaming_lists: false,
        ..InformerConfig::new("pods", source, clock, Arc::new(SeededRandom::new(1)))
    });
    let stored = || {
        let mut pods = informer.store().list();
        pods.sort_by(|a, b| a.key.cmp(&b.key));
        pods
    };
    let stop = CancellationToken::new();
    let check = async {
        informer.wait_for_sync(&stop).await;
        let before = stored();
        assert_eq!(before.len(), 2);
        let mut relist = Box::pin(informer.relist());
        while (&mut relist).now_or_never().is_none() {
            let now = stored();
            assert!(now.len() == 2 && now.iter().zip(&before).all(|(now, before)| Arc::ptr_eq(now, before)));
            // The reflector waits for its back-off.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let after = stored();
        assert!(Arc::ptr_eq(&after[0], &before[1]));
        assert_eq!(&*after[1].key.name, "d");
        assert_eq!(server.requests().len(), 6);
        stop.cancel();
    };
    tokio::join!(informer.run(stop.clone()), check);
}

/// Counts the objects of a list.
#[derive(Default)]
struct Count(usize);

impl ListSink<Pod> for Count {
    fn add(&mut self, _: Pod) {
        self.0 += 1;
    }

    fn add_undecodable(&mut self, _: Undecodable) {}

    fn clear(&mut self) {
        self.0 = 0;
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_decoded_before_the_list_is_complete() {
    let server = Server::new([(start_of_list(&["a", "b"]), End::Silent)]);
    let (source, options) = (server.pods(true).list_watch(ListParams::default()), ListOptions::default());
    let mut count = Count::default();
    let list = source.list_into(&options, &mut count);
    assert!(tokio::time::timeout(std::time::Duration::from_secs(1), list).await.is_err());
    assert_eq!(count.0, 2);
}

/// A list that has arrived is not decoded in one go.
#[tokio::test(start_paused = true)]
async fn other_tasks_run_between_objects() {
    const PODS: usize = 5_000;
    let names: Vec<_> = (0..PODS).map(|n| format!("pod-{n}")).collect();
    let server =
        Server::new([(list(&names.iter().map(|name| &**name).collect::<Vec<_>>(), ""), End::Complete)]);
    let source = server.pods(true).list_watch(ListParams::default());
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let mut count = Count::default();
    source.list_into(&ListOptions::default(), &mut count).await.unwrap();
    other.abort();
    assert_eq!(count.0, PODS);
    assert!(turns.load(Ordering::Relaxed) > PODS / 200, "{turns:?}");
}

/// Pods in protobuf are cut at each place.
#[tokio::test(start_paused = true)]
async fn cut_list_in_protobuf_starts_over() {
    let mut list =
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": []});
    list["items"] = ["a", "b"].map(|name| pod(name, "1")).into_iter().collect();
    let list = encode(&list).unwrap();
    assert!(open_envelope(&list).is_ok());
    let calls = Arc::new(AtomicUsize::new(0));
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let (bytes, requests) = (list.clone(), Arc::clone(&calls));
    // Every second request is answered with the whole list.
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let call = requests.fetch_add(1, Ordering::Relaxed);
        let (end, cut) = if call % 2 == 0 { (call / 2, true) } else { (bytes.len(), false) };
        let mut frames = vec![Ok(Frame::data(Bytes::copy_from_slice(&bytes[..end])))];
        frames.extend(cut.then(|| Err(io::Error::from(io::ErrorKind::ConnectionReset))));
        let answer = Response::new(StreamBody::new(stream::iter(frames)));
        async move { Ok::<_, Infallible>(answer) }
    });
    let options = ClientOptions::new(UserAgent::new("cut-lists", "v1", "abc"), clock);
    let pods = ClientFactory::in_process(service, options).client("test", RateLimit::UNLIMITED).api::<Pod>();
    for _ in 0..list.len() {
        let list = pods.list(&cached()).await.unwrap();
        assert_eq!((names(&list.items), &*list.resource_version), (vec!["a", "b"], "9"));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2 * list.len());
}
