use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use h2::server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::JoinHandle,
    time::Instant,
};

use super::{
    super::liveness::{AWAITED_PING_AFTER, PING_AFTER, PING_TIMEOUT, SUSPECT_AFTER},
    *,
};

/// The frame of a server's default settings.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Byte stream that counts the writes to it.
struct Counted {
    io: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, to)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

fn request(body: Vec<u8>) -> Box<Request<Body>> {
    Box::new(Request::post("https://server/path").body(body.into()).unwrap())
}

/// Answers requests with their bodies.
async fn echo(io: DuplexStream) {
    let mut connection = server::handshake(io).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut answer = respond.send_response(Response::new(()), false).unwrap();
            while let Some(Ok(data)) = poll_fn(|cx| poll_data(&mut body, cx)).await {
                answer.send_data(data, false).unwrap();
            }
            answer.send_data(Bytes::new(), true).unwrap();
        });
    }
}

/// A connection to [`echo`], its driver and the number of its writes.
async fn open() -> (Http2Sender, JoinHandle<()>, Arc<AtomicUsize>) {
    let (io, peer) = duplex(1 << 20);
    tokio::spawn(echo(peer));
    let writes = Arc::new(AtomicUsize::new(0));
    let io = Counted { io, writes: Arc::clone(&writes) };
    let (sender, driver) = Http2Sender::open(Box::new(io), PingTrigger::default()).await.unwrap();
    (sender, tokio::spawn(driver), writes)
}

async fn answer(sender: &Http2Sender, body: Vec<u8>) -> Vec<u8> {
    let Ok(answer) = sender.clone().send(request(body)).await else { panic!("no answer") };
    let (mut from, mut read) = (answer.into_body(), Vec::new());
    while let Some(data) = poll_fn(|cx| poll_data(&mut from, cx)).await {
        read.extend(data.unwrap());
    }
    read
}

#[tokio::test]
async fn requests_of_one_turn_are_written_at_once() {
    let (sender, _driver, writes) = open().await;
    answer(&sender, vec![0; 100]).await;
    let before = writes.load(Ordering::Relaxed);
    let bodies: Vec<_> = (0..10).map(|i| vec![i; 1200]).collect();
    let answers = join_all(bodies.iter().cloned().map(|body| answer(&sender, body))).await;
    assert_eq!(answers, bodies);
    assert_eq!(writes.load(Ordering::Relaxed) - before, 1);
}

#[tokio::test]
async fn bodies_beyond_all_buffers_are_complete() {
    let (sender, _driver, _) = open().await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    assert!(answer(&sender, body.clone()).await == body);
}

#[tokio::test]
async fn connection_is_closed_after_the_last_sender() {
    let (sender, driver, _) = open().await;
    answer(&sender, Vec::new()).await;
    let clone = sender.clone();
    drop(sender);
    answer(&clone, Vec::new()).await;
    drop(clone);
    driver.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_closed() {
    let (io, mut peer) = duplex(1 << 20);
    peer.write_all(SETTINGS).await.unwrap();
    let (mut sender, driver) = Http2Sender::open(Box::new(io), PingTrigger::default()).await.unwrap();
    let start = Instant::now();
    let driver = tokio::spawn(driver);
    assert!(matches!(sender.send(request(vec![1])).await, Err(SendFailure::Broken(_))));
    driver.await.unwrap();
    assert_eq!(start.elapsed(), AWAITED_PING_AFTER + PING_TIMEOUT);
    assert!(sender.is_closed());
}

/// A PING frame of a server.
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// On a slow network, the answer to a ping comes after the data that the server has sent before.
#[tokio::test(start_paused = true)]
async fn any_byte_answers_a_ping() {
    let (io, mut peer) = duplex(1 << 20);
    peer.write_all(SETTINGS).await.unwrap();
    let (sender, driver) = Http2Sender::open(Box::new(io), PingTrigger::default()).await.unwrap();
    let driver = tokio::spawn(driver);
    for pause in [29, 29, 44, 14, 14, 14] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        peer.write_all(PING).await.unwrap();
    }
    assert!(!driver.is_finished());
    let start = Instant::now();
    driver.await.unwrap();
    assert_eq!(start.elapsed(), PING_TIMEOUT);
    drop(sender);
}

/// Waits until `sender` is suspect or not.
async fn until_suspect(sender: &Http2Sender, is_suspect: bool) -> Duration {
    let start = Instant::now();
    while sender.is_suspect() != is_suspect {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_suspect_before_it_is_closed() {
    let (io, mut peer) = duplex(1 << 20);
    peer.write_all(SETTINGS).await.unwrap();
    let (sender, driver) = Http2Sender::open(Box::new(io), PingTrigger::default()).await.unwrap();
    tokio::spawn(driver);
    let suspect = PING_AFTER + SUSPECT_AFTER;
    assert!((suspect..suspect + Duration::from_secs(1)).contains(&until_suspect(&sender, true).await));
    peer.write_all(PING).await.unwrap();
    assert!(until_suspect(&sender, false).await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn connection_is_suspect_after_a_request_without_an_answer() {
    let (io, mut peer) = duplex(1 << 20);
    peer.write_all(SETTINGS).await.unwrap();
    let (sender, driver) = Http2Sender::open(Box::new(io), PingTrigger::default()).await.unwrap();
    tokio::spawn(driver);
    for (patience, is_suspect) in [(SUSPECT_AFTER / 2, false), (SUSPECT_AFTER, true)] {
        let mut sender = sender.clone();
        tokio::time::timeout(patience, sender.send(request(vec![1]))).await.err().unwrap();
        assert_eq!(sender.is_suspect(), is_suspect);
    }
    // Without an answer to the ping that follows, it is closed.
    let mut closed = sender.clone();
    let start = Instant::now();
    while !closed.is_closed() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(start.elapsed() <= PING_TIMEOUT + Duration::from_secs(1), "{:?}", start.elapsed());
}

/// A request without an answer makes the connection of watches send a ping.
#[tokio::test(start_paused = true)]
async fn suspect_connection_makes_others_send_pings() {
    let pings = PingTrigger::default();
    let mut peers = Vec::new();
    let mut open = async || {
        let (io, mut peer) = duplex(1 << 20);
        peer.write_all(SETTINGS).await.unwrap();
        peers.push(peer);
        let (sender, driver) = Http2Sender::open(Box::new(io), pings.clone()).await.unwrap();
        (sender, tokio::spawn(driver))
    };
    let (mut asked, _asked) = open().await;
    let (_silent, silent) = open().await;
    tokio::time::timeout(SUSPECT_AFTER, asked.send(request(vec![1]))).await.err().unwrap();
    let start = Instant::now();
    silent.await.unwrap();
    assert_eq!(start.elapsed(), PING_TIMEOUT);
}

/// A server that is alive answers the ping, after which the connection is used again.
#[tokio::test(start_paused = true)]
async fn connection_is_used_again_after_an_answered_ping() {
    let (io, peer) = duplex(1 << 20);
    tokio::spawn(async move {
        let mut connection = server::handshake(peer).await.unwrap();
        let mut held = Vec::new();
        while let Some(Ok(request)) = connection.accept().await {
            held.push(request);
        }
    });
    let (sender, driver) = Http2Sender::open(Box::new(io), PingTrigger::default()).await.unwrap();
    tokio::spawn(driver);
    let mut held = sender.clone();
    tokio::time::timeout(SUSPECT_AFTER, held.send(request(vec![1]))).await.err().unwrap();
    assert!(sender.is_suspect());
    assert!(until_suspect(&sender, false).await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_kept() {
    let (sender, driver, _) = open().await;
    tokio::time::sleep(10 * PING_AFTER).await;
    assert!(!driver.is_finished());
    answer(&sender, vec![1]).await;
}

/// Result of a first request that the server answers with `frame`.
async fn answered_with(frame: &'static [u8]) -> (Http2Sender, SendFailure) {
    let (io, mut peer) = duplex(1 << 20);
    peer.write_all(SETTINGS).await.unwrap();
    let (mut sender, driver) = Http2Sender::open(Box::new(io), PingTrigger::default()).await.unwrap();
    tokio::spawn(driver);
    let server = tokio::spawn(async move {
        let mut bytes = [0; 1 << 10];
        while !bytes.ends_with(b"body") {
            let read = peer.read(&mut bytes).await.unwrap();
            bytes[..].rotate_left(read);
        }
        peer.write_all(frame).await.unwrap();
        peer
    });
    let failure = sender.send(request(b"body".to_vec())).await.err().unwrap();
    server.await.unwrap();
    (sender, failure)
}

async fn assert_is_whole(unsent: Box<Request<Body>>) {
    assert_eq!(unsent.uri().path(), "/path");
    assert_eq!(unsent.into_body().collect().await.unwrap().to_bytes(), &b"body"[..]);
}

#[tokio::test]
async fn request_that_the_server_does_not_process_is_returned() {
    // GOAWAY without error. No stream was processed.
    let (mut sender, failure) = answered_with(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    let SendFailure::NotSent(unsent) = failure else { panic!("the request was not returned") };
    assert_is_whole(unsent).await;
    assert!(sender.is_closed());
    // RST_STREAM with REFUSED_STREAM.
    let (mut sender, failure) = answered_with(&[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7]).await;
    let SendFailure::Refused(unsent) = failure else { panic!("the request was not returned") };
    assert_is_whole(unsent).await;
    assert!(!sender.is_closed());
}

/// The next connection would end likewise.
#[tokio::test]
async fn error_of_the_connection_in_answer_to_its_first_request_is_final() {
    // GOAWAY with ENHANCE_YOUR_CALM. No stream was processed.
    let (_, failure) = answered_with(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]).await;
    assert!(matches!(failure, SendFailure::Broken(_)));
}

#[tokio::test]
async fn error_of_a_write_reaches_the_requests() {
    struct Failing(DuplexStream);
    impl AsyncRead for Failing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, to)
        }
    }
    impl AsyncWrite for Failing {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            // The preface and the settings fit.
            if bytes.len() > 100 {
                Poll::Ready(Err(io::Error::other("fenced")))
            } else {
                Poll::Ready(Ok(bytes.len()))
            }
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let (io, mut peer) = duplex(1 << 20);
    peer.write_all(SETTINGS).await.unwrap();
    let (mut sender, driver) =
        Http2Sender::open(Box::new(Failing(io)), PingTrigger::default()).await.unwrap();
    let driver = tokio::spawn(driver);
    let Err(SendFailure::Broken(error)) = sender.send(request(vec![0; 200])).await else {
        panic!("the request did not fail");
    };
    assert!(error.to_string().contains("fenced"), "{error}");
    driver.await.unwrap();
}
