//! Cache of review results.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use kcm_clock::Clock;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of reviews that have not ended. A review with the largest token takes about 20 KB.
const MAX_PENDING: usize = 256;

/// Hash of a review request.
pub(super) type Key = [u8; 32];

/// Result of a review: a value with its TTL, or an error.
pub(super) type ReviewResult<V> = Result<(V, Duration), Arc<str>>;

/// Reason why a lookup has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReviewError {
    /// There are [`MAX_PENDING`] other reviews.
    Busy,
    /// The review failed.
    Failed(Arc<str>),
}

/// Limit of the number of pending reviews. Clones share it.
#[derive(Clone)]
pub(super) struct ReviewQueue(Arc<Semaphore>);

impl ReviewQueue {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_PENDING)))
    }
}

/// Cache with a maximum number of entries. Concurrent lookups of a key share one review. Errors are not cached.
pub(super) struct Cache<V> {
    entries: Arc<Mutex<HashMap<Key, Entry<V>>>>,
    capacity: usize,
    queue: ReviewQueue,
    clock: Arc<dyn Clock>,
}

enum Entry<V> {
    Cached { value: V, until: Duration },
    Pending(Shared<BoxFuture<'static, ReviewResult<V>>>),
}

impl<V: Clone + Send + Sync + 'static> Cache<V> {
    pub(super) fn new(capacity: usize, queue: ReviewQueue, clock: Arc<dyn Clock>) -> Self {
        Self { entries: Arc::default(), capacity, queue, clock }
    }

    /// Returns the value of `key`. Runs `review` if it is not cached.
    ///
    /// # Errors
    ///
    /// The error of `review`, or if there are too many pending reviews.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait. The review continues, for other callers.
    pub(super) async fn get(
        &self,
        key: Key,
        review: impl Future<Output = ReviewResult<V>> + Send + 'static,
    ) -> Result<V, ReviewError> {
        let result = {
            let mut entries = self.entries.lock();
            let now = self.clock.monotonic();
            match entries.get(&key) {
                Some(Entry::Cached { value, until }) if now < *until => return Ok(value.clone()),
                Some(Entry::Pending(result)) => result.clone(),
                _ => {
                    let permit = Arc::clone(&self.queue.0).try_acquire_owned();
                    let permit = permit.map_err(|_| ReviewError::Busy)?;
                    if !make_room(&mut entries, self.capacity, now) {
                        return Err(ReviewError::Busy);
                    }
                    let result = self.start(key, review, permit);
                    entries.insert(key, Entry::Pending(result.clone()));
                    result
                }
            }
        };
        result.await.map(|(value, _)| value).map_err(ReviewError::Failed)
    }

    /// Runs `review` in a task that caches its result and keeps `permit`.
    fn start(
        &self,
        key: Key,
        review: impl Future<Output = ReviewResult<V>> + Send + 'static,
        permit: OwnedSemaphorePermit,
    ) -> Shared<BoxFuture<'static, ReviewResult<V>>> {
        let entries = Arc::clone(&self.entries);
        let clock = Arc::clone(&self.clock);
        let pending = PendingGuard { entries: Arc::clone(&entries), key };
        let task = tokio::spawn(async move {
            let _permit = permit;
            let result = review.await;
            if let Ok((value, ttl)) = &result
                && !ttl.is_zero()
            {
                let until = clock.monotonic().saturating_add(*ttl);
                entries.lock().insert(key, Entry::Cached { value: value.clone(), until });
            }
            drop(pending);
            result
        });
        task.map(|ended| ended.unwrap_or_else(|error| Err(error.to_string().into()))).boxed().shared()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

/// Removes a pending entry whose review has ended without a value to cache, or panicked.
struct PendingGuard<V> {
    entries: Arc<Mutex<HashMap<Key, Entry<V>>>>,
    key: Key,
}

impl<V> Drop for PendingGuard<V> {
    fn drop(&mut self) {
        let mut entries = self.entries.lock();
        if matches!(entries.get(&self.key), Some(Entry::Pending(_))) {
            entries.remove(&self.key);
        }
    }
}

/// Removes expired entries, or else the entry that expires next. Returns `true` if there is room for another entry.
fn make_room<V>(entries: &mut HashMap<Key, Entry<V>>, capacity: usize, now: Duration) -> bool {
    if entries.len() < capacity {
        return true;
    }
    entries.retain(|_, entry| !matches!(entry, Entry::Cached { until, .. } if *until <= now));
    if entries.len() < capacity {
        return true;
    }
    let next = entries.iter().filter_map(|(key, entry)| match entry {
        Entry::Cached { until, .. } => Some((*until, *key)),
        Entry::Pending(_) => None,
    });
    let Some((_, next)) = next.min() else { return false };
    entries.remove(&next).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kcm_clock::{FakeClock, Timestamp};
    use tokio::sync::Notify;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    struct Calls(Arc<AtomicUsize>);

    impl Calls {
        fn result(&self, result: ReviewResult<u32>) -> impl Future<Output = ReviewResult<u32>> + use<> {
            let count = Arc::clone(&self.0);
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                result
            }
        }

        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn failed(message: &str) -> Result<u32, ReviewError> {
        Err(ReviewError::Failed(message.into()))
    }

    fn cache(capacity: usize) -> (FakeClock, Cache<u32>, Calls) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        (clock.clone(), Cache::new(capacity, ReviewQueue::new(), Arc::new(clock)), Calls(Arc::default()))
    }

    #[tokio::test]
    async fn value_is_cached_for_its_ttl() {
        let (clock, cache, calls) = cache(10);
        for _ in 0..3 {
            assert_eq!(cache.get([1; 32], calls.result(Ok((7, TTL)))).await, Ok(7));
        }
        assert_eq!(calls.count(), 1);
        clock.step(TTL);
        assert_eq!(cache.get([1; 32], calls.result(Ok((8, TTL)))).await, Ok(8));
        assert_eq!(calls.count(), 2);
    }

    #[tokio::test]
    async fn errors_and_zero_ttls_are_not_cached() {
        let (_clock, cache, calls) = cache(10);
        for _ in 0..2 {
            assert_eq!(cache.get([1; 32], calls.result(Ok((7, Duration::ZERO)))).await, Ok(7));
            assert_eq!(cache.get([2; 32], calls.result(Err("no".into()))).await, failed("no"));
        }
        assert_eq!((calls.count(), cache.len()), (4, 0));
    }

    #[tokio::test]
    async fn concurrent_lookups_share_a_review_that_outlives_the_first() {
        let (_clock, cache, calls) = cache(10);
        let gate = Arc::new(Notify::new());
        let slow = || {
            let (gate, result) = (Arc::clone(&gate), calls.result(Ok((7, TTL))));
            async move {
                gate.notified().await;
                result.await
            }
        };
        let mut first = Box::pin(cache.get([1; 32], slow()));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut second = Box::pin(cache.get([1; 32], slow()));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        gate.notify_one();
        assert_eq!(second.await, Ok(7));
        assert_eq!(calls.count(), 1);
    }

    #[tokio::test]
    async fn full_cache_removes_the_entry_that_expires_next() {
        let (clock, cache, calls) = cache(2);
        for key in 1..=3 {
            cache.get([key; 32], calls.result(Ok((key.into(), TTL)))).await.unwrap();
            clock.step(Duration::from_secs(1));
        }
        assert_eq!(cache.len(), 2);
        cache.get([3; 32], calls.result(Ok((3, TTL)))).await.unwrap();
        cache.get([2; 32], calls.result(Ok((2, TTL)))).await.unwrap();
        assert_eq!(calls.count(), 3, "the second and the third are cached");
    }

    #[tokio::test]
    async fn cache_full_of_pending_reviews_rejects_another() {
        let (_clock, cache, calls) = cache(1);
        let mut first = Box::pin(cache.get([1; 32], std::future::pending()));
        assert!(futures_util::poll!(&mut first).is_pending());
        let refused = cache.get([2; 32], calls.result(Ok((2, TTL)))).await;
        assert_eq!(refused, Err(ReviewError::Busy));
    }

    #[tokio::test]
    async fn caches_share_the_limit_of_pending_reviews() {
        let (clock, tokens, calls) = cache(2048);
        let decisions = Cache::new(2048, tokens.queue.clone(), Arc::new(clock));
        let gate = Arc::new(Semaphore::new(0));
        let key = |n: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_be_bytes());
            key
        };
        let mut pending = Vec::new();
        for n in 0..MAX_PENDING {
            let (gate, result) = (Arc::clone(&gate), calls.result(Ok((7, TTL))));
            let review = async move {
                gate.acquire().await.unwrap().forget();
                result.await
            };
            let mut lookup = Box::pin(if n % 2 == 0 { &tokens } else { &decisions }.get(key(n), review));
            assert!(futures_util::poll!(&mut lookup).is_pending());
            // The review of a client that has gone still counts.
            if n > 1 {
                drop(lookup);
            } else {
                pending.push(lookup);
            }
        }
        for cache in [&tokens, &decisions] {
            let other = cache.get(key(MAX_PENDING), calls.result(Ok((7, TTL))));
            assert_eq!(other.await, Err(ReviewError::Busy));
        }
        assert!(futures_util::poll!(&mut pending[0]).is_pending(), "waits with the others");
        let mut same = Box::pin(tokens.get(key(0), calls.result(Ok((7, TTL)))));
        assert!(futures_util::poll!(&mut same).is_pending(), "an equal lookup takes no place");
        gate.add_permits(MAX_PENDING);
        assert_eq!(same.await, Ok(7));
        while tokens.queue.0.available_permits() < MAX_PENDING {
            tokio::task::yield_now().await;
        }
        let other = decisions.get(key(MAX_PENDING), calls.result(Ok((8, TTL))));
        assert_eq!(other.await, Ok(8));
    }

    #[tokio::test]
    async fn panicking_review_is_an_error_and_can_be_retried() {
        let (_clock, cache, calls) = cache(10);
        assert!(cache.get([1; 32], async { panic!("boom") }).await.is_err());
        assert_eq!(cache.get([1; 32], calls.result(Ok((7, TTL)))).await, Ok(7));
    }
}
