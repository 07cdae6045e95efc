//! Clients that use HTTP/2.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    sync::Arc,
    time::Duration,
};

use kcm_clock::Clock as _;
use rustls::{ClientConfig, Error};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::{
    Target,
    frames::{self, CANCEL, CONTINUATION, NO_WINDOW, PREFACE, RST_STREAM, SETTINGS},
    tls,
};

/// Bytes of large headers, below the limit of 1 MiB of Go's server.
const LARGE: usize = 1_000_000;
/// Time after which large headers end.
const ENDS_AFTER: Duration = Duration::from_secs(5);
/// Bytes of headers of a large stream.
const STREAM: usize = 60_000;
/// Time after which frames are sent again.
const TOKENS: Duration = Duration::from_secs(2);
const FLOOD: Duration = Duration::from_millis(50);
/// Time limit of a connection.
const HELD: Duration = Duration::from_secs(60);

type Read = ReadHalf<TlsStream<TcpStream>>;
type Write = WriteHalf<TlsStream<TcpStream>>;

/// Connection that sends bytes of frames.
struct Connection {
    target: Target,
    write: Write,
    read: Option<Read>,
    /// Identifier of the next stream.
    next: u32,
}

impl Connection {
    async fn open(target: &Target, config: &Arc<ClientConfig>, settings: &[u8]) -> io::Result<Self> {
        Self::open_over(target, target.connect().await?, config, settings).await
    }

    async fn open_over(
        target: &Target,
        stream: TcpStream,
        config: &Arc<ClientConfig>,
        settings: &[u8],
    ) -> io::Result<Self> {
        let (read, write) = tokio::io::split(target.tls_over(stream, config).await?);
        let mut connection = Self { target: target.clone(), write, read: Some(read), next: 1 };
        let mut out = PREFACE.to_vec();
        frames::frame(&mut out, SETTINGS, 0, 0, settings);
        connection.send(&out).await?;
        Ok(connection)
    }

    fn stream(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write.write_all(bytes).await?;
        self.write.flush().await?;
        self.target.sent(bytes.len());
        Ok(())
    }

    /// Sends what `write` returns in an interval, until the server closes the connection.
    async fn repeat(
        mut self,
        interval: Duration,
        mut next: impl FnMut(&mut Self) -> Vec<u8>,
    ) -> io::Result<()> {
        let read = self.read.take();
        let send = async {
            loop {
                let bytes = next(&mut self);
                self.send(&bytes).await?;
                self.target.clock.sleep(interval).await;
            }
        };
        match read {
            Some(read) => tokio::select! { ended = send => ended, ended = drain(read) => ended },
            None => send.await,
        }
    }

    /// Reads for some time, or until the server closes the connection.
    async fn read_for(&mut self, time: Duration) -> io::Result<()> {
        let Some(read) = self.read.take() else { return Ok(()) };
        tokio::time::timeout(time, drain(read)).await.unwrap_or(Ok(()))
    }
}

/// Reads until the server closes the connection, which is an error.
async fn drain(mut read: Read) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    while read.read(&mut buffer).await? > 0 {}
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server"))
}

/// Headers of a request for the metrics with a random token.
fn random_request(padding: usize) -> Vec<u8> {
    let token = RandomState::new().hash_one(0);
    let mut block = frames::get("/metrics");
    frames::header(&mut block, "authorization", format!("Bearer {token:016x}").as_bytes());
    frames::pad(&mut block, padding);
    block
}

/// Sends requests with large headers, in turns HTTP/1.1 and HTTP/2.
pub(super) async fn large_headers(target: Target) -> Result<(), Error> {
    let (h1, h2) = (tls::config("http/1.1", None)?, tls::config("h2", None)?);
    let exchange = |number: u32| {
        let (target, h1, h2) = (target.clone(), Arc::clone(&h1), Arc::clone(&h2));
        async move {
            if number.is_multiple_of(2) {
                large_http1(&target, &h1).await
            } else {
                large_http2(&target, &h2).await
            }
        }
    };
    target.at_rate(20, 100, exchange).await;
    Ok(())
}

async fn large_http1(target: &Target, config: &Arc<ClientConfig>) -> io::Result<()> {
    let mut request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n".to_owned();
    let value = "x".repeat(4000);
    for number in 0..LARGE / value.len() {
        request += &format!("x-{number}: {value}\r\n");
    }
    let mut stream = target.tls(config).await?;
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    target.sent(request.len());
    target.clock.sleep(ENDS_AFTER).await;
    stream.write_all(b"\r\n").await?;
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

async fn large_http2(target: &Target, config: &Arc<ClientConfig>) -> io::Result<()> {
    let mut connection = Connection::open(target, config, &[]).await?;
    let mut block = frames::get("/healthz");
    frames::pad(&mut block, LARGE);
    let (mut out, stream) = (Vec::new(), connection.stream());
    frames::headers(&mut out, stream, &block, false);
    connection.send(&out).await?;
    target.clock.sleep(ENDS_AFTER).await;
    out.clear();
    frames::end_of_headers(&mut out, stream);
    connection.send(&out).await?;
    connection.read_for(Duration::from_secs(1)).await
}

/// Sends many streams with large headers, and random tokens.
pub(super) async fn large_streams(target: Target) -> Result<(), Error> {
    let config = tls::config("h2", None)?;
    let copy = target.clone();
    let exchange = move |_| {
        let (target, config) = (copy.clone(), Arc::clone(&config));
        async move {
            let mut connection = Connection::open(&target, &config, &[]).await?;
            let mut out = Vec::new();
            for _ in 0..100 {
                frames::headers(&mut out, connection.stream(), &random_request(STREAM), true);
            }
            connection.send(&out).await?;
            connection.read_for(ENDS_AFTER).await
        }
    };
    target.keep(50, exchange).await;
    Ok(())
}

/// Sends requests with random tokens on many connections.
pub(super) async fn random_tokens(target: Target) -> Result<(), Error> {
    repeat(target, 200, TOKENS, true, |connection| {
        let mut out = Vec::new();
        for _ in 0..10 {
            frames::headers(&mut out, connection.stream(), &random_request(0), true);
        }
        out
    })
    .await
}

/// Sends requests and resets them.
pub(super) async fn rapid_reset(target: Target) -> Result<(), Error> {
    let request = frames::get("/healthz");
    repeat(target, 10, FLOOD, true, move |connection| {
        let mut out = Vec::new();
        for _ in 0..100 {
            let stream = connection.stream();
            frames::headers(&mut out, stream, &request, true);
            frames::frame(&mut out, RST_STREAM, 0, stream, &CANCEL);
        }
        out
    })
    .await
}

/// Sends headers without an end.
pub(super) async fn continuation(target: Target) -> Result<(), Error> {
    let request = frames::get("/healthz");
    let mut part = Vec::new();
    frames::header(&mut part, "x", &[b'x'; 1000]);
    repeat(target, 10, FLOOD, true, move |connection| {
        let mut out = Vec::new();
        if connection.next == 1 {
            frames::headers(&mut out, connection.stream(), &request, false);
        }
        for _ in 0..50 {
            frames::frame(&mut out, CONTINUATION, 0, 1, &part);
            frames::frame(&mut out, CONTINUATION, 0, 1, &[]);
        }
        out
    })
    .await
}

/// Sends frames that are to be acknowledged, and does not read.
pub(super) async fn control(target: Target, kind: u8) -> Result<(), Error> {
    let payload: &[u8] = if kind == SETTINGS { &[0, 4, 0, 1, 0, 0] } else { &[0; 8] };
    repeat(target, 10, FLOOD, false, move |_| {
        let mut out = Vec::new();
        for _ in 0..1000 {
            frames::frame(&mut out, kind, 0, 0, payload);
        }
        out
    })
    .await
}

/// Requests responses that cannot be sent.
pub(super) async fn zero_windows(target: Target) -> Result<(), Error> {
    without_windows(target, 50, frames::get("/healthz?verbose")).await
}

/// Requests metrics that cannot be sent.
pub(super) async fn unread_scrapes(target: Target) -> Result<(), Error> {
    let mut request = frames::get("/metrics");
    frames::header(&mut request, "authorization", format!("Bearer {}", target.token).as_bytes());
    without_windows(target, 25, request).await
}

/// Sends a request on 100 streams of each connection, with windows of 0.
async fn without_windows(target: Target, connections: u32, request: Vec<u8>) -> Result<(), Error> {
    let config = tls::config("h2", None)?;
    let copy = target.clone();
    let exchange = move |_| {
        let (target, config, request) = (copy.clone(), Arc::clone(&config), request.clone());
        async move {
            let mut connection = Connection::open(&target, &config, &NO_WINDOW).await?;
            let mut out = Vec::new();
            for _ in 0..100 {
                frames::headers(&mut out, connection.stream(), &request, true);
            }
            connection.send(&out).await?;
            connection.read_for(HELD).await
        }
    };
    target.keep(connections, exchange).await;
    Ok(())
}

/// Keeps connections on which `next` is sent in an interval.
async fn repeat(
    target: Target,
    connections: u32,
    interval: Duration,
    reads: bool,
    next: impl FnMut(&mut Connection) -> Vec<u8> + Clone + Send + Sync + 'static,
) -> Result<(), Error> {
    let config = tls::config("h2", None)?;
    let copy = target.clone();
    let exchange = move |_| {
        let (target, config, next) = (copy.clone(), Arc::clone(&config), next.clone());
        async move {
            let connection = if reads {
                Connection::open(&target, &config, &[]).await?
            } else {
                let stream = target.connect_without_buffer().await?;
                let connection = Connection::open_over(&target, stream, &config, &[]).await?;
                Connection { read: None, ..connection }
            };
            connection.repeat(interval, next).await
        }
    };
    target.keep(connections, exchange).await;
    Ok(())
}
