//! Addresses of the host of an API server or a proxy.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    thread,
    time::Duration,
};

use kcm_clock::Clock;
use thiserror::Error;
use tokio::sync::watch;

/// Time to wait for an answer of the resolver before the addresses of the last answer are used.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(1);

/// Lookups of one host at a time. They block a thread each and cannot be cancelled. The resolver of the operating system
/// repeats its query every 5 s by default.
const MAX_LOOKUPS: usize = 4;

/// Returns the addresses of a host name. Blocks.
type Lookup = Arc<dyn Fn() -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Addresses of one host. Clones share them.
///
/// As with Go, each connection looks the name up again.
///
/// DEVIATION: if that fails or takes longer than a second, the addresses of the last answer are used.
#[derive(Clone)]
pub(super) struct Addresses(Arc<Shared>);

struct Shared {
    host: String,
    /// `None` for an IP address.
    lookup: Option<Lookup>,
    clock: Arc<dyn Clock>,
    /// Changed by lookups on their own threads, so that it depends on no runtime.
    state: watch::Sender<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    /// Number of lookups that have ended.
    ended: u64,
    /// Error of the last lookup.
    failure: Option<Arc<io::Error>>,
    /// Addresses of the last successful lookup.
    known: Vec<SocketAddr>,
    /// Address of the last connection that was opened completely.
    worked: Option<SocketAddr>,
    /// Addresses of connections that are being opened.
    trials: Vec<SocketAddr>,
}

/// Error of a lookup.
#[derive(Debug, Error)]
#[error("failed to look up {host}")]
pub(super) struct LookupError {
    host: String,
    source: Arc<io::Error>,
}

impl Addresses {
    /// Addresses of `host`, which is a name or an IP address, an IPv6 address also in brackets.
    pub(super) fn of(host: &str, port: u16, clock: Arc<dyn Clock>) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let state = State::default();
        if let Ok(ip) = host.parse() {
            let state = State { known: vec![SocketAddr::new(ip, port)], ..state };
            return Self(Arc::new(Shared { host, lookup: None, clock, state: watch::Sender::new(state) }));
        }
        let name = host.clone();
        Self::looked_up(host, Arc::new(move || Ok((&*name, port).to_socket_addrs()?.collect())), clock)
    }

    fn looked_up(host: String, lookup: Lookup, clock: Arc<dyn Clock>) -> Self {
        let state = watch::Sender::new(State::default());
        Self(Arc::new(Shared { host, lookup: Some(lookup), clock, state }))
    }

    /// Returns the addresses in the order in which they should be tried.
    ///
    /// # Errors
    ///
    /// If the lookup failed, and no earlier one was successful.
    pub(super) async fn order(&self) -> Result<Vec<SocketAddr>, LookupError> {
        if let Some(lookup) = &self.0.lookup {
            let mut state = self.0.state.subscribe();
            let (ended, is_known) = {
                let now = state.borrow();
                (now.ended, !now.known.is_empty())
            };
            self.start(lookup);
            tokio::select! {
                biased;
                // Never an error: this holds the sender.
                _ = state.wait_for(|state| state.ended > ended) => {}
                () = self.0.clock.sleep(LOOKUP_PATIENCE), if is_known => {}
            }
        }
        let state = self.0.state.borrow();
        match &state.failure {
            Some(error) if state.known.is_empty() => {
                Err(LookupError { host: self.0.host.clone(), source: Arc::clone(error) })
            }
            _ => Ok(state.order()),
        }
    }

    /// Starts a lookup, unless enough of them are running.
    fn start(&self, lookup: &Lookup) {
        let may_run = self.0.state.send_if_modified(|state| {
            let may_run = state.running < MAX_LOOKUPS;
            state.running += usize::from(may_run);
            may_run
        });
        if may_run {
            let (running, lookup) = (Running(Arc::clone(&self.0)), Arc::clone(lookup));
            // The end of the runtime does not wait for it. If there is no thread, the lookup ends at once.
            drop(thread::Builder::new().name("lookup".to_owned()).spawn(move || running.end(lookup())));
        }
    }

    /// Records that a connection to `address` is being opened.
    pub(super) fn attempt(&self, address: SocketAddr) -> Trial {
        self.0.state.send_modify(|state| state.trials.push(address));
        Trial { addresses: self.clone(), address }
    }
}

impl State {
    /// Addresses to which no connection is being opened come first, then the one that worked last. The rest alternates
    /// between IPv6 and IPv4 (RFC 8305, section 4), in the order of the resolver, which sorts by RFC 6724.
    fn order(&self) -> Vec<SocketAddr> {
        let is_first_family = |address: &&SocketAddr| {
            self.known.first().is_some_and(|first| first.is_ipv4() == address.is_ipv4())
        };
        let (mut some, mut others) =
            (self.known.iter().filter(is_first_family), self.known.iter().filter(|a| !is_first_family(a)));
        let mut order = Vec::with_capacity(self.known.len());
        while order.len() < self.known.len() {
            order.extend(some.next());
            order.extend(others.next());
        }
        order.sort_by_key(|address| {
            let trials = self.trials.iter().filter(|trial| *trial == address).count();
            (trials, self.worked != Some(*address))
        });
        order
    }
}

/// Lookup in progress.
struct Running(Arc<Shared>);

impl Running {
    fn end(self, outcome: io::Result<Vec<SocketAddr>>) {
        self.0.state.send_modify(|state| match outcome {
            Ok(known) if !known.is_empty() => (state.known, state.failure) = (known, None),
            Ok(_) => state.failure = Some(Arc::new(io::Error::other("the host has no addresses"))),
            Err(error) => state.failure = Some(Arc::new(error)),
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| {
            state.running -= 1;
            state.ended += 1;
        });
    }
}

/// Attempt to open a connection to an address, until it is dropped.
pub(super) struct Trial {
    addresses: Addresses,
    address: SocketAddr,
}

impl Trial {
    /// Records that the connection is open, to try its address first the next time.
    pub(super) fn succeed(self) {
        self.addresses.0.state.send_modify(|state| state.worked = Some(self.address));
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.addresses.0.state.send_modify(|state| {
            if let Some(at) = state.trials.iter().position(|trial| *trial == self.address) {
                state.trials.swap_remove(at);
            }
        });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc;

    use kcm_clock::{FakeClock, Timestamp};
    use parking_lot::Mutex;

    use super::*;

    pub(in crate::transport) fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    pub(in crate::transport) type Answer = io::Result<Vec<SocketAddr>>;

    /// Addresses whose lookups block until an answer is sent.
    pub(in crate::transport) fn asked(clock: &FakeClock) -> (Addresses, mpsc::Sender<Answer>) {
        let (answers, from) = mpsc::channel::<Answer>();
        let from = Mutex::new(from);
        let lookup = move || from.lock().recv().unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        (Addresses::looked_up("api.example".to_owned(), Arc::new(lookup), Arc::new(clock.clone())), answers)
    }

    fn clock() -> FakeClock {
        FakeClock::new(Timestamp::UNIX_EPOCH)
    }

    fn is_running(addresses: &Addresses) -> usize {
        addresses.0.state.borrow().running
    }

    #[tokio::test]
    async fn ip_address_needs_no_lookup() {
        for (host, expected) in [("10.0.0.1", "10.0.0.1:6443"), ("[fd00::1]", "[fd00::1]:6443")] {
            let addresses = Addresses::of(host, 6443, Arc::new(clock()));
            assert_eq!(addresses.order().await.unwrap(), [address(expected)]);
        }
    }

    #[tokio::test]
    async fn name_is_looked_up_each_time() {
        let (addresses, answers) = asked(&clock());
        for text in ["10.0.0.1:1", "10.0.0.2:1"] {
            answers.send(Ok(vec![address(text)])).unwrap();
            assert_eq!(addresses.order().await.unwrap(), [address(text)]);
        }
    }

    #[tokio::test]
    async fn failure_uses_the_last_answer() {
        let (addresses, answers) = asked(&clock());
        answers.send(Err(io::Error::other("no such host"))).unwrap();
        let error = addresses.order().await.unwrap_err();
        assert_eq!(crate::causes::describe(&error), "failed to look up api.example: no such host");
        answers.send(Ok(vec![address("10.0.0.1:1")])).unwrap();
        addresses.order().await.unwrap();
        for failure in [Err(io::Error::other("no such host")), Ok(Vec::new())] {
            answers.send(failure).unwrap();
            assert_eq!(addresses.order().await.unwrap(), [address("10.0.0.1:1")]);
        }
    }

    #[tokio::test]
    async fn silent_resolver_delays_a_connection_by_a_second() {
        let clock = clock();
        let (addresses, answers) = asked(&clock);
        answers.send(Ok(vec![address("10.0.0.1:1")])).unwrap();
        addresses.order().await.unwrap();
        for _ in 0..10 {
            let order = addresses.order();
            let steps = async {
                while clock.sleepers() == 0 {
                    tokio::task::yield_now().await;
                }
                clock.step(LOOKUP_PATIENCE);
                std::future::pending::<()>().await;
            };
            let order = tokio::select! { order = order => order, () = steps => unreachable!() };
            assert_eq!(order.unwrap(), [address("10.0.0.1:1")]);
        }
        assert_eq!(is_running(&addresses), MAX_LOOKUPS);
        // The lookups end with their threads.
        drop(answers);
        addresses.0.state.subscribe().wait_for(|state| state.running == 0).await.unwrap();
    }

    #[tokio::test]
    async fn lookup_that_hangs_delays_no_other() {
        let (addresses, answers) = asked(&clock());
        let first = tokio::spawn({
            let addresses = addresses.clone();
            async move { addresses.order().await.unwrap() }
        });
        while is_running(&addresses) == 0 {
            tokio::task::yield_now().await;
        }
        // One of the two lookups gets it. The other one has no answer.
        answers.send(Ok(vec![address("10.0.0.1:1")])).unwrap();
        assert_eq!(addresses.order().await.unwrap(), [address("10.0.0.1:1")]);
        assert_eq!(first.await.unwrap(), [address("10.0.0.1:1")]);
        drop(answers);
    }

    #[test]
    fn order_of_addresses() {
        struct Case {
            worked: Option<&'static str>,
            trials: &'static [&'static str],
            expected: [&'static str; 4],
        }
        let cases = [
            Case { worked: None, trials: &[], expected: ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"] },
            Case {
                worked: Some("[::3]:1"),
                trials: &[],
                expected: ["[::3]:1", "[::1]:1", "1.1.1.1:1", "[::2]:1"],
            },
            Case {
                worked: Some("[::3]:1"),
                trials: &["[::3]:1", "[::1]:1"],
                expected: ["1.1.1.1:1", "[::2]:1", "[::3]:1", "[::1]:1"],
            },
            Case {
                worked: None,
                trials: &["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1", "[::1]:1"],
                expected: ["1.1.1.1:1", "[::2]:1", "[::3]:1", "[::1]:1"],
            },
            Case {
                worked: Some("9.9.9.9:1"),
                trials: &[],
                expected: ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"],
            },
        ];
        for Case { worked, trials, expected } in cases {
            let state = State {
                known: ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(address).into(),
                worked: worked.map(address),
                trials: trials.iter().copied().map(address).collect(),
                ..State::default()
            };
            assert_eq!(state.order(), expected.map(address));
        }
    }

    #[test]
    fn trial_ends_when_dropped() {
        let addresses = Addresses::of("10.0.0.1", 1, Arc::new(clock()));
        let one = address("10.0.0.1:1");
        let (first, second) = (addresses.attempt(one), addresses.attempt(one));
        first.succeed();
        assert_eq!(addresses.0.state.borrow().trials, [one]);
        assert_eq!(addresses.0.state.borrow().worked, Some(one));
        drop(second);
        assert!(addresses.0.state.borrow().trials.is_empty());
    }
}
