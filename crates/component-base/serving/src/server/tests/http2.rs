//! Clients that send frames of HTTP/2 without pause, or that read nothing. Probes must still get responses.

use std::{future::pending, time::Duration};

use kcm_clock::Clock as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    step_until,
    world::{Client, Setup, World},
};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// GET of a path, in HPACK without a table.
pub(super) fn get(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    [&[0x82, 0x87, 0x04, length], path.as_bytes(), b"\x01\x01x"].concat()
}

pub(super) fn header(name: &str, value: &str) -> Vec<u8> {
    let [name_length, value_length] = [name, value].map(|text| u8::try_from(text.len()).unwrap());
    [&[0, name_length], name.as_bytes(), &[value_length], value.as_bytes()].concat()
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Frames that a client sends: `first`, then those of `next` without end. The argument of `next` is the id of a stream.
struct Flood {
    first: Vec<u8>,
    next: fn(u32) -> Vec<u8>,
    is_read: bool,
}

impl Flood {
    /// Sends the frames until the server closes the connection. Returns the number of calls of `next`.
    async fn send(&self, world: &World) -> u32 {
        let stream = Client::default().connect(world.address, "localhost").await.unwrap();
        let (mut read, mut write) = tokio::io::split(stream);
        let drain = async {
            if !self.is_read {
                pending::<()>().await;
            }
            while read.read(&mut [0; 4096]).await.is_ok_and(|length| length > 0) {}
        };
        let mut sent = 0;
        let send = async {
            let _ = write.write_all(&[PREFACE, &self.first].concat()).await;
            loop {
                if write.write_all(&(self.next)(2 * sent + 1)).await.is_err() {
                    return;
                }
                sent += 1;
                if sent % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::select! {
            () = drain => {}
            () = send => {}
        }
        sent
    }
}

fn flood(next: fn(u32) -> Vec<u8>) -> Flood {
    Flood { first: frame(SETTINGS, 0, 0, &[]), next, is_read: true }
}

/// Sends the frames from many clients, again and again, and meanwhile probes.
async fn assert_probes_succeed(flood: Flood) {
    let world = Setup::new().start().await;
    let probes = async {
        for probe in 0..10 {
            let client = Client { is_http1: probe % 2 == 0, ..Client::default() };
            assert_eq!(client.get(&world, "/healthz").await.body, "ok", "probe {probe}");
        }
    };
    let clients = (0..20).map(|_| async {
        loop {
            flood.send(&world).await;
        }
    });
    tokio::select! {
        _ = futures_util::future::join_all(clients) => {}
        () = probes => {}
    }
}

/// Number of repetitions after which the server closes the connection.
async fn repetitions(flood: Flood) -> u32 {
    let world = Setup::new().start().await;
    flood.send(&world).await
}

fn ping(_: u32) -> Vec<u8> {
    frame(PING, 0, 0, &[0; 8]).repeat(100)
}

fn reset_with_token(stream: u32) -> Vec<u8> {
    let headers = [get("/metrics"), header("authorization", &format!("Bearer {stream}"))].concat();
    [frame(HEADERS, END_STREAM | END_HEADERS, stream, &headers), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])]
        .concat()
}

#[tokio::test]
async fn pings() {
    assert_probes_succeed(flood(ping)).await;
    assert_probes_succeed(flood(|_| frame(PING, ACK, 0, &[0; 8]).repeat(100))).await;
}

#[tokio::test]
async fn pings_without_reading_the_answers() {
    assert_probes_succeed(Flood { is_read: false, ..flood(ping) }).await;
}

#[tokio::test]
async fn settings() {
    let window = |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).repeat(100);
    assert_probes_succeed(flood(window)).await;
    assert_probes_succeed(Flood { is_read: false, ..flood(window) }).await;
}

#[tokio::test]
async fn continuations_end_the_connection() {
    let continuations = Flood {
        first: [frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_STREAM, 1, &get("/healthz"))].concat(),
        next: |_| frame(CONTINUATION, 0, 1, &header("x", "y")),
        is_read: true,
    };
    assert!(repetitions(continuations).await < 200);
}

#[tokio::test]
async fn resets_end_the_connection() {
    for next in [reset_with_token, |stream| {
        let headers = frame(HEADERS, END_STREAM | END_HEADERS, stream, &get("/healthz"));
        [headers, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    }] {
        let sent = repetitions(flood(next)).await;
        assert!(sent < 500, "{sent}");
    }
    assert_probes_succeed(flood(reset_with_token)).await;
}

#[tokio::test]
async fn streams_beyond_the_limit_end_the_connection() {
    // Requests that the client does not complete.
    let sent = repetitions(flood(|stream| frame(HEADERS, END_HEADERS, stream, &get("/echo")))).await;
    assert!(sent < 500, "{sent}");
}

#[tokio::test]
async fn small_data_frames_end_the_connection() {
    let data = Flood {
        first: [frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS, 1, &get("/healthz"))].concat(),
        next: |_| frame(DATA, 0, 1, b"x"),
        is_read: true,
    };
    let sent = repetitions(data).await;
    assert!(sent < 70_000, "{sent}");
}

/// Reads to the end of the connection.
async fn ended(mut stream: impl AsyncRead + Unpin) {
    while stream.read(&mut [0; 4096]).await.is_ok_and(|length| length > 0) {}
}

#[tokio::test]
async fn responses_that_are_not_read_end_with_the_idle_timeout() {
    let world = Setup::new().start().await;
    let start = world.clock.monotonic();
    let send = async |mut stream: Box<dyn Connection>, bytes: &[u8]| {
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    // A window of zero: the server sends the headers of the responses and no body.
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let requests: Vec<_> = (0..10)
        .flat_map(|at| frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &get("/healthz")))
        .collect();
    let client = Client::default().connect(world.address, "localhost").await.unwrap();
    let http2 = send(Box::new(client), &[PREFACE, &no_window, &requests].concat()).await;
    // A scrape.
    let client = Client { is_http1: true, ..Client::default() };
    let client = client.connect(world.address, "localhost").await.unwrap();
    let scrape = "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n".repeat(100);
    let http1 = send(Box::new(client), scrape.as_bytes()).await;
    let ends = async { tokio::join!(ended(http2), ended(http1)) };
    step_until(&world, Duration::from_millis(100), ends).await;
    assert!(world.clock.monotonic() - start < Duration::from_secs(600));
    assert_eq!(Client::default().get(&world, "/healthz").await.body, "ok");
}

trait Connection: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection for T {}
