//! Clients that use TLS and HTTP/1.1.

use std::{io, sync::Arc, time::Duration};

use kcm_clock::Clock as _;
use rustls::Error;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{
    Target,
    tls::{self, Chain},
};

/// Request that a probe sends.
const PROBE: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
/// Time limit of a response.
const RESPONSE: Duration = Duration::from_secs(60);
/// Connections of [`bytes`], one half of them each.
const SLOW: u32 = 800;
/// Connections of [`unread_scrapes`].
const SCRAPES: u32 = 25;
/// Requests on each of them, more than fit into the buffers of the sockets.
const PIPELINED: usize = 100;

/// Presents a chain and sends a request, ten times a second.
pub(super) async fn chain(target: Target, chain: &Chain) -> Result<(), Error> {
    let (certificates, key) = chain;
    let config = tls::config("http/1.1", Some((certificates.clone(), key.clone_key())))?;
    let exchange = |_| {
        let (target, config) = (target.clone(), Arc::clone(&config));
        async move {
            let mut stream = target.tls(&config).await?;
            stream.write_all(PROBE).await?;
            target.sent(PROBE.len());
            tokio::time::timeout(RESPONSE, stream.read_to_end(&mut Vec::new())).await??;
            Ok(())
        }
    };
    target.at_rate(10, 10, exchange).await;
    Ok(())
}

/// Makes 1,000 handshakes a second.
pub(super) async fn handshakes(target: Target) -> Result<(), Error> {
    let config = tls::config("http/1.1", None)?;
    let exchange = |_| {
        let (target, config) = (target.clone(), Arc::clone(&config));
        async move { target.tls(&config).await.map(drop) }
    };
    target.at_rate(1000, 200, exchange).await;
    Ok(())
}

/// Sends a byte a second on many connections.
pub(super) async fn bytes(target: Target) -> Result<(), Error> {
    let config = tls::config("http/1.1", None)?;
    let copy = target.clone();
    let exchange = move |index: u32| {
        let (target, config) = (copy.clone(), Arc::clone(&config));
        async move {
            if index.is_multiple_of(2) {
                return trickle(&target, target.connect().await?, tls::client_hello(&config)?).await;
            }
            let mut stream = target.tls(&config).await?;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ").await?;
            trickle(&target, stream, vec![b'x'; 1000]).await
        }
    };
    target.keep(SLOW, exchange).await;
    Ok(())
}

async fn trickle(target: &Target, mut stream: impl AsyncWrite + Unpin, bytes: Vec<u8>) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(&[byte]).await?;
        stream.flush().await?;
        target.sent(1);
        target.clock.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Requests the metrics and does not read them.
pub(super) async fn unread_scrapes(target: Target) -> Result<(), Error> {
    let config = tls::config("http/1.1", None)?;
    let copy = target.clone();
    let exchange = move |_| {
        let (target, config) = (copy.clone(), Arc::clone(&config));
        async move {
            let stream = target.connect_without_buffer().await?;
            let mut stream = target.tls_over(stream, &config).await?;
            let token = &target.token;
            let request =
                format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
            let request = request.repeat(PIPELINED);
            stream.write_all(request.as_bytes()).await?;
            stream.flush().await?;
            target.sent(request.len());
            target.clock.sleep(RESPONSE).await;
            drop(stream);
            Ok(())
        }
    };
    target.keep(SCRAPES, exchange).await;
    Ok(())
}
