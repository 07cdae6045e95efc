//! The server.
//!
//! *Upstream counterpart:* `SecureServingInfo.Serve` of `apiserver/pkg/server`, and Go's `net/http`.

mod body;
mod connection;
mod limiter;
mod respond;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kcm_clock::Clock;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{connection::Protocol, limiter::ConnectionLimiter, respond::Responder};
use crate::{Access, Routes, ServingError, ServingOptions, tls};

/// As many connections as the kernel keeps that have not been accepted.
const BACKLOG: u32 = 1024;
/// When none can be accepted, for want of file descriptors, it is tried again after this.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// What is under way when the server ends has this long.
const FAREWELL: Duration = Duration::from_secs(2);

/// A server on a port that is bound.
///
/// A client cannot keep others out. Handshakes, headers, bodies and idle connections have time limits. There are at
/// most 250 connections; a further one replaces the one that has been idle for longest, where waiting for a header or a
/// body counts as idle. Bodies are read only for [routes with a body](Routes::exact_with_body), in at most 1 MiB of
/// memory for all connections.
pub struct SecureServer {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What all connections have in common.
struct Shared {
    acceptor: TlsAcceptor,
    responder: Responder,
    protocol: Protocol,
    limiter: Arc<ConnectionLimiter>,
    clock: Arc<dyn Clock>,
}

impl SecureServer {
    /// Listens, and reads or makes certificates. `component` is what a certificate is kept as in
    /// [`cert_dir`](ServingOptions::cert_dir). Port 0 is any port that is free: that `--secure-port=0` means not to
    /// serve is for who reads flags.
    ///
    /// # Errors
    ///
    /// When the address is taken, or a certificate or key cannot be used.
    pub async fn bind(
        options: &ServingOptions,
        component: &str,
        access: Access,
        routes: Routes,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let config = tls::config(options, component, access.asks_for_certificates(), &clock)?;
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

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then lets requests under way finish, for two seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the port and ends all connections.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listener, address, shared } = self;
        tracing::info!("Serving securely on {address}");
        let access = shared.responder.access().clone();
        // Ends what was spawned when this future is dropped, too.
        let leave = CancellationToken::new();
        let abandon = leave.clone().drop_guard();
        let connections = TaskTracker::new();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = accept(&listener, &shared, &connections, &shutdown, &leave) => {}
            () = access.keep_up(&shutdown) => {}
        }
        drop(listener);
        tracing::info!("Stopped listening on {address}");
        connections.close();
        tokio::select! {
            () = connections.wait() => {}
            () = shared.clock.sleep(FAREWELL) => {}
        }
        drop(abandon);
        connections.wait().await;
    }
}

impl std::fmt::Debug for SecureServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecureServer").field("address", &self.address).finish_non_exhaustive()
    }
}

fn listen(address: SocketAddr, options: &ServingOptions) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Go does so whether `--permit-address-sharing` is given or not: else a port that was just left is not to be
    // had for a minute.
    socket.set_reuseaddr(true)?;
    if options.permit_port_sharing {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    connections: &TaskTracker,
    shutdown: &CancellationToken,
    leave: &CancellationToken,
) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or the peer was gone before it was accepted.
                tracing::warn!(err = %error, "A connection cannot be accepted");
                shared.clock.sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        let slot = shared.limiter.admit().await;
        let (shared, shutdown, leave) = (Arc::clone(shared), shutdown.clone(), leave.clone());
        connections.spawn(async move {
            tokio::select! {
                () = leave.cancelled() => {}
                () = slot.evicted() => tracing::debug!(%peer, "Closed a connection to accept another"),
                ended = serve(stream, peer, &shared, &slot, &shutdown) => {
                    if let Err(error) = ended {
                        tracing::trace!(%peer, err = %error, "A connection ended badly");
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
    slot: &limiter::Slot,
    shutdown: &CancellationToken,
) -> Result<(), connection::Error> {
    let _ = stream.set_nodelay(true);
    let Some(stream) = connection::handshake(stream, &shared.acceptor, &*shared.clock).await? else {
        return Ok(());
    };
    connection::converse(stream, peer, shared, slot, shutdown).await
}

#[cfg(test)]
mod tests;
