//! Serving on a socket.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, Request, header, uri::Authority};
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use kcm_apiserver::{
    ApiBody, ApiService, ApiStatus, BrokenConnection, StatusReason, User, WriteGate, http::response,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::{unconstrained, yield_now},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceExt};

use crate::{
    HttpServer,
    close::ClosesWithPeer,
    executor::{Executor, Spawner, end_turn},
    fair_queue::{FairQueue, Flow},
};

/// Maximum duration of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without data after which the system checks that the client is there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Time until the next attempt to accept a connection, if the process has no file descriptors left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Maximum number of connections that wait to be accepted. The kernel limits it to `net.core.somaxconn`. If the queue is
/// full, a new client waits for a second, the time of a retransmission.
const BACKLOG: i32 = 4096;

/// Number of connections that are accepted before other tasks run.
const ACCEPTED_AT_ONCE: u64 = 256;

/// Number of writes that are served at a time by a server with a data directory, as kube-apiserver's
/// `--max-mutating-requests-inflight`. In memory a write is served in one turn. On disk it waits for a transaction, which
/// it shares with other writes.
const MAX_MUTATING_REQUESTS: usize = 200;

impl HttpServer {
    /// Serves HTTP/1.1 and HTTP/2 (without TLS by prior knowledge) on `listener` until `shutdown` is cancelled. Then it
    /// ends all watches, waits for pending requests and returns.
    ///
    /// A server without tokens accepts every client: bind it to loopback. It rejects cross-site requests of browsers by
    /// their Host and Origin headers. A server with tokens accepts any host.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the listener. Connections continue until their clients close them, watches end. Cancel
    /// `shutdown` for a graceful shutdown.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        unconstrained(accept(self, listener, shutdown)).await;
    }
}

/// Accepts connections. To be polled without tokio's budget, which is smaller than [`ACCEPTED_AT_ONCE`]: the queue of
/// connections must not fill up while other tasks run.
async fn accept(server: HttpServer, listener: TcpListener, shutdown: CancellationToken) {
    let service = server.service();
    let (tls, max_streams) = (server.tls.map(TlsAcceptor::from), server.max_concurrent_streams);
    // Browsers do not send tokens across sites. As upstream, client certificates are not checked.
    let checks_origin = server.tokens.is_none();
    let connections = GracefulShutdown::new();
    let executor = Executor::start();
    let writes = server.server.is_on_disk().then(|| FairQueue::new(MAX_MUTATING_REQUESTS));
    // Also ends the watches when this future is dropped.
    let watches = shutdown.child_token();
    let _guard = watches.clone().drop_guard();
    // Applies to a socket that is listening already.
    if let Err(error) = SockRef::from(&listener).listen(BACKLOG) {
        tracing::debug!(%error, "Failed to extend the queue of connections");
    }
    for number in 1_u64.. {
        if number.is_multiple_of(ACCEPTED_AT_ONCE) {
            yield_now().await;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or the peer has closed the connection.
                tracing::warn!(%error, "Failed to accept connection");
                tokio::select! {
                    () = server.server.clock().sleep(ACCEPT_BACKOFF) => continue,
                    () = shutdown.cancelled() => break,
                }
            }
        };
        // Watch events are small and must not be delayed.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, %peer, "Failed to set TCP_NODELAY");
        }
        // Streams to pods have no pings.
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&keepalive) {
            tracing::debug!(%error, %peer, "Failed to set SO_KEEPALIVE");
        }
        let requests = executor.spawner(Flow::new(peer.ip(), number));
        let spawner = requests.clone();
        let gate = writes.clone().map(|queue| write_gate(queue, requests.flow().clone()));
        let flow = requests.flow().clone();
        let streams = requests.clone();
        let socket =
            Socket { service: service.clone(), watches: watches.clone(), flow, streams, gate, checks_origin };
        // Created before the handshake, so that a shutdown waits for accepted connections.
        let watcher = connections.watcher();
        let (tls, users) = (tls.clone(), server.certificate_users.clone());
        let connection = async move {
            let ended = match tls {
                None => {
                    serve_connection(stream, socket.into_service(None), requests, max_streams, watcher).await
                }
                Some(tls) => match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        let certificate =
                            stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                        let user = users.zip(certificate).and_then(|(users, certificate)| users(certificate));
                        let service = socket.into_service(user);
                        let stream = ClosesWithPeer(stream);
                        serve_connection(stream, service, requests, max_streams, watcher).await
                    }
                    Ok(Err(error)) => Err(error.into()),
                    Err(elapsed) => Err(elapsed.into()),
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%error, %peer, "Connection failed");
            }
        };
        spawner.spawn(connection);
    }
    drop(listener);
    connections.shutdown().await;
}

/// Serves a connection until it is closed.
async fn serve_connection<I, S>(
    stream: I,
    service: S,
    requests: Spawner,
    max_streams: u32,
    watcher: Watcher,
) -> Result<(), BoxError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = http::Response<ApiBody>, Error = BrokenConnection, Future: Send>
        + Send
        + 'static,
{
    let mut builder = auto::Builder::new(requests);
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(max_streams);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    watcher.watch(connection.into_owned()).await
}

/// Gate of the writes of a client.
fn write_gate(queue: Arc<FairQueue>, flow: Flow) -> WriteGate {
    Arc::new(move || {
        let (queue, flow) = (Arc::clone(&queue), flow.clone());
        Box::pin(async move { Box::new(queue.seat(&flow).await) as Box<dyn Send> })
    })
}

/// Values that the requests of a connection share.
struct Socket {
    service: ApiService,
    watches: CancellationToken,
    flow: Flow,
    streams: Spawner,
    gate: Option<WriteGate>,
    checks_origin: bool,
}

impl Socket {
    /// Wraps the service for requests from the connection: assigns the connection to its client, checks the origin, and passes
    /// the shutdown token, the spawner of streams, the gate of writes and the user of the client certificate.
    fn into_service(
        self,
        user: Option<User>,
    ) -> impl Service<
        Request<Incoming>,
        Response = http::Response<ApiBody>,
        Error = BrokenConnection,
        Future: Send,
    > + Send
    + 'static {
        service_fn(move |mut request: Request<Incoming>| {
            let (service, watches, gate) = (self.service.clone(), self.watches.clone(), self.gate.clone());
            let (user, streams) = (user.clone(), self.streams.clone());
            let is_assigned = self.flow.assign(&request);
            let checks_origin = self.checks_origin;
            async move {
                if is_assigned {
                    // The turn was that of another flow.
                    end_turn().await;
                }
                if checks_origin && let Err(status) = check_origin(&request) {
                    return Ok(response::failure(&status));
                }
                request.extensions_mut().insert(watches);
                request.extensions_mut().insert(streams);
                if let Some(gate) = gate {
                    request.extensions_mut().insert(gate);
                }
                if let Some(user) = user {
                    request.extensions_mut().insert(user);
                }
                service.oneshot(request).await
            }
        })
    }
}

/// Rejects cross-site requests of browsers. With DNS rebinding the Host is foreign, otherwise the Origin.
fn check_origin<B>(request: &Request<B>) -> Result<(), ApiStatus> {
    let header = |name: header::HeaderName| text(request.headers(), name);
    let host = header(header::HOST).or_else(|| request.uri().authority().map(Authority::as_str));
    if let Some(host) = host.filter(|host| !is_local(host)) {
        let message = format!("invalid host {host:?}: use localhost or 127.0.0.1");
        return Err(ApiStatus::new(StatusReason::Forbidden, message));
    }
    let origin = header(header::ORIGIN);
    let origin_host = origin.map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    if let Some(origin) = origin_host.filter(|host| !is_local(host)) {
        let message = format!("cross-origin request from {origin:?} is not allowed");
        return Err(ApiStatus::new(StatusReason::Forbidden, message));
    }
    Ok(())
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// `true` if `host`, with or without port, is a name of the loopback interface.
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
    fn loopback_hosts_are_local() {
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
    fn cross_site_requests_are_rejected() {
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
