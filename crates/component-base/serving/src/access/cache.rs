//! Answers that are kept for a while.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use kcm_clock::Clock;
use parking_lot::Mutex;

/// A question, known by its hash alone.
pub(super) type Key = [u8; 32];

/// What came of a question: an answer and how long it holds, or why there is none.
pub(super) type Outcome<V> = Result<(V, Duration), Arc<str>>;

/// Answers to questions that cost something. One that is being asked is not asked a second time; failures are not
/// kept; no more than a number of answers are.
pub(super) struct Cache<V> {
    entries: Arc<Mutex<HashMap<Key, Entry<V>>>>,
    capacity: usize,
    clock: Arc<dyn Clock>,
}

enum Entry<V> {
    Known { value: V, until: Duration },
    Asked(Shared<BoxFuture<'static, Outcome<V>>>),
}

impl<V: Clone + Send + Sync + 'static> Cache<V> {
    pub(super) fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        Self { entries: Arc::default(), capacity, clock }
    }

    /// The answer to `key`, by `ask` if it is not known.
    ///
    /// # Errors
    ///
    /// What `ask` says, or that too much is being asked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops waiting; what is being asked is asked to its end, for those who wait for it too.
    pub(super) async fn get(
        &self,
        key: Key,
        ask: impl Future<Output = Outcome<V>> + Send + 'static,
    ) -> Result<V, Arc<str>> {
        let outcome = {
            let mut entries = self.entries.lock();
            let now = self.clock.monotonic();
            match entries.get(&key) {
                Some(Entry::Known { value, until }) if now < *until => return Ok(value.clone()),
                Some(Entry::Asked(outcome)) => outcome.clone(),
                _ => {
                    if !make_room(&mut entries, self.capacity, now) {
                        return Err("too many questions are being asked".into());
                    }
                    let outcome = self.begin(key, ask);
                    entries.insert(key, Entry::Asked(outcome.clone()));
                    outcome
                }
            }
        };
        outcome.await.map(|(value, _)| value)
    }

    /// Asks in a task of its own, which writes down what comes of it.
    fn begin(
        &self,
        key: Key,
        ask: impl Future<Output = Outcome<V>> + Send + 'static,
    ) -> Shared<BoxFuture<'static, Outcome<V>>> {
        let entries = Arc::clone(&self.entries);
        let clock = Arc::clone(&self.clock);
        let forget = Forget { entries: Arc::clone(&entries), key };
        let task = tokio::spawn(async move {
            let outcome = ask.await;
            if let Ok((value, holds)) = &outcome
                && !holds.is_zero()
            {
                let until = clock.monotonic().saturating_add(*holds);
                entries.lock().insert(key, Entry::Known { value: value.clone(), until });
            }
            drop(forget);
            outcome
        });
        task.map(|ended| ended.unwrap_or_else(|error| Err(error.to_string().into()))).boxed().shared()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

/// Removes a question whose asking has ended without an answer to keep, in a panic too.
struct Forget<V> {
    entries: Arc<Mutex<HashMap<Key, Entry<V>>>>,
    key: Key,
}

impl<V> Drop for Forget<V> {
    fn drop(&mut self) {
        let mut entries = self.entries.lock();
        if matches!(entries.get(&self.key), Some(Entry::Asked(_))) {
            entries.remove(&self.key);
        }
    }
}

/// Whether there is room for one more, after what has expired, or else what will expire next, has made some.
fn make_room<V>(entries: &mut HashMap<Key, Entry<V>>, capacity: usize, now: Duration) -> bool {
    if entries.len() < capacity {
        return true;
    }
    entries.retain(|_, entry| !matches!(entry, Entry::Known { until, .. } if *until <= now));
    if entries.len() < capacity {
        return true;
    }
    let next = entries.iter().filter_map(|(key, entry)| match entry {
        Entry::Known { until, .. } => Some((*until, *key)),
        Entry::Asked(_) => None,
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

    struct Asked(Arc<AtomicUsize>);

    impl Asked {
        fn answer(&self, outcome: Outcome<u32>) -> impl Future<Output = Outcome<u32>> + use<> {
            let count = Arc::clone(&self.0);
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                outcome
            }
        }

        fn times(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn cache(capacity: usize) -> (FakeClock, Cache<u32>, Asked) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        (clock.clone(), Cache::new(capacity, Arc::new(clock)), Asked(Arc::default()))
    }

    #[tokio::test]
    async fn answer_is_kept_for_as_long_as_it_holds() {
        let (clock, cache, asked) = cache(10);
        for _ in 0..3 {
            assert_eq!(cache.get([1; 32], asked.answer(Ok((7, TTL)))).await, Ok(7));
        }
        assert_eq!(asked.times(), 1);
        clock.step(TTL);
        assert_eq!(cache.get([1; 32], asked.answer(Ok((8, TTL)))).await, Ok(8));
        assert_eq!(asked.times(), 2);
    }

    #[tokio::test]
    async fn answer_that_does_not_hold_and_failure_are_not_kept() {
        let (_clock, cache, asked) = cache(10);
        for _ in 0..2 {
            assert_eq!(cache.get([1; 32], asked.answer(Ok((7, Duration::ZERO)))).await, Ok(7));
            assert_eq!(cache.get([2; 32], asked.answer(Err("no".into()))).await, Err("no".into()));
        }
        assert_eq!((asked.times(), cache.len()), (4, 0));
    }

    #[tokio::test]
    async fn question_that_is_being_asked_is_not_asked_again_though_the_first_leaves() {
        let (_clock, cache, asked) = cache(10);
        let gate = Arc::new(Notify::new());
        let slow = || {
            let (gate, answer) = (Arc::clone(&gate), asked.answer(Ok((7, TTL))));
            async move {
                gate.notified().await;
                answer.await
            }
        };
        let mut first = Box::pin(cache.get([1; 32], slow()));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut second = Box::pin(cache.get([1; 32], slow()));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        gate.notify_one();
        assert_eq!(second.await, Ok(7));
        assert_eq!(asked.times(), 1);
    }

    #[tokio::test]
    async fn full_cache_drops_what_would_expire_next() {
        let (clock, cache, asked) = cache(2);
        for key in 1..=3 {
            cache.get([key; 32], asked.answer(Ok((key.into(), TTL)))).await.unwrap();
            clock.step(Duration::from_secs(1));
        }
        assert_eq!(cache.len(), 2);
        cache.get([3; 32], asked.answer(Ok((3, TTL)))).await.unwrap();
        cache.get([2; 32], asked.answer(Ok((2, TTL)))).await.unwrap();
        assert_eq!(asked.times(), 3, "the second and the third are still there");
    }

    #[tokio::test]
    async fn cache_full_of_questions_refuses_more() {
        let (_clock, cache, asked) = cache(1);
        let mut first = Box::pin(cache.get([1; 32], std::future::pending()));
        assert!(futures_util::poll!(&mut first).is_pending());
        let refused = cache.get([2; 32], asked.answer(Ok((2, TTL)))).await;
        assert_eq!(refused, Err("too many questions are being asked".into()));
    }

    #[tokio::test]
    async fn asking_that_panics_is_a_failure_and_can_be_tried_again() {
        let (_clock, cache, asked) = cache(10);
        assert!(cache.get([1; 32], async { panic!("boom") }).await.is_err());
        assert_eq!(cache.get([1; 32], asked.answer(Ok((7, TTL)))).await, Ok(7));
    }
}
