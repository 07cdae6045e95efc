//! Cache of review results.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use kcm_clock::Clock;
use parking_lot::Mutex;

/// Hash of a review request.
pub(super) type Key = [u8; 32];

/// Result of a review: a value with its TTL, or an error.
pub(super) type ReviewResult<V> = Result<(V, Duration), Arc<str>>;

/// Cache with a maximum number of entries. Concurrent lookups of a key share one review. Errors are not cached.
pub(super) struct Cache<V> {
    entries: Arc<Mutex<HashMap<Key, Entry<V>>>>,
    capacity: usize,
    clock: Arc<dyn Clock>,
}

enum Entry<V> {
    Cached { value: V, until: Duration },
    Pending(Shared<BoxFuture<'static, ReviewResult<V>>>),
}

impl<V: Clone + Send + Sync + 'static> Cache<V> {
    pub(super) fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        Self { entries: Arc::default(), capacity, clock }
    }

    /// Returns the value of `key`. Runs `review` if it is not cached.
    ///
    /// # Errors
    ///
    /// The error of `review`, or if the cache is full of pending reviews.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait. The review continues, for other callers.
    pub(super) async fn get(
        &self,
        key: Key,
        review: impl Future<Output = ReviewResult<V>> + Send + 'static,
    ) -> Result<V, Arc<str>> {
        let result = {
            let mut entries = self.entries.lock();
            let now = self.clock.monotonic();
            match entries.get(&key) {
                Some(Entry::Cached { value, until }) if now < *until => return Ok(value.clone()),
                Some(Entry::Pending(result)) => result.clone(),
                _ => {
                    if !make_room(&mut entries, self.capacity, now) {
                        return Err("too many pending reviews".into());
                    }
                    let result = self.start(key, review);
                    entries.insert(key, Entry::Pending(result.clone()));
                    result
                }
            }
        };
        result.await.map(|(value, _)| value)
    }

    /// Runs `review` in a task that caches its result.
    fn start(
        &self,
        key: Key,
        review: impl Future<Output = ReviewResult<V>> + Send + 'static,
    ) -> Shared<BoxFuture<'static, ReviewResult<V>>> {
        let entries = Arc::clone(&self.entries);
        let clock = Arc::clone(&self.clock);
        let pending = PendingGuard { entries: Arc::clone(&entries), key };
        let task = tokio::spawn(async move {
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

    fn cache(capacity: usize) -> (FakeClock, Cache<u32>, Calls) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        (clock.clone(), Cache::new(capacity, Arc::new(clock)), Calls(Arc::default()))
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
            assert_eq!(cache.get([2; 32], calls.result(Err("no".into()))).await, Err("no".into()));
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
        assert_eq!(refused, Err("too many pending reviews".into()));
    }

    #[tokio::test]
    async fn panicking_review_is_an_error_and_can_be_retried() {
        let (_clock, cache, calls) = cache(10);
        assert!(cache.get([1; 32], async { panic!("boom") }).await.is_err());
        assert_eq!(cache.get([1; 32], calls.result(Ok((7, TTL)))).await, Ok(7));
    }
}
