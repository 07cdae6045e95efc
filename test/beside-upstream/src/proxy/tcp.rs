//! TCP proxy.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kcm_clock::{Clock, RealClock};
use serde::Deserialize;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::error::{SuiteError, failed};

/// Size of a read.
const CHUNK: usize = 16 * 1024;
/// Interval of the parts of a throttled connection.
const THROTTLE_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of connections that wait to be accepted. Small, so that a full queue is quickly reached.
const BACKLOG: i32 = 4;
/// Time after which a connection to a full queue counts as unanswered.
const FULL: Duration = Duration::from_millis(100);

/// Behaviour of the proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tcp {
    /// Forwards.
    #[default]
    Pass,
    /// Closes all connections. The kernel drops the SYN of a new one, as if the host were gone.
    NoDials,
    /// Closes all connections. New ones are accepted and never answered, then and later, as behind a load balancer whose
    /// server is gone.
    Swallow,
    /// Closes all connections and the listener. New connections are refused.
    Refuse,
    /// Resets each connection at the first bytes of the client.
    Reset,
    /// Forwards nothing on the connections that exist, then and later. New connections work.
    HalfOpen,
    /// Forwards nothing on all connections while it lasts.
    Freeze,
    /// Closes each connection after this number of bytes from the server.
    Cut(u64),
    /// Forwards this number of bytes per second and direction of a connection.
    Throttle(u64),
    /// Delays the bytes of the server.
    Delay(#[serde(deserialize_with = "crate::catalogue::seconds")] Duration),
    /// Does not read from the client.
    NoReads,
}

/// Behaviour with the number of the first connection that was accepted in it.
#[derive(Debug, Clone, Copy, Default)]
struct Mode {
    tcp: Tcp,
    since: u64,
    /// Connections with lower numbers are closed.
    closed_before: u64,
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicU64,
    affected: AtomicU64,
    lost: AtomicU64,
}

/// Running proxy. Dropping it closes its connections.
#[derive(Debug)]
pub(crate) struct TcpProxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    counters: Arc<Counters>,
    _tasks: JoinSet<()>,
}

impl TcpProxy {
    /// Starts a proxy for `server` on `address`.
    pub(crate) fn start(address: SocketAddr, server: SocketAddr) -> Result<Self, SuiteError> {
        let listener = listen(address).map_err(failed(format!("proxy on {address}")))?;
        let address = listener.local_addr().map_err(failed("proxy"))?;
        let (mode, receiver) = watch::channel(Mode::default());
        let counters = Arc::new(Counters::default());
        let mut tasks = JoinSet::new();
        let front = Front { address, server, mode: receiver, counters: Arc::clone(&counters) };
        tasks.spawn(front.run(listener));
        Ok(Self { address, mode, counters, _tasks: tasks })
    }

    /// Address that the proxy listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the behaviour.
    pub(crate) fn set(&self, tcp: Tcp) {
        let since = self.counters.accepted.load(Ordering::SeqCst);
        self.mode.send_modify(|mode| {
            (mode.tcp, mode.since) = (tcp, since);
            if matches!(tcp, Tcp::NoDials | Tcp::Swallow | Tcp::Refuse) {
                mode.closed_before = since;
            }
        });
    }

    /// Closes all connections, and continues.
    pub(crate) fn close_connections(&self) {
        let since = self.counters.accepted.load(Ordering::SeqCst);
        self.mode.send_modify(|mode| mode.closed_before = since);
    }

    /// Number of connections that the server has closed, or that it did not accept.
    pub(crate) fn lost(&self) -> u64 {
        self.counters.lost.load(Ordering::SeqCst)
    }

    /// Number of connections that were affected by the behaviour, apart from unanswered ones.
    pub(crate) fn affected(&self) -> u64 {
        self.counters.affected.load(Ordering::SeqCst)
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts connections.
struct Front {
    address: SocketAddr,
    server: SocketAddr,
    mode: watch::Receiver<Mode>,
    counters: Arc<Counters>,
}

impl Front {
    async fn run(mut self, listener: TcpListener) {
        let clock = RealClock::new();
        let mut listener = Some(listener);
        let mut fillers: Vec<TcpStream> = Vec::new();
        let mut connections = JoinSet::new();
        loop {
            let mode = *self.mode.borrow_and_update();
            match mode.tcp {
                Tcp::NoDials => fill(self.address, &mut fillers).await,
                Tcp::Refuse => listener = None,
                _ => fillers.clear(),
            }
            if matches!(mode.tcp, Tcp::NoDials | Tcp::Refuse) {
                if self.mode.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let Some(open) = &listener else {
                listener = listen(self.address).ok();
                if listener.is_none() {
                    clock.sleep(FULL).await;
                }
                continue;
            };
            tokio::select! {
                changed = self.mode.changed() => if changed.is_err() { return },
                accepted = open.accept() => {
                    let Ok((client, _)) = accepted else { continue };
                    let number = self.counters.accepted.fetch_add(1, Ordering::SeqCst);
                    let (server, mode) = (self.server, self.mode.clone());
                    let counters = Arc::clone(&self.counters);
                    let is_swallowed = mode.borrow().tcp == Tcp::Swallow;
                    connections.spawn(async move {
                        let connection = Connection { number, mode, counters };
                        let _ = if is_swallowed {
                            connection.swallow(client).await
                        } else {
                            connection.forward(client, server).await
                        };
                    });
                }
                _ = connections.join_next(), if !connections.is_empty() => {}
            }
        }
    }
}

/// Fills the queue of connections to be accepted, so that the kernel drops further ones.
async fn fill(address: SocketAddr, fillers: &mut Vec<TcpStream>) {
    let clock = RealClock::new();
    for _ in 0..=2 * BACKLOG {
        tokio::select! {
            connected = TcpStream::connect(address) => fillers.extend(connected.ok()),
            () = clock.sleep(FULL) => return,
        }
    }
}

/// Connection with the number at which it was accepted.
#[derive(Clone)]
struct Connection {
    number: u64,
    mode: watch::Receiver<Mode>,
    counters: Arc<Counters>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    FromClient,
    FromServer,
}

/// End of a connection.
enum End {
    /// A peer has closed it.
    Closed,
    /// The proxy closes it.
    Close,
    /// The proxy resets it.
    Reset,
}

impl Connection {
    /// Reads until the client closes the connection, and answers nothing.
    async fn swallow(self, mut client: TcpStream) -> io::Result<()> {
        self.counters.affected.fetch_add(1, Ordering::SeqCst);
        let mut buffer = vec![0; CHUNK];
        while client.read(&mut buffer).await? > 0 {}
        Ok(())
    }

    /// Forwards to the server until the connection ends.
    async fn forward(self, mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
        let mut server = match TcpStream::connect(server).await {
            Ok(server) => server,
            Err(error) => {
                self.counters.lost.fetch_add(1, Ordering::SeqCst);
                return Err(error);
            }
        };
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let end = {
            let (mut client_reads, mut client_writes) = client.split();
            let (mut server_reads, mut server_writes) = server.split();
            let (mut up, mut down) = (self.clone(), self.clone());
            tokio::select! {
                end = up.copy(&mut client_reads, &mut server_writes, Direction::FromClient) => end,
                end = down.copy(&mut server_reads, &mut client_writes, Direction::FromServer) => {
                    if !matches!(end, Ok(End::Close | End::Reset)) {
                        self.counters.lost.fetch_add(1, Ordering::SeqCst);
                    }
                    end
                }
            }
        };
        let end = end.unwrap_or(End::Closed);
        if !matches!(end, End::Closed) {
            self.counters.affected.fetch_add(1, Ordering::SeqCst);
        }
        if matches!(end, End::Reset) {
            for socket in [&client, &server] {
                SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
            }
        }
        Ok(())
    }

    /// Copies bytes in a direction until the connection ends.
    async fn copy(
        &mut self,
        from: &mut ReadHalf<'_>,
        to: &mut WriteHalf<'_>,
        direction: Direction,
    ) -> io::Result<End> {
        let clock = RealClock::new();
        let mut buffer = vec![0; CHUNK];
        let (mut sent, mut counted) = (0_u64, None);
        loop {
            let Mode { tcp, since, closed_before } = *self.mode.borrow_and_update();
            let is_old = self.number < since;
            if self.number < closed_before {
                return Ok(End::Close);
            }
            match tcp {
                Tcp::Cut(bytes) if sent >= bytes => return Ok(End::Close),
                Tcp::HalfOpen if is_old => {
                    self.count(&mut counted, tcp);
                    // Lasts until the proxy is dropped.
                    std::future::pending::<()>().await;
                }
                Tcp::Freeze => {
                    self.count(&mut counted, tcp);
                    self.changed().await?;
                    continue;
                }
                Tcp::NoReads if direction == Direction::FromClient => {
                    self.count(&mut counted, tcp);
                    self.changed().await?;
                    continue;
                }
                _ => {}
            }
            let limit = match tcp {
                Tcp::Throttle(rate) => (rate / 10).clamp(1, CHUNK as u64) as usize,
                Tcp::Cut(bytes) => (bytes - sent).min(CHUNK as u64) as usize,
                _ => CHUNK,
            };
            let read = tokio::select! {
                read = from.read(&mut buffer[..limit]) => read?,
                changed = self.changed() => { changed?; continue }
            };
            if read == 0 {
                return Ok(End::Closed);
            }
            match tcp {
                Tcp::Reset if direction == Direction::FromClient => return Ok(End::Reset),
                Tcp::Throttle(_) => {
                    self.count(&mut counted, tcp);
                    clock.sleep(THROTTLE_INTERVAL).await;
                }
                Tcp::Delay(delay) if direction == Direction::FromServer => {
                    self.count(&mut counted, tcp);
                    return self.delayed(from, to, &buffer[..read], delay).await;
                }
                _ => {}
            }
            to.write_all(&buffer[..read]).await?;
            // Bytes of the server count while connections are cut.
            if direction == Direction::FromServer {
                sent = if matches!(tcp, Tcp::Cut(_)) { sent + read as u64 } else { 0 };
            }
        }
    }

    /// Copies with a delay, until the connection ends. The delay is zero after the end of the fault.
    async fn delayed(
        &mut self,
        from: &mut ReadHalf<'_>,
        to: &mut WriteHalf<'_>,
        first: &[u8],
        delay: Duration,
    ) -> io::Result<End> {
        let clock = RealClock::new();
        let (sender, mut parts) = mpsc::unbounded_channel::<(Duration, Vec<u8>)>();
        let _ = sender.send((clock.monotonic() + delay, first.to_vec()));
        let mode = self.mode.clone();
        let reading = async {
            let mut buffer = vec![0; CHUNK];
            loop {
                let read = from.read(&mut buffer).await?;
                if read == 0 {
                    return Ok::<_, io::Error>(End::Closed);
                }
                let delay = if matches!(mode.borrow().tcp, Tcp::Delay(_)) { delay } else { Duration::ZERO };
                let _ = sender.send((clock.monotonic() + delay, buffer[..read].to_vec()));
            }
        };
        let writing = async {
            while let Some((at, part)) = parts.recv().await {
                clock.sleep(at.saturating_sub(clock.monotonic())).await;
                to.write_all(&part).await?;
            }
            Ok::<_, io::Error>(End::Closed)
        };
        let mut changed = self.clone();
        let closing = async {
            loop {
                changed.changed().await?;
                if changed.number < changed.mode.borrow().closed_before {
                    return Ok::<_, io::Error>(End::Close);
                }
            }
        };
        tokio::select! {
            end = reading => end,
            end = writing => end,
            end = closing => end,
        }
    }

    async fn changed(&mut self) -> io::Result<()> {
        self.mode.changed().await.map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }

    /// Counts the connection as affected, once per behaviour.
    fn count(&self, counted: &mut Option<Tcp>, tcp: Tcp) {
        if counted.replace(tcp) != Some(tcp) {
            self.counters.affected.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Proxy of a server that sends `hello, world` after the first bytes of a client.
    async fn proxy() -> TcpProxy {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = TcpListener::bind(any).await.unwrap();
        let address = server.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut client, _) = server.accept().await.unwrap();
                tokio::spawn(async move {
                    let _ = client.read(&mut [0; 16]).await;
                    let _ = client.write_all(b"hello, world").await;
                    let _ = client.read(&mut [0; 16]).await;
                });
            }
        });
        TcpProxy::start(any, address).unwrap()
    }

    /// Sends a byte, and reads until the connection ends or `hello, world` has arrived.
    async fn exchange(client: &mut TcpStream) -> io::Result<String> {
        client.write_all(b"x").await?;
        let mut answer = [0; 12];
        let mut length = 0;
        while length < answer.len() {
            match client.read(&mut answer[length..]).await? {
                0 => break,
                read => length += read,
            }
        }
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    #[tokio::test]
    async fn behaviours_apply_to_new_connections() {
        let proxy = proxy().await;
        let connect = || TcpStream::connect(proxy.address());
        for tcp in [Tcp::Pass, Tcp::Throttle(1_000_000), Tcp::Delay(Duration::from_millis(1))] {
            proxy.set(tcp);
            assert_eq!(exchange(&mut connect().await.unwrap()).await.unwrap(), "hello, world", "{tcp:?}");
        }
        proxy.set(Tcp::Cut(5));
        assert_eq!(exchange(&mut connect().await.unwrap()).await.unwrap(), "hello");
        proxy.set(Tcp::Reset);
        let error = exchange(&mut connect().await.unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        proxy.set(Tcp::Pass);
        assert_eq!(exchange(&mut connect().await.unwrap()).await.unwrap(), "hello, world");
    }

    #[tokio::test]
    async fn old_connections_are_closed_and_new_ones_refused() {
        let proxy = proxy().await;
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut client).await.unwrap(), "hello, world");
        proxy.set(Tcp::Refuse);
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
        // The listener is closed soon after the connections.
        while TcpStream::connect(proxy.address()).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(proxy.affected(), 1);
        proxy.set(Tcp::Pass);
        while TcpStream::connect(proxy.address()).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}
