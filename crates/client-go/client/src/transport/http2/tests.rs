use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use h2::server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::JoinHandle,
};

use super::*;

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
    let (sender, driver) = Http2Sender::open(Box::new(io)).await.unwrap();
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
    let (mut sender, driver) = Http2Sender::open(Box::new(io)).await.unwrap();
    let start = tokio::time::Instant::now();
    let driver = tokio::spawn(driver);
    assert!(matches!(sender.send(request(vec![1])).await, Err(SendFailure::Broken(_))));
    driver.await.unwrap();
    assert_eq!(start.elapsed(), PING_INTERVAL + PING_TIMEOUT);
    assert!(sender.is_closed());
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_kept() {
    let (sender, driver, _) = open().await;
    tokio::time::sleep(10 * PING_INTERVAL).await;
    assert!(!driver.is_finished());
    answer(&sender, vec![1]).await;
}

#[tokio::test]
async fn request_that_the_server_does_not_process_is_returned() {
    let (io, mut peer) = duplex(1 << 20);
    peer.write_all(SETTINGS).await.unwrap();
    let (mut sender, driver) = Http2Sender::open(Box::new(io)).await.unwrap();
    tokio::spawn(driver);
    let server = tokio::spawn(async move {
        let mut bytes = [0; 1 << 10];
        while !bytes.ends_with(b"body") {
            let read = peer.read(&mut bytes).await.unwrap();
            bytes[..].rotate_left(read);
        }
        // GOAWAY without error. No stream was processed.
        peer.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
        peer
    });
    let Err(SendFailure::NotSent(unsent)) = sender.send(request(b"body".to_vec())).await else {
        panic!("the request was not returned");
    };
    assert_eq!(unsent.uri().path(), "/path");
    assert_eq!(unsent.into_body().collect_bytes().await.unwrap(), &b"body"[..]);
    assert!(sender.is_closed());
    server.await.unwrap();
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
    let (mut sender, driver) = Http2Sender::open(Box::new(Failing(io))).await.unwrap();
    let driver = tokio::spawn(driver);
    let Err(SendFailure::Broken(error)) = sender.send(request(vec![0; 200])).await else {
        panic!("the request did not fail");
    };
    assert!(error.to_string().contains("fenced"), "{error}");
    driver.await.unwrap();
}
