//! TCP connections to a host that may have several addresses.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use kcm_clock::Clock;
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::net::{TcpSocket, TcpStream};
use tower::BoxError;

use super::addresses::{Addresses, Trial};

/// Time after which the next address is tried beside those that have not answered (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Timeout of a connection, including the lookup of the name, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Silent HTTP/1.1 connections are probed by the operating system: after 15 s, then three times every 10 s. A dead one is
/// detected after 45 s, like a dead HTTP/2 connection.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// The same for sent bytes that are not acknowledged, during which no probes are sent.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(45);

/// Opens TCP connections to one host. Clones share its addresses.
#[derive(Clone)]
pub(super) struct Dialer {
    addresses: Addresses,
    clock: Arc<dyn Clock>,
}

/// Error of a connection.
#[derive(Debug, Error)]
enum DialError {
    #[error("failed to connect to {address}")]
    Failed { address: SocketAddr, source: io::Error },
    #[error("the host has no addresses")]
    NoAddress,
}

impl Dialer {
    pub(super) fn new(host: &str, port: u16, clock: Arc<dyn Clock>) -> Self {
        Self { addresses: Addresses::of(host, port, Arc::clone(&clock)), clock }
    }

    /// Connects to the first address that answers.
    ///
    /// # Errors
    ///
    /// The error of the lookup or of the first address, or a timeout if no address answers within [`TIMEOUT`].
    pub(super) async fn dial(&self) -> Result<(TcpStream, Trial), BoxError> {
        let connected = pin!(async {
            let addresses = self.addresses.order().await?;
            Ok(race(&self.addresses, addresses, &*self.clock, connect).await?)
        });
        tokio::select! {
            biased;
            connected = connected => connected,
            () = self.clock.sleep(TIMEOUT) => Err(timed_out("connect timeout").into()),
        }
    }
}

pub(super) fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// Returns the first of the connections to `order` that is established. The next address is tried when the last attempt
/// has failed, or has not been answered for [`ATTEMPT_DELAY`].
///
/// DEVIATION: Go does this for the two address families, and tries the addresses of a family one after the other.
async fn race<T, F: Future<Output = io::Result<T>>>(
    addresses: &Addresses,
    order: Vec<SocketAddr>,
    clock: &dyn Clock,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<(T, Trial), DialError> {
    let mut order = order.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut first_error = None;
    loop {
        if let Some(address) = order.next() {
            let (trial, attempt) = (addresses.attempt(address), connect(address));
            attempts.push(async move {
                let connected = attempt.await;
                connected
                    .map(|stream| (stream, trial))
                    .map_err(|source| DialError::Failed { address, source })
            });
        }
        let is_last = order.as_slice().is_empty();
        tokio::select! {
            biased;
            ended = attempts.next() => match ended {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(error)) => drop(first_error.get_or_insert(error)),
                None => return Err(first_error.unwrap_or(DialError::NoAddress)),
            },
            () = clock.sleep(ATTEMPT_DELAY), if !is_last => {}
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Err(error) = configure(&socket) {
        tracing::warn!(%address, err = %error, "Failed to set socket options");
    }
    socket.connect(address).await
}

fn configure(socket: &TcpSocket) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::future::Either;
    use kcm_clock::{FakeClock, SimulatedClock, Timestamp};
    use parking_lot::Mutex;

    use super::{
        super::addresses::tests::{address, asked},
        *,
    };

    const DEAD: &str = "10.0.0.1:1";
    const REFUSING: &str = "10.0.0.2:1";
    const ALIVE: &str = "10.0.0.3:1";

    /// Races connections in simulated time. Also returns the attempts, with the milliseconds of their starts, and the
    /// duration.
    async fn run(order: &[&str]) -> (Result<SocketAddr, String>, Vec<(u128, SocketAddr)>, u128) {
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        let attempts = Mutex::new(Vec::new());
        let connect = |to: SocketAddr| {
            attempts.lock().push((clock.monotonic().as_millis(), to));
            if to == address(DEAD) {
                return Either::Left(pending());
            }
            let refused = to == address(REFUSING);
            Either::Right(ready(if refused { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(to) }))
        };
        let addresses = Addresses::of("10.0.0.9", 1, Arc::new(clock.clone()));
        let order = order.iter().copied().map(address).collect();
        let raced = race(&addresses, order, &clock, connect).await;
        let raced = raced.map(|(to, _)| to).map_err(|error| crate::causes::describe(&error));
        (raced, attempts.into_inner(), clock.monotonic().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn dead_address_delays_by_a_quarter_of_a_second() {
        let (connected, attempts, took) = run(&[DEAD, DEAD, ALIVE]).await;
        assert_eq!((connected, took), (Ok(address(ALIVE)), 500));
        assert_eq!(attempts, [(0, address(DEAD)), (250, address(DEAD)), (500, address(ALIVE))]);
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_starts_the_next_attempt() {
        let (connected, _, took) = run(&[REFUSING, ALIVE, DEAD]).await;
        assert_eq!((connected, took), (Ok(address(ALIVE)), 0));
        let (connected, _, took) = run(&[DEAD, REFUSING, ALIVE]).await;
        assert_eq!((connected, took), (Ok(address(ALIVE)), 250));
    }

    #[tokio::test(start_paused = true)]
    async fn first_error_is_returned() {
        let (connected, attempts, took) = run(&[REFUSING, REFUSING]).await;
        assert_eq!((attempts.len(), took), (2, 0));
        assert_eq!(connected.unwrap_err(), "failed to connect to 10.0.0.2:1: connection refused");
    }

    #[tokio::test]
    async fn timeout_includes_the_lookup() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let (addresses, _answers) = asked(&clock);
        let dialer = Dialer { addresses, clock: Arc::new(clock.clone()) };
        let steps = async {
            while clock.sleepers() == 0 {
                tokio::task::yield_now().await;
            }
            clock.step(TIMEOUT);
            pending::<()>().await;
        };
        let error =
            tokio::select! { dialed = dialer.dial() => dialed.err().unwrap(), () = steps => unreachable!() };
        assert_eq!(error.to_string(), "connect timeout");
    }
}
