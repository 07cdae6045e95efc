//! Requests that wait for the review of their token, and responses that wait for their client, without an end.

use http::header;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kcm_testkit::FakeResponse;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    task::JoinSet,
};

use super::world::{Client, Setup, World, count, ordinary};

const STREAMS: usize = 10;

/// A server with an API server that does not respond to reviews of tokens.
pub(super) async fn world() -> World {
    let setup = Setup::new();
    setup.api.set_handler(|request| match request.path().ends_with("tokenreviews") {
        true => FakeResponse::pending(),
        false => ordinary(request),
    });
    setup.start().await
}

/// Clients whose requests wait.
struct Waiting {
    clients: JoinSet<()>,
    responses: mpsc::UnboundedReceiver<http::Response<hyper::body::Incoming>>,
    sender: mpsc::UnboundedSender<http::Response<hyper::body::Incoming>>,
}

impl Waiting {
    fn new() -> Self {
        let (sender, responses) = mpsc::unbounded_channel();
        Self { clients: JoinSet::new(), responses, sender }
    }

    /// Opens a connection and sends [`STREAMS`] requests on it.
    async fn connect(&mut self, world: &World, headers: impl Fn(usize) -> Vec<(String, String)>) {
        let stream = Client::default().connect(world.address, "localhost").await.unwrap();
        let (send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        self.clients.spawn(async move { drop(connection.await) });
        for stream in 0..STREAMS {
            let mut request = http::Request::get("https://localhost/metrics");
            for (name, value) in headers(stream) {
                request = request.header(name, value);
            }
            let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
            let (mut send, sender) = (send.clone(), self.sender.clone());
            self.clients.spawn(async move {
                if let Ok(response) = send.send_request(request).await {
                    let _ = sender.send(response);
                }
            });
        }
    }

    /// Opens connections until a request gets a response. Returns their number.
    async fn connect_until_refused(
        &mut self,
        world: &World,
        headers: impl Fn(usize, usize) -> Vec<(String, String)>,
    ) -> (usize, http::Response<hyper::body::Incoming>) {
        for connection in 0..200 {
            self.connect(world, |stream| headers(connection, stream)).await;
            // The requests of the connection arrive before those of a probe that starts now.
            assert_eq!(Client::default().get(world, "/healthz").await.body, "ok");
            if let Ok(response) = self.responses.try_recv() {
                return (connection, response);
            }
        }
        panic!("no request was refused");
    }
}

fn token(token: &str) -> (String, String) {
    ("authorization".to_owned(), format!("Bearer {token}"))
}

#[tokio::test]
async fn reviews_are_limited_and_probes_do_not_wait() {
    let world = world().await;
    let mut waiting = Waiting::new();
    let (connections, response) =
        waiting.connect_until_refused(&world, |at, stream| vec![token(&format!("{at}-{stream}"))]).await;
    assert_eq!((connections, response.status().as_u16()), (25, 429));
    assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-cache, private");
    assert_eq!(count(&world.api, "tokenreviews"), 256);
    for is_http1 in [false, true] {
        let client = Client { is_http1, ..Client::with_token("another") };
        let seen = client.get(&world, "/metrics").await;
        assert_eq!((seen.status, seen.body.as_str()), (429, "Too many requests, please try again later.\n"));
        let seen = Client { is_http1, ..Client::default() }.get(&world, "/healthz").await;
        assert_eq!((seen.status, seen.body.as_str()), (200, "ok"));
    }
    assert_eq!(Client::default().get(&world, "/metrics").await.status, 429, "authorization is reviewed too");
}

#[tokio::test]
async fn memory_is_limited_and_probes_do_not_wait() {
    let world = world().await;
    let mut waiting = Waiting::new();
    // Few bytes each, and many times as much memory. All requests wait for one review.
    let headers = |_, _| {
        let small = (0..400).map(|at| (format!("x{at}"), String::new()));
        small.chain([token("slow")]).collect()
    };
    let (connections, response) = waiting.connect_until_refused(&world, headers).await;
    assert!((20..60).contains(&connections), "{connections}");
    assert_eq!(response.status(), 429);
    assert_eq!(count(&world.api, "tokenreviews"), 1);
    // The end of a connection frees the memory.
    waiting.clients.shutdown().await;
    let mut waiting = Waiting::new();
    waiting.connect(&world, |stream| headers(0, stream)).await;
    assert_eq!(Client::default().get(&world, "/healthz").await.body, "ok");
    assert!(waiting.responses.try_recv().is_err());
}

#[tokio::test]
async fn memory_of_responses_is_limited() {
    let mut setup = Setup::new();
    setup.authorization.always_allow_paths.push("/large".to_owned());
    let world = setup.start().await;
    let client = Client { is_http1: true, ..Client::default() };
    let mut streams = Vec::new();
    let status = loop {
        let mut stream = client.connect(world.address, "localhost").await.unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        streams.push(stream);
        assert_eq!(client.get(&world, "/healthz").await.body, "ok");
        if !status.ends_with(b"200") {
            break status;
        }
    };
    assert_eq!((status.as_slice(), streams.len()), (&b"HTTP/1.1 429"[..], 2));
    drop(streams);
    while client.get(&world, "/large").await.status == 429 {}
}

#[tokio::test]
async fn headers_have_a_maximum_size() {
    let world = world().await;
    for is_http1 in [false, true] {
        for (size, expected) in [(15 * 1024, 200), (17 * 1024, 431), (40 * 1024, 431)] {
            let headers = vec![("x-large", "x".repeat(size))];
            let seen = Client { is_http1, headers, ..Client::default() }.get(&world, "/healthz").await;
            assert_eq!(seen.status, expected, "{size}");
        }
    }
}
