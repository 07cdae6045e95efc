//! Lease behind a network.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::{ApiError, Lease, ObjectKey, error::reason};
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use crate::{LeaseLock, LeaseRequest, MemoryLock};

/// Fate of a request. It continues even if the caller drops its future.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trip {
    /// Time until the request arrives.
    pub(super) out: Duration,
    /// `true` if the request arrives.
    pub(super) arrives: bool,
    /// Time until the response arrives.
    pub(super) back: Duration,
    pub(super) ending: Ending,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    Answer,
    /// The connection breaks.
    Break,
    /// 403 from something in between.
    Refusal,
    /// No answer, ever.
    Silence,
}

impl Trip {
    pub(super) fn good() -> Self {
        Self { out: Duration::ZERO, arrives: true, back: Duration::ZERO, ending: Ending::Answer }
    }

    pub(super) fn broken() -> Self {
        Self { arrives: false, ending: Ending::Break, ..Self::good() }
    }

    pub(super) fn refused() -> Self {
        Self { arrives: false, ending: Ending::Refusal, ..Self::good() }
    }

    pub(super) fn silent() -> Self {
        Self { arrives: false, ending: Ending::Silence, ..Self::good() }
    }
}

type Trips = Box<dyn FnMut() -> Trip + Send>;
type Watch = Box<dyn Fn(Option<&Lease>) + Send>;
type Before = (usize, Arc<dyn Fn() + Send + Sync>);

/// Network between one machine and the Lease.
pub(super) struct Network {
    server: Arc<Server>,
    trips: Mutex<Trips>,
    next: Mutex<VecDeque<Trip>>,
    before_updates: Mutex<Option<Before>>,
    log: Mutex<Vec<(Duration, &'static str)>>,
    start: Instant,
}

struct Server {
    lock: MemoryLock,
    watches: Mutex<Vec<Watch>>,
}

impl Network {
    pub(super) fn with(trips: impl FnMut() -> Trip + Send + 'static) -> Arc<Self> {
        let server = Arc::new(Server { lock: MemoryLock::new(), watches: Mutex::default() });
        Self::to(server, Instant::now(), trips)
    }

    fn to(server: Arc<Server>, start: Instant, trips: impl FnMut() -> Trip + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            server,
            trips: Mutex::new(Box::new(trips)),
            next: Mutex::default(),
            before_updates: Mutex::default(),
            log: Mutex::default(),
            start,
        })
    }

    /// No failures, no latency.
    pub(super) fn good() -> Arc<Self> {
        Self::with(Trip::good)
    }

    /// Network of another machine to the same Lease, without failures.
    pub(super) fn beside(other: &Self) -> Arc<Self> {
        Self::beside_with(other, Trip::good)
    }

    pub(super) fn beside_with(other: &Self, trips: impl FnMut() -> Trip + Send + 'static) -> Arc<Self> {
        Self::to(Arc::clone(&other.server), other.start, trips)
    }

    /// Sets the fate of all further requests.
    pub(super) fn all(&self, trips: impl FnMut() -> Trip + Send + 'static) {
        *self.trips.lock() = Box::new(trips);
    }

    /// Sets the fate of the next requests.
    pub(super) fn next(&self, trips: impl IntoIterator<Item = Trip>) {
        self.next.lock().extend(trips);
    }

    /// Calls `what` before each of the next updates.
    pub(super) fn before_updates(&self, times: usize, what: impl Fn() + Send + Sync + 'static) {
        *self.before_updates.lock() = Some((times, Arc::new(what)));
    }

    /// Calls `what` with each new state of the Lease.
    pub(super) fn watch(&self, what: impl Fn(Option<&Lease>) + Send + 'static) {
        self.server.watches.lock().push(Box::new(what));
    }

    /// Time and verb of each request.
    pub(super) fn log(&self) -> Vec<(Duration, &'static str)> {
        self.log.lock().clone()
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.server.lock.lease()
    }

    pub(super) fn edit(&self, change: impl FnOnce(&mut Lease)) {
        self.server.lock.edit(change);
    }

    /// Sets the version of the Lease, as the restore of a backup does.
    pub(super) fn restore(&self, version: u64) {
        self.server.lock.restore(version);
    }

    pub(super) fn delete(&self) {
        self.server.lock.delete();
    }

    async fn send(&self, verb: &'static str, request: LeaseRequest) -> Result<Lease, ApiError> {
        self.log.lock().push((self.start.elapsed(), verb));
        let next = self.next.lock().pop_front();
        let trip = next.unwrap_or_else(|| (self.trips.lock())());
        let (answer, answered) = oneshot::channel();
        let server = Arc::clone(&self.server);
        let before = if verb == "update" { self.take_before() } else { None };
        // Requests without latency complete at once, so that their order is defined.
        let under_way = async move {
            if !trip.out.is_zero() {
                sleep(trip.out).await;
            }
            let broken = Err(ApiError::Transport("the connection broke".into()));
            let result = match trip {
                Trip { arrives: true, .. } => {
                    if let Some(before) = before {
                        before();
                    }
                    server.carry_out(request).await
                }
                Trip { arrives: false, .. } => broken.clone(),
            };
            if !trip.back.is_zero() {
                sleep(trip.back).await;
            }
            // The caller may have dropped its future.
            let _ = match trip.ending {
                Ending::Answer => answer.send(result),
                Ending::Break => answer.send(broken),
                Ending::Refusal => answer.send(Err(ApiError::status(403, reason::FORBIDDEN, "no"))),
                Ending::Silence => {
                    std::future::pending::<()>().await;
                    Ok(())
                }
            };
        };
        if trip.out.is_zero() && trip.back.is_zero() && !matches!(trip.ending, Ending::Silence) {
            under_way.await;
        } else {
            tokio::spawn(under_way);
        }
        answered.await.unwrap_or_else(|_| Err(ApiError::Transport("connection closed".into())))
    }

    fn take_before(&self) -> Option<Arc<dyn Fn() + Send + Sync>> {
        let mut before = self.before_updates.lock();
        let (times, what) = before.as_mut()?;
        *times = times.checked_sub(1)?;
        Some(Arc::clone(what))
    }
}

impl Server {
    async fn carry_out(&self, request: LeaseRequest) -> Result<Lease, ApiError> {
        let is_write = request != LeaseRequest::Get;
        let result = match request {
            LeaseRequest::Get => self.lock.get(&ObjectKey::new("", "kcm")).await,
            LeaseRequest::Create(lease) => self.lock.create(&lease).await,
            LeaseRequest::Update(lease) => self.lock.update(&lease).await,
        };
        if is_write && result.is_ok() {
            for watch in &*self.watches.lock() {
                watch(self.lock.lease().as_ref());
            }
        }
        result
    }
}

#[async_trait]
impl LeaseLock for Network {
    async fn get(&self, _key: &ObjectKey) -> Result<Lease, ApiError> {
        self.send("get", LeaseRequest::Get).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.send("create", LeaseRequest::Create(lease.clone())).await
    }

    async fn update(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.send("update", LeaseRequest::Update(lease.clone())).await
    }
}
