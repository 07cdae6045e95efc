use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use kcm_clock::{FakeClock, SimulatedClock, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::metrics::{NoQueueMetrics, QueueMetrics};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn queue<T: Item>() -> (FakeClock, DelayingQueue<T>) {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let queue = DelayingQueue::new("test", Arc::new(clock.clone()), &NoQueueMetrics);
    (clock, queue)
}

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn get_now<T: Item>(queue: &DelayingQueue<T>) -> Option<T> {
    match poll(&mut pin!(queue.next())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

fn get_all<T: Item>(queue: &DelayingQueue<T>) -> Vec<T> {
    std::iter::from_fn(|| get_now(queue)).collect()
}

mod add_after {
    use super::*;

    #[test]
    fn queues_the_item_once_after_the_delay() {
        let (clock, queue) = queue();
        queue.add_after("a", ms(50));
        clock.step(ms(49));
        assert_eq!((queue.len(), get_now(&queue)), (0, None));
        clock.step(ms(1));
        assert_eq!(queue.len(), 1);
        assert_eq!(get_all(&queue), ["a"]);
        queue.done(&"a");
        clock.step(ms(1000));
        assert!(queue.is_empty());
    }

    #[test]
    fn without_delay_queues_the_item_immediately() {
        let (_clock, queue) = queue();
        queue.add_after("a", Duration::ZERO);
        assert_eq!(get_all(&queue), ["a"]);
    }

    #[test]
    fn earlier_of_two_delays_applies() {
        for delays in [[30, 60], [60, 30]] {
            let (clock, queue) = queue();
            for delay in delays {
                queue.add_after("a", ms(delay));
            }
            clock.step(ms(29));
            assert!(queue.is_empty(), "{delays:?}");
            clock.step(ms(1));
            assert_eq!(get_all(&queue), ["a"], "{delays:?}");
            queue.done(&"a");
            clock.step(ms(1000));
            assert!(queue.is_empty(), "{delays:?}");
        }
    }

    #[test]
    fn is_independent_of_an_immediate_add() {
        let (clock, queue) = queue();
        queue.add_after("a", ms(50));
        queue.add("a");
        assert_eq!(get_all(&queue), ["a"]);
        queue.done(&"a");
        clock.step(ms(50));
        assert_eq!(get_all(&queue), ["a"]);
    }

    #[test]
    fn is_independent_of_an_earlier_delay_that_has_passed() {
        let (clock, queue) = queue();
        queue.add_after("a", ms(10));
        clock.step(ms(10));
        queue.add_after("a", ms(10));
        assert_eq!(get_all(&queue), ["a"]);
        queue.done(&"a");
        clock.step(ms(10));
        assert_eq!(get_all(&queue), ["a"]);
    }

    #[test]
    fn item_that_is_due_while_processed_is_queued_after_done() {
        let (clock, queue) = queue();
        queue.add("a");
        assert_eq!(get_now(&queue), Some("a"));
        queue.add_after("a", ms(50));
        clock.step(ms(50));
        assert_eq!(get_now(&queue), None);
        queue.done(&"a");
        assert_eq!(get_all(&queue), ["a"]);
    }

    #[test]
    fn largest_delay_does_not_overflow() {
        let (clock, queue) = queue();
        clock.step(ms(1));
        queue.add_after("never", Duration::MAX);
        queue.add_after("soon", ms(1));
        clock.step(Duration::from_secs(100 * 365 * 86400));
        assert_eq!(get_all(&queue), ["soon"]);
    }
}

mod order {
    use super::*;

    #[test]
    fn is_that_of_deadlines_and_adds() {
        let (clock, queue) = queue();
        queue.add_after("third", ms(30));
        queue.add_after("first", ms(10));
        queue.add_after("second", ms(20));
        queue.add_after("also third", ms(30));
        clock.step(ms(25));
        queue.add("between");
        clock.step(ms(100));
        assert_eq!(get_all(&queue), ["first", "second", "between", "third", "also third"]);
    }

    #[test]
    fn item_delayed_again_to_the_same_deadline_keeps_its_place() {
        let (clock, queue) = queue();
        for item in ["a", "b", "a"] {
            queue.add_after(item, ms(10));
        }
        clock.step(ms(10));
        assert_eq!(get_all(&queue), ["a", "b"]);
    }

    #[test]
    fn items_due_before_done_precede_the_requeued_item() {
        let (clock, queue) = queue();
        queue.add("a");
        get_now(&queue);
        queue.add("a");
        queue.add_after("b", ms(10));
        clock.step(ms(10));
        queue.done(&"a");
        assert_eq!(get_all(&queue), ["b", "a"]);
    }
}

mod shut_down {
    use super::*;

    #[test]
    fn keeps_items_that_are_due_and_drops_the_others() {
        let (clock, queue) = queue();
        queue.add_after("due", ms(10));
        queue.add_after("not due", ms(20));
        clock.step(ms(10));
        queue.shut_down();
        queue.add_after("too late", ms(1));
        queue.add_after("too late as well", Duration::ZERO);
        clock.step(ms(100));
        assert_eq!(poll(&mut pin!(queue.next())), Poll::Ready(Some("due")));
        assert_eq!(poll(&mut pin!(queue.next())), Poll::Ready(None));
        assert!(queue.waiting.lock().by_deadline.is_empty());
    }

    #[test]
    fn drain_does_not_wait_for_items_that_are_not_due() {
        let (clock, queue) = queue();
        queue.add("a");
        get_now(&queue);
        queue.add_after("due", ms(10));
        queue.add_after("not due", ms(20));
        clock.step(ms(10));
        let mut drain = pin!(queue.shut_down_with_drain());
        assert_eq!(poll(&mut drain), Poll::Pending);
        clock.step(ms(100));
        assert_eq!(get_all(&queue), ["due"]);
        queue.done(&"due");
        assert_eq!(poll(&mut drain), Poll::Pending);
        queue.done(&"a");
        assert_eq!(poll(&mut drain), Poll::Ready(()));
    }
}

#[test]
fn refresh_metrics_counts_items_that_became_due() {
    #[derive(Default, Clone)]
    struct Depth(Arc<Mutex<usize>>);
    impl MetricsProvider for Depth {
        fn queue(&self, _name: &str) -> Option<Arc<dyn QueueMetrics>> {
            Some(Arc::new(self.clone()))
        }
    }
    impl QueueMetrics for Depth {
        fn depth(&self, items: usize) {
            *self.0.lock() = items;
        }
    }
    let (clock, depth) = (FakeClock::new(Timestamp::UNIX_EPOCH), Depth::default());
    let queue = DelayingQueue::new("test", Arc::new(clock.clone()), &depth);
    queue.add_after("a", ms(10));
    clock.step(ms(10));
    assert_eq!(*depth.0.lock(), 0);
    queue.refresh_metrics();
    assert_eq!(*depth.0.lock(), 1);
}

mod get {
    use super::*;

    #[tokio::test]
    async fn wakes_when_an_item_is_due() {
        let (clock, queue) = queue();
        let mut get = pin!(queue.next());
        assert_eq!(poll(&mut get), Poll::Pending);
        queue.add_after("a", ms(50));
        assert_eq!(poll(&mut get), Poll::Pending);
        assert_eq!(clock.sleepers(), 1);
        clock.step(ms(50));
        assert_eq!(get.await, Some("a"));
    }

    #[tokio::test]
    async fn wakes_for_each_of_several_items() {
        let (clock, queue) = queue();
        for item in ["a", "b", "c"] {
            let mut get = pin!(queue.next());
            assert_eq!(poll(&mut get), Poll::Pending);
            queue.add_after(item, ms(50));
            assert_eq!(poll(&mut get), Poll::Pending);
            assert_eq!(clock.sleepers(), 1, "{item}");
            clock.step(ms(50));
            assert_eq!(poll(&mut get), Poll::Pending, "the first poll queues the item and wakes the worker");
            assert_eq!(poll(&mut get), Poll::Ready(Some(item)));
            queue.done(&item);
        }
    }

    #[tokio::test]
    async fn wakes_for_an_item_with_an_earlier_deadline() {
        let (clock, queue) = queue();
        queue.add_after("late", ms(500));
        let mut get = pin!(queue.next());
        assert_eq!(poll(&mut get), Poll::Pending);
        queue.add_after("early", ms(5));
        assert_eq!(poll(&mut get), Poll::Pending);
        clock.step(ms(5));
        assert_eq!(get.await, Some("early"));
    }

    #[tokio::test]
    async fn one_worker_sleeps_and_another_takes_over() {
        let (clock, queue) = queue();
        queue.add_after("a", ms(10));
        queue.add_after("b", ms(20));
        let mut workers: Vec<_> = (0..3).map(|_| Box::pin(queue.next())).collect();
        for worker in &mut workers {
            assert_eq!(poll(&mut worker.as_mut()), Poll::Pending);
        }
        assert_eq!(clock.sleepers(), 1);

        // The sleeping worker is cancelled.
        drop(workers.remove(0));
        assert_eq!(clock.sleepers(), 0);
        for worker in &mut workers {
            assert_eq!(poll(&mut worker.as_mut()), Poll::Pending);
        }
        assert_eq!(clock.sleepers(), 1);

        // The sleeping worker queues the item and wakes the other.
        clock.step(ms(10));
        assert_eq!(poll(&mut workers[0].as_mut()), Poll::Pending);
        assert_eq!(poll(&mut workers[1].as_mut()), Poll::Ready(Some("a")));
        drop(workers.remove(1));
        assert_eq!(clock.sleepers(), 1);
        clock.step(ms(10));
        assert_eq!(workers.remove(0).await, Some("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn returns_each_item_at_its_exact_time() {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let queue = Arc::new(DelayingQueue::new("test", clock.clone(), &NoQueueMetrics));
        let start = clock.monotonic();
        let workers: Vec<_> = (0..5)
            .map(|_| {
                let (queue, clock) = (Arc::clone(&queue), Arc::clone(&clock));
                tokio::spawn(async move {
                    let mut got = Vec::new();
                    while let Some(item) = queue.next().await {
                        got.push((item, clock.monotonic()));
                        queue.done(&item);
                    }
                    got
                })
            })
            .collect();
        let delays = [700_000_u64, 5, 5, 80, 1_000_000, 81, 600_000, 40];
        for (item, delay) in delays.into_iter().enumerate() {
            queue.add_after(item, ms(delay));
        }
        clock.sleep(ms(1_000_001)).await;
        queue.shut_down();
        let mut got = Vec::new();
        for worker in workers {
            got.extend(worker.await.unwrap());
        }
        got.sort_unstable();
        let due: Vec<_> =
            delays.into_iter().enumerate().map(|(item, delay)| (item, start + ms(delay))).collect();
        assert_eq!(got, due);
    }

    #[tokio::test]
    async fn worker_that_never_waits_yields() {
        let (_clock, queue) = queue();
        for item in 0..10_000 {
            queue.add(item);
        }
        let mut worker = pin!(async {
            while !queue.is_empty() {
                if let Some(item) = queue.next().await {
                    queue.done(&item);
                }
            }
        });
        assert_eq!(poll(&mut worker), Poll::Pending);
        assert!(!queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn item_that_became_due_while_all_workers_were_busy_is_next() {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let queue = DelayingQueue::new("test", clock.clone(), &NoQueueMetrics);
        queue.add("work");
        let item = queue.next().await.unwrap();
        queue.add_after("later", ms(10));
        clock.sleep(ms(100)).await;
        let at = clock.monotonic();
        queue.done(&item);
        assert_eq!(queue.next().await, Some("later"));
        assert_eq!(clock.monotonic(), at);
    }
}

/// Compares the queue with a model that moves time in steps of a millisecond.
mod model {
    use super::*;

    #[derive(Default)]
    struct Model {
        now: u64,
        added: u64,
        /// Deadline, number of the add, and item.
        waiting: Vec<(u64, u64, u8)>,
        queue: Vec<u8>,
        processing: Vec<u8>,
        processing_dirty: Vec<u8>,
    }

    impl Model {
        fn add(&mut self, item: u8) {
            if self.processing.contains(&item) {
                if !self.processing_dirty.contains(&item) {
                    self.processing_dirty.push(item);
                }
            } else if !self.queue.contains(&item) {
                self.queue.push(item);
            }
        }

        fn add_after(&mut self, item: u8, delay: u64) {
            if delay == 0 {
                return self.add(item);
            }
            let deadline = self.now + delay;
            if self.waiting.iter().any(|&(known, _, other)| other == item && known <= deadline) {
                return;
            }
            self.waiting.retain(|&(_, _, other)| other != item);
            self.added += 1;
            self.waiting.push((deadline, self.added, item));
        }

        fn step(&mut self, by: u64) {
            for _ in 0..by {
                self.now += 1;
                self.waiting.sort_unstable();
                while let Some(&(deadline, _, item)) = self.waiting.first()
                    && deadline <= self.now
                {
                    self.waiting.remove(0);
                    self.add(item);
                }
            }
        }

        fn get(&mut self) -> Option<u8> {
            (!self.queue.is_empty()).then(|| {
                let item = self.queue.remove(0);
                self.processing.push(item);
                item
            })
        }

        fn done(&mut self, item: u8) {
            if let Some(at) = self.processing.iter().position(|&other| other == item) {
                self.processing.remove(at);
                if let Some(at) = self.processing_dirty.iter().position(|&other| other == item) {
                    self.processing_dirty.remove(at);
                    self.queue.push(item);
                }
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Call {
        Add(u8),
        AddAfter(u8, u64),
        Get,
        Done(u8),
        Step(u64),
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            (0_u8..6).prop_map(Call::Add),
            (0_u8..6, 0_u64..40).prop_map(|(item, delay)| Call::AddAfter(item, delay)),
            Just(Call::Get),
            (0_u8..6).prop_map(Call::Done),
            (1_u64..30).prop_map(Call::Step),
        ]
    }

    proptest! {
        #[test]
        fn agrees_after_any_calls(calls in prop::collection::vec(call(), 0..150)) {
            let ((clock, queue), mut model) = (queue(), Model::default());
            for call in calls {
                match call {
                    Call::Add(item) => { queue.add(item); model.add(item); }
                    Call::AddAfter(item, delay) => {
                        queue.add_after(item, ms(delay));
                        model.add_after(item, delay);
                    }
                    Call::Get => prop_assert_eq!(get_now(&queue), model.get()),
                    Call::Done(item) => { queue.done(&item); model.done(item); }
                    Call::Step(by) => { clock.step(ms(by)); model.step(by); }
                }
            }
            prop_assert_eq!(queue.len(), model.queue.len());
            prop_assert_eq!(get_all(&queue), model.queue);
        }
    }
}
