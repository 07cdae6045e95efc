//! Server of the secure port.
//!
//! Upstream counterpart: `SecureServingInfo.Serve` of `apiserver/pkg/server`, and Go's `net/http`.

mod body;
mod connection;
mod limiter;
mod listen;
mod respond;
mod stream;
mod waiting;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kcm_clock::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    connection::{Protocol, Shared},
    limiter::ConnectionLimiter,
    listen::listen,
    respond::Responder,
};
use crate::{Access, Routes, ServingError, ServingOptions, tls};

/// Back-off after a failure to accept a connection, such as a lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Time for requests in progress at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Server that is bound to a port.
///
/// A client cannot block other clients. Handshakes, headers, bodies and idle connections have time limits. There are at
/// most 250 connections; a further one replaces the one that has been idle for longest, where waiting for a header or a
/// body counts as idle. Requests that wait, such as for a review of their user, take at most 32 MiB. Bodies are read only
/// for [routes with a body](Routes::exact_with_body), in at most 1 MiB of memory for all connections.
pub struct SecureServer {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl SecureServer {
    /// Binds the port, and loads or generates certificates.
    ///
    /// An unspecified [`bind_address`](ServingOptions::bind_address) is served for IPv4 and IPv6, if the host has both.
    ///
    /// `component` is the file name of a generated certificate in [`cert_dir`](ServingOptions::cert_dir). Port 0 selects a
    /// free port; the caller implements `--secure-port=0`.
    ///
    /// # Errors
    ///
    /// If the address is in use, or a certificate or key cannot be used.
    pub async fn bind(
        options: &ServingOptions,
        component: &str,
        access: Access,
        routes: Routes,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let config = tls::config(options, component, access.uses_certificates(), &clock)?;
        let wanted = SocketAddr::new(options.bind_address, options.secure_port);
        let listen = listen(wanted, options).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listen.map_err(|cause| ServingError::Listen { address: wanted, cause })?;
        let shared = Shared {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            responder: Responder::new(access, routes, Arc::clone(&clock)),
            protocol: Protocol::new(options),
            limiter: Arc::new(ConnectionLimiter::new(Arc::clone(&clock))),
            clock,
        };
        Ok(Self { listener, address, shared: Arc::new(shared) })
    }

    /// Address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then waits up to two seconds for requests in progress.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the port and all connections.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listener, address, shared } = self;
        tracing::info!("Serving securely on {address}");
        let access = shared.responder.access().clone();
        // Stops the connections' tasks, also if this future is dropped.
        let stop = CancellationToken::new();
        let stop_guard = stop.clone().drop_guard();
        let connections = TaskTracker::new();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = accept(&listener, &shared, &connections, &shutdown, &stop) => {}
            () = access.reload_loop(&shutdown) => {}
        }
        drop(listener);
        tracing::info!("Stopped listening on {address}");
        connections.close();
        tokio::select! {
            () = connections.wait() => {}
            () = shared.clock.sleep(SHUTDOWN_TIMEOUT) => {}
        }
        drop(stop_guard);
        connections.wait().await;
    }
}

impl std::fmt::Debug for SecureServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecureServer").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    connections: &TaskTracker,
    shutdown: &CancellationToken,
    stop: &CancellationToken,
) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(err = %error, "Failed to accept connection");
                shared.clock.sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        // A client with IPv4 has an IPv6 address on a socket for both.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let permit = shared.limiter.admit().await;
        let (shared, shutdown, stop) = (Arc::clone(shared), shutdown.clone(), stop.clone());
        connections.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = permit.evicted() => tracing::debug!(%peer, "Closed connection to accept another"),
                ended = serve(stream, peer, &shared, &permit, &shutdown) => {
                    if let Err(error) = ended {
                        tracing::trace!(%peer, err = %error, "Connection failed");
                    }
                }
            }
        });
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    permit: &limiter::ConnectionPermit,
    shutdown: &CancellationToken,
) -> Result<(), connection::Error> {
    let _ = stream.set_nodelay(true);
    let Some(stream) = connection::handshake(stream, &shared.acceptor, &*shared.clock).await? else {
        return Ok(());
    };
    connection::serve_requests(stream, peer, shared, permit, shutdown).await
}

#[cfg(test)]
mod tests;
