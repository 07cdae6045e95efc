use kcm_clock::{FakeClock, Timestamp};
use parking_lot::Mutex;

use super::*;
use crate::{MaxOfRateLimiter, QueueMetrics};

fn queue() -> (FakeClock, RateLimitingQueue<u32>) {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let queue = RateLimitingQueue::new(QueueConfig::new("test", Arc::new(clock.clone())));
    (clock, queue)
}

async fn take_and_give_back(queue: &RateLimitingQueue<u32>) -> Option<u32> {
    let item = queue.get().await?;
    queue.done(&item);
    Some(item)
}

#[tokio::test]
async fn deployment_that_keeps_failing_is_retried_on_upstreams_schedule() {
    let (clock, queue) = queue();
    for retry in 0..15 {
        assert_eq!(queue.num_requeues(&7), retry);
        queue.add_rate_limited(7);
        let due = Duration::from_millis(5) * 2_u32.pow(retry);
        clock.step(due - Duration::from_nanos(1));
        assert!(queue.is_empty(), "retry {retry} came before {due:?}");
        clock.step(Duration::from_nanos(1));
        assert_eq!(take_and_give_back(&queue).await, Some(7), "retry {retry} did not come after {due:?}");
    }
    assert_eq!(queue.num_requeues(&7), 15);
}

#[test]
fn replica_set_that_fails_forever_is_retried_every_1000_seconds() {
    let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
    let limiter = default_controller_rate_limiter(clock);
    let waits: Vec<_> = (0..30).map(|_| limiter.when(&7).as_secs()).collect();
    assert_eq!(waits[16..20], [327, 655, 1000, 1000]);
    assert_eq!(waits[29], 1000);
}

#[tokio::test]
async fn item_forgotten_starts_from_the_shortest_wait_and_stays_queued() {
    let (clock, queue) = queue();
    for _ in 0..10 {
        queue.add_rate_limited(7);
    }
    queue.forget(&7);
    assert_eq!(queue.num_requeues(&7), 0);
    clock.step(Duration::from_millis(5));
    assert_eq!(take_and_give_back(&queue).await, Some(7));
    queue.add_rate_limited(7);
    clock.step(Duration::from_millis(5));
    assert_eq!(take_and_give_back(&queue).await, Some(7));
}

#[test]
fn item_added_otherwise_counts_as_no_failure() {
    let (_clock, queue) = queue();
    queue.add(1);
    queue.add_after(1, Duration::from_secs(1));
    assert_eq!(queue.num_requeues(&1), 0);
}

#[test]
fn many_items_that_fail_at_once_come_back_at_the_common_pace() {
    let (clock, queue) = queue();
    for item in 0..130 {
        queue.add_rate_limited(item);
    }
    // A hundred after their own 5 ms; the others one every 100 ms, each at its own time.
    clock.step(Duration::from_millis(5));
    assert_eq!(queue.len(), 100);
    clock.step(Duration::from_millis(95));
    assert_eq!(queue.len(), 101);
    clock.step(Duration::from_millis(1000));
    assert_eq!(queue.len(), 111);
    clock.step(Duration::from_millis(1900));
    assert_eq!(queue.len(), 130);
}

#[test]
fn longest_wait_of_several_limiters_counts_and_each_is_told() {
    #[derive(Debug, Default)]
    struct Fixed(Duration, Mutex<u32>);
    impl RateLimiter<u32> for Arc<Fixed> {
        fn when(&self, _item: &u32) -> Duration {
            *self.1.lock() += 1;
            self.0
        }
        fn forget(&self, _item: &u32) {
            *self.1.lock() = 0;
        }
        fn num_requeues(&self, _item: &u32) -> u32 {
            *self.1.lock()
        }
    }
    let (short, long) =
        (Arc::new(Fixed::default()), Arc::new(Fixed(Duration::from_secs(9), Mutex::default())));
    let both = MaxOfRateLimiter::new(vec![Box::new(Arc::clone(&long)), Box::new(Arc::clone(&short))]);
    assert_eq!(both.when(&1), Duration::from_secs(9));
    assert_eq!((short.num_requeues(&1), long.num_requeues(&1)), (1, 1));
    short.when(&1);
    assert_eq!(both.num_requeues(&1), 2);
    both.forget(&1);
    assert_eq!((short.num_requeues(&1), long.num_requeues(&1)), (0, 0));

    let none = MaxOfRateLimiter::new(Vec::new());
    assert_eq!((none.when(&1), none.num_requeues(&1)), (Duration::ZERO, 0));
}

#[test]
fn retries_are_counted_for_every_delayed_add_and_no_other() {
    #[derive(Default, Clone)]
    struct Retries(Arc<Mutex<u32>>);
    impl MetricsProvider for Retries {
        fn queue(&self, _name: &str) -> Option<Arc<dyn QueueMetrics>> {
            Some(Arc::new(self.clone()))
        }
    }
    impl QueueMetrics for Retries {
        fn retried(&self) {
            *self.0.lock() += 1;
        }
    }
    let retries = Retries::default();
    let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
    let config = QueueConfig { metrics: Arc::new(retries.clone()), ..QueueConfig::new("test", clock) };
    let queue = RateLimitingQueue::new(config);
    queue.add(1);
    assert_eq!(*retries.0.lock(), 0);
    queue.add_after(1, Duration::from_secs(1));
    queue.add_after(1, Duration::ZERO);
    queue.add_rate_limited(1);
    assert_eq!(*retries.0.lock(), 3);
    queue.shut_down();
    queue.add_after(1, Duration::from_secs(1));
    assert_eq!(*retries.0.lock(), 3);
}

#[tokio::test]
async fn handles_share_one_queue() {
    let (_clock, queue) = queue();
    let other = queue.clone();
    queue.add(1);
    assert_eq!(other.get().await, Some(1));
    other.done(&1);
    other.shut_down_with_drain().await;
    assert!(queue.is_shutting_down());
    assert_eq!(queue.get().await, None);
}

/// Keeps what it was given to refresh with.
#[derive(Default)]
struct Refreshing {
    refresh: Mutex<Option<crate::Refresh>>,
    depth: Arc<Mutex<Vec<usize>>>,
}

struct Depth(Arc<Mutex<Vec<usize>>>);

impl QueueMetrics for Depth {
    fn depth(&self, items: usize) {
        self.0.lock().push(items);
    }
}

impl MetricsProvider for Refreshing {
    fn queue(&self, _: &str) -> Option<Arc<dyn QueueMetrics>> {
        Some(Arc::new(Depth(Arc::clone(&self.depth))))
    }

    fn refresh_with(&self, name: &str, refresh: crate::Refresh) {
        assert_eq!(name, "test");
        *self.refresh.lock() = Some(refresh);
    }
}

#[test]
fn metrics_refresh_a_queue_as_long_as_there_is_one() {
    let metrics = Arc::new(Refreshing::default());
    let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
    let mut config = QueueConfig::new("test", clock);
    config.metrics = metrics.clone();
    let queue = RateLimitingQueue::new(config);
    queue.add(1);
    let refresh = metrics.refresh.lock().take().unwrap();
    assert!(refresh());
    assert_eq!(*metrics.depth.lock(), [1, 1]);
    drop(queue);
    assert!(!refresh());
    assert_eq!(*metrics.depth.lock(), [1, 1]);
}
