//! The external system that pods take seats of.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use thiserror::Error;

/// Reservations of seats. Both calls can take minutes, and can be repeated.
pub trait Reservations: Send + Sync + 'static {
    /// Reserves `seats` seats for the pool with this UID, or changes their number. A reservation ends half an hour after its
    /// last renewal.
    fn reserve(&self, pool: &str, seats: u32) -> impl Future<Output = Result<(), ReservationError>> + Send;

    /// Ends the reservation, if there is one.
    fn release(&self, pool: &str) -> impl Future<Output = Result<(), ReservationError>> + Send;
}

/// Failure of the external system.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("failed to change the reservation: {0}")]
pub struct ReservationError(pub String);

/// Reservations in memory. Each call takes `delay`.
#[derive(Debug, Default)]
pub struct FakeReservations {
    /// Time that a call takes.
    pub delay: Duration,
    seats: Mutex<BTreeMap<String, u32>>,
}

impl FakeReservations {
    /// No reservations.
    pub fn new(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Reserved seats of all pools.
    pub fn seats(&self) -> Vec<u32> {
        self.lock().values().copied().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.seats.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Reservations for FakeReservations {
    async fn reserve(&self, pool: &str, seats: u32) -> Result<(), ReservationError> {
        tokio::time::sleep(self.delay).await;
        self.lock().insert(pool.to_owned(), seats);
        Ok(())
    }

    async fn release(&self, pool: &str) -> Result<(), ReservationError> {
        tokio::time::sleep(self.delay).await;
        self.lock().remove(pool);
        Ok(())
    }
}

impl<R: Reservations> Reservations for std::sync::Arc<R> {
    fn reserve(&self, pool: &str, seats: u32) -> impl Future<Output = Result<(), ReservationError>> + Send {
        R::reserve(self, pool, seats)
    }

    fn release(&self, pool: &str) -> impl Future<Output = Result<(), ReservationError>> + Send {
        R::release(self, pool)
    }
}
