//! Probes of a manager's secure port, and the measurements under its clients.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use kcm_clock::{Clock, RealClock};
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    clients::{Counts, tls},
    error::SuiteError,
    lease::Renewal,
    measure::Measurement,
    verdict::{DEFAULT, Quantity},
};

/// Interval of the probes.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of a probe. A failed probe counts as one that took this time.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// Timeout of the kubelet's probes.
const TIMEOUT: f64 = 1.0;
/// Two retry periods of the election. A renewal is late after that.
const ON_TIME: f64 = 4.0;
/// Memory limit of the manifests in MiB.
const MEMORY: f64 = 256.0;
const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Measurements of a run with a client of the secure port.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct UnderClient {
    /// Time of the slowest probe in seconds.
    pub(crate) slowest_probe: f64,
    /// Probes that failed or took longer than the timeout of the kubelet.
    pub(crate) failed_probes: u64,
    /// Longest time between two renewals in seconds.
    pub(crate) renewal: f64,
    /// Seconds from the start of the rollout to convergence.
    pub(crate) rollout: f64,
    /// Counts of the client.
    pub(crate) client: Counts,
    /// First failures of probes.
    pub(crate) failures: Vec<String>,
}

/// Quantities of runs with a client of the secure port.
pub(crate) const QUANTITIES: [Quantity; 4] = [
    Quantity {
        name: "Slowest probe",
        unit: "s",
        floor: 0.5,
        of: |run| of(run, |under| under.slowest_probe),
        ..DEFAULT
    },
    Quantity {
        name: "Failed probes",
        floor: 1.0,
        of: |run| of(run, |under| under.failed_probes as f64),
        ..DEFAULT
    },
    Quantity {
        name: "Longest renewal",
        unit: "s",
        floor: 1.0,
        of: |run| of(run, |under| under.renewal),
        ..DEFAULT
    },
    // No less than 0.8 of upstream's speed.
    Quantity {
        name: "Rollout",
        unit: "s",
        floor: 1.0,
        share: 0.25,
        of: |run| of(run, |under| under.rollout),
        ..DEFAULT
    },
];

fn of(run: &Measurement, value: fn(&UnderClient) -> f64) -> f64 {
    run.under_client.as_ref().map_or(0.0, value)
}

/// Bounds of this manager that a run with a client exceeds.
pub(crate) fn exceeded(run: &Measurement) -> Vec<&'static str> {
    let Some(under) = &run.under_client else { return Vec::new() };
    let checks = [
        (under.slowest_probe > TIMEOUT || under.failed_probes > 0, "a probe took more than 1 s or failed"),
        (under.renewal > ON_TIME, "a renewal was more than 2 s late"),
        (run.memory > MEMORY, "more than 256 MiB"),
    ];
    checks.into_iter().filter(|(exceeds, _)| *exceeds).map(|(_, name)| name).collect()
}

/// Returns the longest time without a renewal between `start` and `end`.
pub(crate) fn longest_gap(renewals: &[Renewal], start: Duration, end: Duration) -> Duration {
    let inside = renewals.iter().map(|renewal| renewal.at).filter(|at| (start..end).contains(at));
    // The renewal before the start is not known to be observed in time.
    let before = renewals.iter().map(|renewal| renewal.at).rfind(|at| *at < start).unwrap_or(start);
    let times: Vec<_> = std::iter::once(before).chain(inside).chain([end]).collect();
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or_default()
}

#[derive(Debug)]
struct Sent {
    at: Duration,
    /// Time and failure of the response.
    ended: Option<(Duration, Option<String>)>,
}

/// Running probes, one a second, each with its own connection. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Probe {
    sent: Arc<Mutex<Vec<Sent>>>,
    clock: RealClock,
    _task: JoinSet<()>,
}

impl Probe {
    pub(crate) fn start(address: SocketAddr, clock: RealClock) -> Result<Self, SuiteError> {
        let config = tls::config("http/1.1", None)?;
        let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
        let mut task = JoinSet::new();
        let (all, own_clock) = (Arc::clone(&sent), clock.clone());
        task.spawn(async move {
            let mut probes = JoinSet::new();
            loop {
                let at = own_clock.monotonic();
                let index = {
                    let mut all = all.lock();
                    all.push(Sent { at, ended: None });
                    all.len() - 1
                };
                let (all, config, clock) = (Arc::clone(&all), Arc::clone(&config), own_clock.clone());
                probes.spawn(async move {
                    let answer = tokio::time::timeout(LIMIT, probe(address, &config)).await;
                    let failure = match answer {
                        Ok(Ok(())) => None,
                        Ok(Err(error)) => Some(error.to_string()),
                        Err(_) => Some("no answer".to_owned()),
                    };
                    let took = clock.monotonic().saturating_sub(at);
                    if let Some(sent) = all.lock().get_mut(index) {
                        sent.ended = Some((took, failure));
                    }
                });
                while probes.try_join_next().is_some() {}
                own_clock.sleep(INTERVAL).await;
            }
        });
        Ok(Self { sent, clock, _task: task })
    }

    /// Returns the measurements of the probes so far.
    pub(crate) fn measured(&self) -> UnderClient {
        let mut under = UnderClient::default();
        let now = self.clock.monotonic();
        for sent in &*self.sent.lock() {
            let (took, failure) = match &sent.ended {
                Some((_, Some(failure))) => (LIMIT, Some(failure.clone())),
                Some((took, None)) => (*took, None),
                None => (now.saturating_sub(sent.at).min(LIMIT), None),
            };
            under.slowest_probe = under.slowest_probe.max(took.as_secs_f64());
            under.failed_probes += u64::from(took.as_secs_f64() > TIMEOUT);
            under.failures.extend(failure.filter(|_| under.failures.len() < 5));
        }
        under
    }
}

/// Sends a request as the kubelet does.
async fn probe(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<()> {
    let mut stream = tls::connect(TcpStream::connect(address).await?, config).await?;
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    if answer.starts_with("HTTP/1.1 200") {
        return Ok(());
    }
    Err(io::Error::other(answer.lines().next().unwrap_or("closed without a response").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_gap_includes_the_ends() {
        let at = |seconds| Renewal {
            at: Duration::from_secs(seconds),
            holder: "a".to_owned(),
            renew_time: String::new(),
        };
        let renewals = [at(1), at(9), at(11), at(15)];
        let gap = |start, end| {
            longest_gap(&renewals, Duration::from_secs(start), Duration::from_secs(end)).as_secs()
        };
        assert_eq!(gap(10, 16), 4);
        assert_eq!(gap(8, 12), 8);
        assert_eq!(gap(10, 30), 15);
        assert_eq!(gap(20, 22), 7);
    }
}
