use kcm_clock::{SimulatedClock, Timestamp};
use tokio::sync::mpsc;

use super::{PriorityLevel::*, *};

fn limiter(qps: f64, burst: u32) -> (Arc<RateLimiter>, SimulatedClock) {
    let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
    (Arc::new(RateLimiter::new(RateLimit { qps, burst }, Arc::new(clock.clone()))), clock)
}

/// Lets callers wait, in this order. Returns their indexes in the order of service, with the times.
async fn served(
    limiter: &Arc<RateLimiter>,
    clock: &SimulatedClock,
    levels: impl IntoIterator<Item = PriorityLevel>,
) -> Vec<(usize, u128)> {
    let (done, mut order) = mpsc::unbounded_channel();
    for (index, level) in levels.into_iter().enumerate() {
        let (limiter, clock, done) = (Arc::clone(limiter), clock.clone(), done.clone());
        tokio::spawn(async move {
            limiter.acquire(level).await;
            done.send((index, clock.monotonic().as_millis())).unwrap();
        });
    }
    drop(done);
    let mut all = Vec::new();
    while let Some(served) = order.recv().await {
        all.push(served);
    }
    all
}

fn indexes(served: &[(usize, u128)]) -> Vec<usize> {
    served.iter().map(|(index, _)| *index).collect()
}

#[tokio::test(start_paused = true)]
async fn burst_then_one_per_interval() {
    let (limiter, clock) = limiter(10.0, 2);
    let mut times = Vec::new();
    for _ in 0..5 {
        limiter.acquire(Rollout).await;
        times.push(clock.monotonic().as_millis());
    }
    assert_eq!(times, [0, 0, 100, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn unlimited() {
    let (limiter, clock) = limiter(0.0, 0);
    assert_eq!((limiter.available(), limiter.is_limited()), (u32::MAX, false));
    for _ in 0..1000 {
        assert_eq!(limiter.acquire(Event).await, Duration::ZERO);
        assert!(limiter.try_acquire(Rollout));
    }
    limiter.give_back();
    assert_eq!(clock.monotonic(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn try_acquire_takes_no_reserved_token() {
    let (limiter, clock) = limiter(10.0, 2);
    assert!(limiter.try_acquire(Rollout) && limiter.try_acquire(Rollout));
    assert!(!limiter.try_acquire(Rollout));
    let waiting = tokio::spawn({
        let limiter = Arc::clone(&limiter);
        async move { limiter.acquire(Rollout).await }
    });
    tokio::task::yield_now().await;
    clock.sleep(Duration::from_millis(100)).await;
    assert!(!limiter.try_acquire(Rollout));
    assert_eq!(waiting.await.unwrap(), Duration::from_millis(100));
}

mod order {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_of_a_level_are_served_in_the_order_of_their_calls() {
        let (limiter, clock) = limiter(1000.0, 1);
        let served = served(&limiter, &clock, [Rollout; 500]).await;
        assert_eq!(indexes(&served), (0..500).collect::<Vec<_>>());
        assert_eq!(clock.monotonic(), Duration::from_millis(499));
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_callers_are_served_first_at_the_same_times() {
        let (limiter, clock) = limiter(10.0, 1);
        let levels = [Rollout, Event, Status, Rollout, Event, Status, Rollout, Availability];
        let served = served(&limiter, &clock, levels).await;
        let expected = [(0, 0), (7, 100), (3, 200), (6, 300), (2, 400), (5, 500), (1, 600), (4, 700)];
        assert_eq!(served, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn late_caller_overtakes_less_urgent_ones() {
        let (limiter, clock) = limiter(10.0, 1);
        limiter.acquire(Rollout).await;
        let (done, mut order) = mpsc::unbounded_channel();
        for (start, level) in [(0, Event), (10, Status), (150, Rollout)] {
            let (limiter, clock, done) = (Arc::clone(&limiter), clock.clone(), done.clone());
            tokio::spawn(async move {
                clock.sleep(Duration::from_millis(start)).await;
                let waited = limiter.acquire(level).await.as_millis();
                done.send((level, clock.monotonic().as_millis(), waited)).unwrap();
            });
        }
        drop(done);
        let mut all = Vec::new();
        while let Some(served) = order.recv().await {
            all.push(served);
        }
        assert_eq!(all, [(Status, 100, 90), (Rollout, 200, 50), (Event, 300, 300)]);
    }
}

mod burst {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_left_to_rollouts() {
        let (limiter, _clock) = limiter(10.0, 20);
        for level in [Status, Event] {
            while limiter.try_acquire(level) {}
            assert_eq!(limiter.available(), 17, "{level:?}");
            assert_eq!(limiter.acquire(level).await, Duration::from_millis(100));
        }
        for _ in 0..17 {
            assert_eq!(limiter.acquire(Rollout).await, Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_left_up_to_100_requests() {
        let (limiter, _clock) = limiter(10.0, 1000);
        while limiter.try_acquire(Status) {}
        assert_eq!(limiter.available(), 99);
    }

    #[tokio::test(start_paused = true)]
    async fn is_awaited_for_five_seconds() {
        let (limiter, _clock) = limiter(1.0, 100);
        for _ in 0..50 {
            limiter.acquire(Rollout).await;
        }
        assert_eq!(limiter.acquire(Event).await, Duration::from_secs(5));
    }
}

mod share {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn level_gets_every_fourth_token_after_five_seconds() {
        let (limiter, clock) = limiter(10.0, 1);
        let levels = [Rollout; 101].into_iter().chain([Status; 20]);
        let served = served(&limiter, &clock, levels).await;
        let statuses = served.iter().filter(|(index, _)| *index > 100).map(|(_, time)| *time);
        let mut expected: Vec<u128> = (0..20).map(|n| 5_100 + n * 400).collect();
        // The others are served then.
        expected.truncate(17);
        expected.extend([11_800, 11_900, 12_000]);
        assert_eq!(statuses.collect::<Vec<_>>(), expected);
        assert_eq!(clock.monotonic(), Duration::from_millis(12_000));
    }

    #[tokio::test(start_paused = true)]
    async fn rollouts_get_half_of_the_tokens_if_both_other_levels_wait() {
        let (limiter, clock) = limiter(10.0, 1);
        let levels = [Rollout; 101].into_iter().chain([Status; 50]).chain([Event; 50]);
        let served = served(&limiter, &clock, levels).await;
        let of = |levels: std::ops::Range<usize>| {
            served
                .iter()
                .filter(|(index, time)| levels.contains(index) && (6_000..8_000).contains(time))
                .count()
        };
        assert_eq!([of(0..101), of(101..151), of(151..201)], [10, 5, 5]);
    }
}

mod cancel {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn dropped_waiter_returns_its_token() {
        let (limiter, _clock) = limiter(1.0, 1);
        limiter.acquire(Rollout).await;
        let half = Duration::from_millis(500);
        tokio::time::timeout(half, limiter.acquire(Rollout)).await.unwrap_err();
        assert_eq!(limiter.acquire(Rollout).await, half);
    }

    #[tokio::test(start_paused = true)]
    async fn token_of_a_dropped_waiter_goes_to_those_behind_it() {
        let (limiter, clock) = limiter(10.0, 1);
        limiter.acquire(Rollout).await;
        let dropped = tokio::spawn({
            let limiter = Arc::clone(&limiter);
            async move { limiter.acquire(Status).await }
        });
        tokio::task::yield_now().await;
        let others = tokio::spawn({
            let (limiter, clock) = (Arc::clone(&limiter), clock.clone());
            async move { served(&limiter, &clock, [Event, Rollout, Status]).await }
        });
        clock.sleep(Duration::from_millis(150)).await;
        assert_eq!(limiter.waiting(), 3);
        dropped.abort();
        assert_eq!(others.await.unwrap(), [(1, 100), (2, 200), (0, 300)]);
        assert_eq!(limiter.acquire(Rollout).await, Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_waiter_that_was_served_returns_its_token() {
        let (limiter, clock) = limiter(10.0, 1);
        limiter.acquire(Rollout).await;
        let event = tokio::spawn({
            let limiter = Arc::clone(&limiter);
            async move { limiter.acquire(Event).await }
        });
        tokio::task::yield_now().await;
        let mut rollout = Box::pin(limiter.acquire(Rollout));
        assert!(futures_util::poll!(&mut rollout).is_pending());
        // At 100 ms, the timer of the event serves the other caller.
        clock.sleep(Duration::from_millis(150)).await;
        drop(rollout);
        assert_eq!(event.await.unwrap(), Duration::from_millis(150));
        assert_eq!(limiter.acquire(Rollout).await, Duration::from_millis(50));
    }

    #[tokio::test(start_paused = true)]
    async fn unused_token_goes_to_the_most_urgent_waiter() {
        let (limiter, clock) = limiter(10.0, 1);
        assert!(limiter.try_acquire(Rollout));
        let others = tokio::spawn({
            let (limiter, clock) = (Arc::clone(&limiter), clock.clone());
            async move { served(&limiter, &clock, [Event, Status, Rollout]).await }
        });
        clock.sleep(Duration::from_millis(50)).await;
        limiter.give_back();
        assert_eq!(others.await.unwrap(), [(2, 50), (1, 100), (0, 200)]);
        assert_eq!(limiter.acquire(Rollout).await, Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn unused_token_returns_to_the_bucket() {
        let (limiter, _clock) = limiter(10.0, 1);
        assert!(limiter.try_acquire(Rollout));
        limiter.give_back();
        assert!(limiter.try_acquire(Rollout));
        assert!(!limiter.try_acquire(Rollout));
    }
}
