//! Hostile clients of a manager's secure port. They run in another process.
//!
//! A client sends at a fixed rate, or keeps a fixed number of connections, so that both managers receive the same. It ends
//! after its time.

mod certificates;
mod connections;
mod frames;
mod http2;
pub(crate) mod tls;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kcm_clock::{Clock, RealClock};
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};
use tokio_rustls::client::TlsStream;

use crate::{
    catalogue::{self, Client, Effect},
    error::{SuiteError, failed},
};

/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Receive buffer of clients that do not read.
const BUFFER: u32 = 4096;
/// Time between the starts of a task that is kept running.
const AGAIN: Duration = Duration::from_secs(1);
/// Interval of the printed counts.
const PRINT: Duration = Duration::from_millis(500);
/// Number of different errors that are counted.
const ERRORS: usize = 20;

/// Counts of a client so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// TCP connections.
    pub(crate) connections: u64,
    /// TLS handshakes.
    pub(crate) handshakes: u64,
    /// Exchanges that ended as the client planned.
    pub(crate) completed: u64,
    /// Bytes sent before encryption.
    pub(crate) bytes: u64,
    /// Errors with their number.
    pub(crate) errors: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    handshakes: AtomicU64,
    completed: AtomicU64,
    bytes: AtomicU64,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Counters {
    fn read(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            connections: load(&self.connections),
            handshakes: load(&self.handshakes),
            completed: load(&self.completed),
            bytes: load(&self.bytes),
            errors: self.errors.lock().clone(),
        }
    }

    fn record(&self, result: io::Result<()>) {
        let Err(error) = result else {
            self.completed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut errors = self.errors.lock();
        let text = error.to_string();
        if errors.len() < ERRORS || errors.contains_key(&text) {
            *errors.entry(text).or_default() += 1;
        }
    }
}

/// Secure port that a client sends to.
#[derive(Debug, Clone)]
struct Target {
    address: SocketAddr,
    /// Bearer token that the manager accepts.
    token: String,
    clock: RealClock,
    counters: Arc<Counters>,
}

impl Target {
    async fn connect(&self) -> io::Result<TcpStream> {
        self.connect_from(TcpSocket::new_v4()?).await
    }

    /// Connects with a small receive buffer. Responses that are not read stay in the server.
    async fn connect_without_buffer(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(BUFFER)?;
        self.connect_from(socket).await
    }

    async fn connect_from(&self, socket: TcpSocket) -> io::Result<TcpStream> {
        let stream = tokio::time::timeout(CONNECT, socket.connect(self.address)).await??;
        stream.set_nodelay(true)?;
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        Ok(stream)
    }

    async fn tls(&self, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
        self.tls_over(self.connect().await?, config).await
    }

    async fn tls_over(
        &self,
        stream: TcpStream,
        config: &Arc<ClientConfig>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let connected = tokio::time::timeout(CONNECT, tls::connect(stream, config)).await??;
        self.counters.handshakes.fetch_add(1, Ordering::Relaxed);
        Ok(connected)
    }

    fn sent(&self, bytes: usize) {
        self.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Starts `work` this number of times a second. At most `at_once` are in progress.
    async fn at_rate<F>(&self, a_second: u32, at_once: usize, work: impl Fn(u32) -> F)
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let started = self.clock.monotonic();
        let mut running = JoinSet::new();
        for number in 0.. {
            let due = Duration::from_secs(1) * number / a_second;
            let early = due.saturating_sub(self.clock.monotonic().saturating_sub(started));
            if !early.is_zero() {
                self.clock.sleep(early).await;
            }
            while running.try_join_next().is_some() {}
            if running.len() >= at_once {
                running.join_next().await;
            }
            let (work, counters) = (work(number), Arc::clone(&self.counters));
            running.spawn(async move { counters.record(work.await) });
        }
    }

    /// Keeps `number` tasks running. A task that ends is started again.
    async fn keep<F>(&self, number: u32, work: impl Fn(u32) -> F + Clone + Send + 'static)
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for index in 0..number {
            let (target, work) = (self.clone(), work.clone());
            running.spawn(async move {
                loop {
                    let started = target.clock.monotonic();
                    target.counters.record(work(index).await);
                    let spent = target.clock.monotonic().saturating_sub(started);
                    target.clock.sleep(AGAIN.saturating_sub(spent)).await;
                }
            });
        }
        while running.join_next().await.is_some() {}
    }
}

/// Hostile client, started as a process by the suite: `FAULT ADDRESS TOKEN SECONDS`.
#[derive(Debug)]
pub struct HostileClient {
    client: Client,
    target: Target,
    lasts: Duration,
}

impl HostileClient {
    /// Parses the arguments. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let [fault, address, token, seconds] = words else { return None };
        let Effect::Client(client) = catalogue::find(fault)?.effect else { return None };
        let target = Target {
            address: address.parse().ok()?,
            token: (*token).to_owned(),
            clock: RealClock::new(),
            counters: Arc::default(),
        };
        Some(Self { client, target, lasts: Duration::from_secs(seconds.parse().ok()?) })
    }

    /// Runs the client for its time. Writes the counts to `out`, a line of JSON each.
    pub async fn run(self, mut out: impl io::Write) -> Result<(), SuiteError> {
        let Self { client, target, lasts } = self;
        let (clock, counters) = (target.clock.clone(), Arc::clone(&target.counters));
        let mut print = || {
            let line = serde_json::to_string(&counters.read())?;
            writeln!(out, "{line}").map_err(failed("counts of the client"))
        };
        let print_always = async {
            loop {
                print()?;
                clock.sleep(PRINT).await;
            }
        };
        let ended = tokio::select! {
            ended = send(client, target) => ended,
            ended = print_always => ended,
            () = clock.sleep(lasts) => Ok(()),
        };
        print()?;
        ended
    }

    /// Returns a function that reads the counts so far.
    pub(crate) fn counts(&self) -> impl Fn() -> Counts + Send + 'static {
        let counters = Arc::clone(&self.target.counters);
        move || counters.read()
    }
}

/// Runs a client without an end.
async fn send(client: Client, target: Target) -> Result<(), SuiteError> {
    match client {
        Client::ChainOfNames => connections::chain(target, &certificates::chain_of_names()?).await?,
        Client::DeepChain => connections::chain(target, &certificates::deep_chain()?).await?,
        Client::Handshakes => connections::handshakes(target).await?,
        Client::Bytes => connections::bytes(target).await?,
        Client::UnreadScrapes => {
            tokio::try_join!(connections::unread_scrapes(target.clone()), http2::unread_scrapes(target))?;
        }
        Client::LargeHeaders => http2::large_headers(target).await?,
        Client::LargeStreams => http2::large_streams(target).await?,
        Client::RandomTokens => http2::random_tokens(target).await?,
        Client::RapidReset => http2::rapid_reset(target).await?,
        Client::Continuation => http2::continuation(target).await?,
        Client::Settings => http2::control(target, frames::SETTINGS).await?,
        Client::Ping => http2::control(target, frames::PING).await?,
        Client::ZeroWindows => http2::zero_windows(target).await?,
    }
    Ok(())
}
