//! Model of client-go's candidate: its loops, its rules, and its record with whole seconds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kcm_api::{ApiError, Lease, ObjectKey};
use kcm_clock::{Random, SeededRandom, Timestamp, jitter};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::network::Network;
use crate::LeaseLock;

const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// `max(1s, renewDeadline/2)`
const HTTP: Duration = Duration::from_secs(5);

/// Observable state of the candidate.
#[derive(Default)]
pub(super) struct GoCandidate {
    is_leading: AtomicBool,
    terms: AtomicU64,
}

impl GoCandidate {
    pub(super) fn is_leading(&self) -> bool {
        self.is_leading.load(Ordering::SeqCst)
    }

    /// Number of leaderships.
    pub(super) fn terms(&self) -> u64 {
        self.terms.load(Ordering::SeqCst)
    }

    /// Runs candidates one after another, each as a new process, until `stop` is cancelled.
    pub(super) async fn run(
        self: Arc<Self>,
        name: &'static str,
        lock: Arc<Network>,
        seed: u64,
        stop: CancellationToken,
        release: bool,
        elected: impl Fn(),
    ) {
        let random = SeededRandom::new(seed);
        for process in 0.. {
            if stop.is_cancelled() {
                return;
            }
            let mut elector = Elector {
                identity: format!("{name}_{process}"),
                lock: Arc::clone(&lock),
                lease: None,
                observed: Record::default(),
                observed_raw: String::new(),
                observed_time: Instant::now(),
            };
            while !elector.try_acquire_or_renew().await {
                sleep(jitter(&random, RETRY, 1.2)).await;
                if stop.is_cancelled() {
                    return;
                }
            }
            self.terms.fetch_add(1, Ordering::SeqCst);
            self.is_leading.store(true, Ordering::SeqCst);
            elected();
            // Stops from time to time, as a process that is terminated.
            let resign = Instant::now() + Duration::from_secs(20 + random.next_u64() % 120);
            loop {
                let deadline = Instant::now() + RENEW_DEADLINE;
                let mut next = Instant::now();
                let renewed = timeout_at(deadline, async {
                    loop {
                        sleep_until(next).await;
                        next = Instant::now() + RETRY;
                        if elector.try_acquire_or_renew().await {
                            return;
                        }
                    }
                });
                if renewed.await.is_err() || Instant::now() > resign {
                    break;
                }
                sleep(RETRY).await;
            }
            self.is_leading.store(false, Ordering::SeqCst);
            if release {
                let _ = timeout(RENEW_DEADLINE, elector.release()).await;
            }
        }
    }
}

/// The record in memory has fractions of seconds; its JSON, by which records are compared, has not.
#[derive(Clone, Default)]
struct Record {
    holder: String,
    duration: i64,
    acquire: Value,
    renew: Value,
    transitions: i64,
}

struct Elector {
    identity: String,
    lock: Arc<Network>,
    lease: Option<Lease>,
    observed: Record,
    observed_raw: String,
    observed_time: Instant,
}

impl Elector {
    fn is_leader(&self) -> bool {
        self.observed.holder == self.identity
    }

    fn is_lease_valid(&self, now: Instant) -> bool {
        self.observed_time + Duration::from_secs(self.observed.duration.unsigned_abs()) > now
    }

    fn observe(&mut self, record: Record) {
        self.observed = record;
        self.observed_time = Instant::now();
    }

    async fn try_acquire_or_renew(&mut self) -> bool {
        let now = Instant::now();
        let mut record = Record {
            holder: self.identity.clone(),
            duration: 15,
            acquire: written(now),
            renew: written(now),
            transitions: 0,
        };
        if self.is_leader() && self.is_lease_valid(now) {
            record.acquire = self.observed.acquire.clone();
            record.transitions = self.observed.transitions;
            if self.update(&record).await.is_ok() {
                self.observe(record);
                return true;
            }
        }
        let read = match self.get().await {
            Ok(read) => read,
            Err(error) if error.is_not_found() => {
                if self.create(&record).await.is_err() {
                    return false;
                }
                self.observe(record);
                return true;
            }
            Err(_) => return false,
        };
        let raw = read.raw();
        if raw != self.observed_raw {
            self.observe(read.clone());
            self.observed_raw = raw;
        }
        if !read.holder.is_empty() && self.is_lease_valid(now) && !self.is_leader() {
            return false;
        }
        if self.is_leader() {
            record.acquire = read.acquire;
            record.transitions = read.transitions;
        } else {
            record.transitions = read.transitions + 1;
        }
        if self.update(&record).await.is_err() {
            return false;
        }
        self.observe(record);
        true
    }

    async fn release(&mut self) {
        loop {
            let Ok(read) = self.get().await else { return };
            if !self.is_leader() {
                return;
            }
            let now = written(Instant::now());
            let record = Record {
                holder: String::new(),
                duration: 1,
                acquire: now.clone(),
                renew: now,
                transitions: read.transitions,
            };
            match self.update(&record).await {
                Err(error) if error.is_conflict() => {}
                _ => return,
            }
        }
    }

    async fn get(&mut self) -> Result<Record, ApiError> {
        let lease = in_time(self.lock.get(&ObjectKey::new("kube-system", "kcm"))).await?;
        let spec = serde_json::to_value(&lease.spec).unwrap();
        self.lease = Some(lease);
        Ok(Record {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            duration: spec["leaseDurationSeconds"].as_i64().unwrap_or_default(),
            acquire: spec["acquireTime"].clone(),
            renew: spec["renewTime"].clone(),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or_default(),
        })
    }

    async fn create(&mut self, record: &Record) -> Result<(), ApiError> {
        let lease = record.lease(&json!({"name": "kcm", "namespace": "kube-system"}));
        self.lease = Some(in_time(self.lock.create(&lease)).await?);
        Ok(())
    }

    async fn update(&mut self, record: &Record) -> Result<(), ApiError> {
        let Some(lease) = &self.lease else { return Err(ApiError::Decode("no lease yet".into())) };
        let lease = record.lease(&serde_json::to_value(&lease.metadata).unwrap());
        self.lease = Some(in_time(self.lock.update(&lease)).await?);
        Ok(())
    }
}

impl Record {
    fn lease(&self, metadata: &Value) -> Lease {
        serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {
                "holderIdentity": self.holder, "leaseDurationSeconds": self.duration, "acquireTime": self.acquire,
                "renewTime": self.renew, "leaseTransitions": self.transitions,
            },
        }))
        .unwrap()
    }

    fn raw(&self) -> String {
        let second = |time: &Value| time.as_str().map(|text| text[..19].to_owned());
        format!(
            "{:?}",
            (&self.holder, self.duration, second(&self.acquire), second(&self.renew), self.transitions)
        )
    }
}

fn written(now: Instant) -> Value {
    // The paused clock starts anywhere; only that it moves matters.
    let elapsed = now.duration_since(*ORIGIN);
    let time = Timestamp::UNIX_EPOCH.checked_add(elapsed).unwrap();
    json!(format!("{time:.6}"))
}

/// Before any instant of a test.
static ORIGIN: std::sync::LazyLock<Instant> =
    std::sync::LazyLock::new(|| Instant::now().checked_sub(Duration::from_secs(3600)).unwrap());

async fn in_time<T>(what: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    timeout(HTTP, what).await.unwrap_or_else(|_| Err(ApiError::Timeout("lease".to_owned())))
}
