//! The service on a socket.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, Request, header, uri::Authority};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service, ServiceExt, service_fn};

use super::{
    answer,
    service::{ApiService, BrokenConnection},
};
use crate::{ApiStatus, Reason};

/// How long a client may take over the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves HTTP/1.1 and HTTP/2 (without TLS, by prior knowledge) on `listener` until `shutdown` is cancelled;
/// then ends every watch, lets requests under way finish, and returns.
///
/// A service without tokens lets in whoever can connect: bind it to loopback. It refuses requests that a browser
/// sends on behalf of another site, by their Host and Origin. One with tokens answers to any name.
///
/// # Cancel safety
///
/// Dropping the future closes the listener and leaves connections to end by themselves; watches go on until
/// their clients leave. Cancel `shutdown` instead.
pub async fn serve(listener: TcpListener, service: ApiService, shutdown: CancellationToken) {
    accept(listener, service, None, shutdown).await;
}

/// As [`serve`], over TLS. `tls` should offer `h2` and `http/1.1` by ALPN.
///
/// # Cancel safety
///
/// As [`serve`].
pub async fn serve_tls(
    listener: TcpListener,
    service: ApiService,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) {
    accept(listener, service, Some(TlsAcceptor::from(tls)), shutdown).await;
}

async fn accept(
    listener: TcpListener,
    service: ApiService,
    tls: Option<TlsAcceptor>,
    shutdown: CancellationToken,
) {
    let connections = GracefulShutdown::new();
    // Ends the watches when this future is dropped, too.
    let watches = shutdown.child_token();
    let _guard = watches.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or the peer was gone before it was accepted. Others may go on.
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::task::yield_now().await;
                continue;
            }
        };
        // Watch events are small and should not wait for more.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, %peer, "TCP_NODELAY cannot be set");
        }
        let max_streams = service.max_concurrent_streams();
        let service = guarded(service.clone(), watches.clone());
        // Taken before the handshake, so that a shutdown waits for what has been accepted.
        let watcher = connections.watcher();
        let tls = tls.clone();
        tokio::spawn(async move {
            let ended = match tls {
                None => converse(stream, service, max_streams, watcher).await,
                Some(tls) => match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, service, max_streams, watcher).await,
                    Ok(Err(error)) => Err(error.into()),
                    Err(elapsed) => Err(elapsed.into()),
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%error, %peer, "a connection ended badly");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// Serves one connection to its end.
async fn converse<I, S>(stream: I, service: S, max_streams: u32, watcher: Watcher) -> Result<(), BoxError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = http::Response<answer::ApiBody>, Error = BrokenConnection>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(max_streams);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    watcher.watch(connection.into_owned()).await
}

/// The service, for requests that come from here.
fn guarded(
    service: ApiService,
    watches: CancellationToken,
) -> impl Service<
    Request<Incoming>,
    Response = http::Response<answer::ApiBody>,
    Error = BrokenConnection,
    Future: Send,
> + Clone
+ Send
+ 'static {
    service_fn(move |mut request: Request<Incoming>| {
        let service = service.clone();
        let watches = watches.clone();
        async move {
            // Tokens are not sent along by a browser that does not know whom it talks to.
            if !service.has_tokens()
                && let Err(status) = check_origin(&request)
            {
                return Ok(answer::failure(&status));
            }
            request.extensions_mut().insert(watches);
            service.oneshot(request).await
        }
    })
}

/// Refuses requests that a page of another site had a browser make: one whose name was made to lead here has
/// that name for a Host, any other has it for an Origin.
fn check_origin<B>(request: &Request<B>) -> Result<(), ApiStatus> {
    let header = |name: header::HeaderName| text(request.headers(), name);
    let host = header(header::HOST).or_else(|| request.uri().authority().map(Authority::as_str));
    if let Some(host) = host.filter(|host| !is_local(host)) {
        let message = format!("the host {host:?} is not a name of this server: use localhost or 127.0.0.1");
        return Err(ApiStatus::new(Reason::Forbidden, message));
    }
    let origin = header(header::ORIGIN);
    let origin_host = origin.map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    if let Some(origin) = origin_host.filter(|host| !is_local(host)) {
        let message = format!("requests on behalf of {origin:?} are refused");
        return Err(ApiStatus::new(Reason::Forbidden, message));
    }
    Ok(())
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Whether `host`, with or without a port, is a name of the loopback interface.
fn is_local(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_the_loopback_interface_is_local() {
        for host in
            ["localhost", "localhost:8080", "127.0.0.1:1", "127.1.2.3", "[::1]:80", "[::1]", "LOCALHOST:1"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["example.com", "example.com:8080", "10.0.0.1:80", "localhost.example.com", "", "null", "[::2]:1"]
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn request_on_behalf_of_another_site_is_refused() {
        let request = |host: &str, origin: Option<&str>| {
            let mut request = Request::builder().uri("/api").header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            request.body(()).unwrap()
        };
        assert!(check_origin(&request("127.0.0.1:8080", None)).is_ok());
        assert!(check_origin(&request("127.0.0.1:8080", Some("http://localhost:8080"))).is_ok());
        assert_eq!(check_origin(&request("evil.example", None)).unwrap_err().code(), 403);
        assert_eq!(
            check_origin(&request("localhost", Some("https://evil.example"))).unwrap_err().code(),
            403
        );
        assert_eq!(check_origin(&request("localhost", Some("null"))).unwrap_err().code(), 403);
    }
}
