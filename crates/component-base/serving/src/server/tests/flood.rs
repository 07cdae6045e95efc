//! Clients that open many connections and complete no request on them. Probes must still get responses.
//!
//! The server's clock is stepped each time that the test's task yields, and at most [`SPEED`] times as fast as real
//! time, so the outcome does not depend on the speed of the machine.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kcm_clock::{Clock as _, RealClock};
use kcm_testkit::FakeResponse;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use super::{
    super::limiter::MAX_CONNECTIONS,
    hurry,
    world::{Client, Setup, World, ordinary},
};

const CONNECTIONS: usize = 1000;
const PROBES: u32 = 60;
/// Simulated time between probes. All probes together take 20 s.
const INTERVAL: Duration = Duration::from_millis(333);
/// Simulated time that passes at most each time that the test's task yields while a probe waits.
const STEP: Duration = Duration::from_micros(100);
/// Simulated time per real time while a probe waits, at most. The kernel delivers a packet late on a busy machine, and
/// steps alone would take the connection's guaranteed time in a few milliseconds of it.
const SPEED: u32 = 4;
/// Simulated time between the end of a connection and the client's next one.
const RECONNECT: Duration = Duration::from_secs(15);

/// Part of a connection that the client does not complete.
#[derive(Clone)]
enum Incomplete {
    Handshake,
    /// These bytes are sent over HTTP/1.1, and nothing further.
    Http1(&'static str),
    /// A request over HTTP/2 without its body.
    Http2(Method, &'static str, Client),
}

impl Incomplete {
    /// Opens the connection and returns when the server has closed it.
    async fn open(self, address: SocketAddr) -> std::io::Result<()> {
        match self {
            Self::Handshake => read_to_end(TcpStream::connect(address).await?).await,
            Self::Http1(text) => {
                let client = Client { is_http1: true, ..Client::default() };
                let mut stream = client.connect(address, "localhost").await?;
                stream.write_all(text.as_bytes()).await?;
                stream.flush().await?;
                read_to_end(stream).await
            }
            Self::Http2(method, path, client) => {
                let stream = TokioIo::new(client.connect(address, "localhost").await?);
                let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
                let (mut send, connection) = handshake.await.map_err(std::io::Error::other)?;
                let frames = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
                let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
                for (name, value) in &client.headers {
                    request = request.header(*name, value);
                }
                let request = request.body(StreamBody::new(frames)).unwrap();
                let (_, ended) = tokio::join!(send.send_request(request), connection);
                ended.map_err(std::io::Error::other)
            }
        }
    }
}

async fn read_to_end(mut stream: impl tokio::io::AsyncRead + Unpin) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// A server with one path that takes a body, `/echo`, for alice.
async fn world() -> World {
    let setup = Setup::new();
    setup.api.set_handler(|request| {
        let allowed = request.json()["spec"]["user"] == "alice";
        match request.path().ends_with("subjectaccessreviews") {
            true => FakeResponse::new(201, json!({ "status": { "allowed": allowed } })),
            false => ordinary(request),
        }
    });
    setup.start().await
}

/// Raises the limit of open files and returns how many connections fit beside those of other tests.
fn connections() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A refusal leaves the limit as it was.
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.map_or(CONNECTIONS, |files| files as usize / 4);
    let connections = files.min(CONNECTIONS);
    assert!(connections > MAX_CONNECTIONS, "the limit of open files is too low: {limit:?}");
    connections
}

/// Opens [`CONNECTIONS`] connections again and again, and meanwhile sends [`PROBES`] probes in 20 s of simulated time.
async fn assert_probes_succeed(incomplete: Incomplete) {
    let (world, connections) = (world().await, connections());
    let closed = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (address, clock) = (world.address, world.clock.clone());
        let (incomplete, closed) = (incomplete.clone(), Arc::clone(&closed));
        clients.spawn(async move {
            loop {
                // Any end of a connection is accepted.
                let _ = incomplete.clone().open(address).await;
                closed.fetch_add(1, Ordering::Relaxed);
                clock.sleep(RECONNECT).await;
            }
        });
    }
    for probe in 0..PROBES {
        let client = Client { is_http1: probe % 2 == 0, ..Client::default() };
        let seen = until_answered(&world, client.get(&world, "/healthz")).await;
        assert_eq!((seen.status, seen.body.as_str()), (200, "ok"), "probe {probe}");
        hurry(&world, world.clock.sleep(INTERVAL)).await;
    }
    let closed = closed.load(Ordering::Relaxed);
    assert!(closed >= connections - MAX_CONNECTIONS, "{closed} of {connections} connections were closed");
}

/// Steps the clock until `probe` completes.
async fn until_answered<T>(world: &World, probe: impl Future<Output = T>) -> T {
    let mut probe = std::pin::pin!(probe);
    let (real, mut last) = (RealClock::new(), Duration::ZERO);
    loop {
        tokio::select! {
            biased;
            done = &mut probe => return done,
            () = tokio::task::yield_now() => {
                let now = real.monotonic();
                world.clock.step(STEP.min(now.saturating_sub(last) * SPEED));
                last = now;
            }
        }
    }
}

/// A client that sends requests without reading the responses gets one each time that all tasks have run.
#[tokio::test]
async fn pipelined_requests_are_answered_in_turn_with_others() {
    const SCRAPES: usize = 100;
    let world = world().await;
    let client = Client { is_http1: true, ..Client::with_token("good") };
    assert_eq!(client.get(&world, "/metrics").await.status, 200);
    let mut busy = client.connect(world.address, "localhost").await.unwrap();
    let scrape = "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n";
    busy.write_all(scrape.repeat(SCRAPES).as_bytes()).await.unwrap();
    busy.flush().await.unwrap();
    let (mut seen, mut most) = (1, 0);
    let all = async {
        while seen <= SCRAPES {
            tokio::task::yield_now().await;
            let scrapes = world.scrapes.load(Ordering::Relaxed);
            (seen, most) = (scrapes, most.max(scrapes - seen));
        }
    };
    // The connection has ended if not all of them are answered.
    let outcome = tokio::time::timeout(Duration::from_secs(60), all).await;
    assert!(outcome.is_ok(), "{seen} of {SCRAPES} requests were answered");
    assert!(most <= 2, "{most} at once");
}

#[tokio::test]
async fn handshakes() {
    assert_probes_succeed(Incomplete::Handshake).await;
}

#[tokio::test]
async fn headers() {
    assert_probes_succeed(Incomplete::Http1("GET /healthz HTTP/1.1\r\nHost:")).await;
}

#[tokio::test]
async fn bodies_of_a_probe() {
    let request = "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n";
    assert_probes_succeed(Incomplete::Http1(request)).await;
}

#[tokio::test]
async fn bodies_of_a_probe_over_http2() {
    assert_probes_succeed(Incomplete::Http2(Method::POST, "/healthz", Client::default())).await;
}

#[tokio::test]
async fn bodies_without_credentials() {
    let request = "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n";
    assert_probes_succeed(Incomplete::Http1(request)).await;
}

#[tokio::test]
async fn bodies_with_credentials() {
    let request = "PUT /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 1\r\n\r\n";
    assert_probes_succeed(Incomplete::Http1(request)).await;
}

#[tokio::test]
async fn bodies_with_credentials_over_http2() {
    assert_probes_succeed(Incomplete::Http2(Method::PUT, "/echo", Client::with_token("good"))).await;
}
