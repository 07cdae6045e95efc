use kcm_clock::{FakeClock, Timestamp};
use parking_lot::Mutex;

use super::*;
use crate::{
    ItemPhase,
    metrics::{QueueMetrics, Refresh},
};

fn queue() -> (FakeClock, RateLimitingQueue<u32>) {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let queue = RateLimitingQueue::new(QueueConfig::new("test", Arc::new(clock.clone())));
    (clock, queue)
}

async fn process(queue: &RateLimitingQueue<u32>) -> Option<u32> {
    queue.get().await.as_deref().copied()
}

mod remaining_time {
    use super::*;
    use crate::{BucketRateLimiter, ItemExponentialFailureRateLimiter};

    fn queue_with(limiter: impl RateLimiter<u32>, clock: &FakeClock) -> RateLimitingQueue<u32> {
        let config = QueueConfig::new("test", Arc::new(clock.clone()));
        RateLimitingQueue::new(QueueConfig { rate_limiter: Box::new(limiter), ..config })
    }

    #[test]
    fn ends_with_the_last_delay() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let limiter = ItemExponentialFailureRateLimiter::new(Duration::from_secs(1), Duration::from_secs(9));
        let queue = queue_with(limiter, &clock);
        assert_eq!(queue.remaining(&1), None);
        queue.add_rate_limited(1);
        queue.add_rate_limited(1);
        clock.step(Duration::from_millis(500));
        assert_eq!((queue.remaining(&1), queue.remaining(&2)), (Some(Duration::from_millis(1500)), None));
        clock.step(Duration::from_millis(1500));
        assert_eq!(queue.remaining(&1), None);
    }

    #[test]
    fn ends_with_the_reserved_token() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let queue = queue_with(BucketRateLimiter::new(10.0, 1, Arc::new(clock.clone())), &clock);
        queue.add_rate_limited(1);
        queue.add_rate_limited(2);
        let remaining = || [1, 2].map(|item| queue.remaining(&item));
        assert_eq!(remaining(), [None, Some(Duration::from_millis(100))]);
        clock.step(Duration::from_millis(100));
        assert_eq!(remaining(), [None, None]);
        queue.add_rate_limited(1);
        queue.add_rate_limited(2);
        queue.forget(&2);
        assert_eq!(remaining(), [Some(Duration::from_millis(100)), None]);
    }
}

mod default_rate_limiter {
    use super::*;

    #[tokio::test]
    async fn delay_doubles_from_5_ms() {
        let (clock, queue) = queue();
        for retry in 0..15 {
            assert_eq!(queue.num_requeues(&7), retry);
            queue.add_rate_limited(7);
            let delay = Duration::from_millis(5) * 2_u32.pow(retry);
            clock.step(delay - Duration::from_nanos(1));
            assert!(queue.is_empty(), "retry {retry} came before {delay:?}");
            clock.step(Duration::from_nanos(1));
            assert_eq!(process(&queue).await, Some(7), "retry {retry} did not come after {delay:?}");
        }
        assert_eq!(queue.num_requeues(&7), 15);
    }

    #[tokio::test]
    async fn failure_during_a_delay_does_not_double_it() {
        let (clock, queue) = queue();
        let milliseconds = Duration::from_millis;
        // 5, 10, …, 640 ms.
        for retry in 0..8 {
            queue.add_rate_limited_once(7);
            clock.step(milliseconds(5 << retry));
            assert_eq!(process(&queue).await, Some(7), "retry {retry}");
        }
        queue.add_rate_limited_once(7);
        for _ in 0..4 {
            clock.step(milliseconds(200));
            queue.add(7);
            assert_eq!(process(&queue).await, Some(7));
            queue.add_rate_limited_once(7);
        }
        assert_eq!(queue.num_requeues(&7), 9);
        clock.step(milliseconds(479));
        assert!(queue.is_empty());
        clock.step(milliseconds(1));
        assert_eq!(process(&queue).await, Some(7), "1280 ms after the last counted failure");
    }

    /// A cache is late, events add the item meanwhile, and then the API server is not available.
    #[tokio::test]
    async fn waiting_item_does_not_delay_the_retry_of_a_failure() {
        let (clock, queue) = queue();
        for _ in 0..40 {
            queue.add(7);
            assert_eq!(process(&queue).await, Some(7));
            queue.add_backed_off(7);
            clock.step(Duration::from_millis(75));
        }
        assert!(queue.num_requeues(&7) <= 10, "{}", queue.num_requeues(&7));
        queue.add_rate_limited_once(7);
        let (mut waited, step) = (Duration::ZERO, Duration::from_millis(100));
        while queue.is_empty() {
            clock.step(step);
            waited += step;
        }
        assert!(waited <= Duration::from_secs(3), "{waited:?}");
    }

    /// Events add the items five times a second, while all of them fail.
    #[test]
    fn waiting_items_reserve_no_further_tokens() {
        let (clock, queue) = queue();
        for _ in 0..20 {
            for item in 0..200 {
                queue.add_rate_limited_once(item);
            }
            clock.step(Duration::from_millis(200));
        }
        let delay = queue.shared.limiter.when(&200);
        assert!(delay <= Duration::from_secs(20), "another item waits for {delay:?}");
    }

    #[test]
    fn delay_is_at_most_1000_s() {
        let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let limiter = default_controller_rate_limiter(clock);
        let delays: Vec<_> = (0..30).map(|_| limiter.when(&7).as_secs()).collect();
        assert_eq!(delays[16..20], [327, 655, 1000, 1000]);
        assert_eq!(delays[29], 1000);
    }

    #[test]
    fn items_that_fail_together_share_a_rate() {
        let (clock, queue) = queue();
        for item in 0..130 {
            queue.add_rate_limited(item);
        }
        // The burst of 100 after 5 ms, then one item every 100 ms.
        clock.step(Duration::from_millis(5));
        assert_eq!(queue.len(), 100);
        clock.step(Duration::from_millis(95));
        assert_eq!(queue.len(), 101);
        clock.step(Duration::from_millis(1000));
        assert_eq!(queue.len(), 111);
        clock.step(Duration::from_millis(1900));
        assert_eq!(queue.len(), 130);
    }
}

#[tokio::test]
async fn forget_resets_the_delay_and_keeps_the_item() {
    let (clock, queue) = queue();
    for _ in 0..10 {
        queue.add_rate_limited(7);
    }
    queue.forget(&7);
    assert_eq!(queue.num_requeues(&7), 0);
    clock.step(Duration::from_millis(5));
    assert_eq!(process(&queue).await, Some(7));
    queue.add_rate_limited(7);
    clock.step(Duration::from_millis(5));
    assert_eq!(process(&queue).await, Some(7));
}

#[test]
fn other_adds_are_no_failures() {
    let (_clock, queue) = queue();
    queue.add(1);
    queue.add_after(1, Duration::from_secs(1));
    assert_eq!(queue.num_requeues(&1), 0);
}

#[tokio::test]
async fn clones_share_one_queue() {
    let (_clock, queue) = queue();
    let other = queue.clone();
    queue.add(1);
    assert_eq!(process(&other).await, Some(1));
    other.shut_down_with_drain().await;
    assert!(queue.is_shutting_down());
    assert_eq!(process(&queue).await, None);
}

#[tokio::test]
async fn state_of_an_item() {
    let (clock, queue) = queue();
    let state = |phase, delay, requeues| ItemState { phase, delay, requeues };
    assert_eq!(queue.state_of(&1), state(ItemPhase::Absent, None, 0));
    assert!(queue.state_of(&1).is_idle());
    queue.add_rate_limited(1);
    let delay = Duration::from_millis(5);
    assert_eq!(queue.state_of(&1), state(ItemPhase::Absent, Some(delay), 1));
    assert!(!queue.state_of(&1).is_idle());
    clock.step(delay);
    assert_eq!(queue.state_of(&1), state(ItemPhase::Queued, None, 1));
    assert!(!queue.state_of(&1).is_idle());
    let item = queue.get().await;
    assert_eq!(queue.state_of(&1), state(ItemPhase::Processing, None, 1));
    queue.add(1);
    assert_eq!(queue.state_of(&1), state(ItemPhase::ProcessingDirty, None, 1));
    drop(item);
    assert_eq!(queue.state_of(&1), state(ItemPhase::Queued, None, 1));
}

mod metrics {
    use super::*;

    #[derive(Default)]
    struct Recording {
        reported: Arc<Reported>,
        refresh: Mutex<Option<Refresh>>,
    }

    #[derive(Default)]
    struct Reported {
        depth: Mutex<Vec<usize>>,
        retries: Mutex<u32>,
    }

    struct Metrics(Arc<Reported>);

    impl QueueMetrics for Metrics {
        fn depth(&self, items: usize) {
            self.0.depth.lock().push(items);
        }

        fn retried(&self) {
            *self.0.retries.lock() += 1;
        }
    }

    impl MetricsProvider for Recording {
        fn queue(&self, _: &str) -> Option<Arc<dyn QueueMetrics>> {
            Some(Arc::new(Metrics(Arc::clone(&self.reported))))
        }

        fn refresh_with(&self, name: &str, refresh: Refresh) {
            assert_eq!(name, "test");
            *self.refresh.lock() = Some(refresh);
        }
    }

    fn measured_queue() -> (Arc<Recording>, RateLimitingQueue<u32>) {
        let metrics = Arc::new(Recording::default());
        let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let config = QueueConfig { metrics: metrics.clone(), ..QueueConfig::new("test", clock) };
        (metrics, RateLimitingQueue::new(config))
    }

    #[test]
    fn count_each_delayed_add_as_a_retry() {
        let (metrics, queue) = measured_queue();
        let retries = || *metrics.reported.retries.lock();
        queue.add(1);
        assert_eq!(retries(), 0);
        queue.add_after(1, Duration::from_secs(1));
        queue.add_after(1, Duration::ZERO);
        queue.add_rate_limited(1);
        assert_eq!(retries(), 3);
        queue.shut_down();
        queue.add_after(1, Duration::from_secs(1));
        assert_eq!(retries(), 3);
    }

    #[test]
    fn are_refreshed_until_the_queue_is_dropped() {
        let (metrics, queue) = measured_queue();
        queue.add(1);
        let refresh = metrics.refresh.lock().take().unwrap();
        assert!(refresh());
        assert_eq!(*metrics.reported.depth.lock(), [1, 1]);
        drop(queue);
        assert!(!refresh());
        assert_eq!(*metrics.reported.depth.lock(), [1, 1]);
    }
}
