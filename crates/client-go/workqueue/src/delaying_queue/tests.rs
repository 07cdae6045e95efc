use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use kcm_clock::{FakeClock, SimulatedClock, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::NoQueueMetrics;

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

/// Takes what is there without waiting.
fn take<T: Item>(queue: &DelayingQueue<T>) -> Option<T> {
    match poll(&mut pin!(queue.get())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

fn drain<T: Item>(queue: &DelayingQueue<T>) -> Vec<T> {
    std::iter::from_fn(|| take(queue)).collect()
}

#[test]
fn item_added_for_later_comes_when_it_is_due_and_not_before() {
    let (clock, queue) = queue();
    queue.add_after("a", ms(50));
    clock.step(ms(49));
    assert_eq!((queue.len(), take(&queue)), (0, None));
    clock.step(ms(1));
    assert_eq!(queue.len(), 1);
    assert_eq!(drain(&queue), ["a"]);
    queue.done(&"a");
    clock.step(ms(1000));
    assert!(queue.is_empty(), "it comes once");
}

#[test]
fn item_added_without_delay_comes_at_once() {
    let (_clock, queue) = queue();
    queue.add_after("a", Duration::ZERO);
    assert_eq!(drain(&queue), ["a"]);
}

#[test]
fn item_added_for_two_times_comes_once_at_the_earlier() {
    for delays in [[30, 60], [60, 30]] {
        let (clock, queue) = queue();
        for delay in delays {
            queue.add_after("a", ms(delay));
        }
        clock.step(ms(29));
        assert!(queue.is_empty(), "{delays:?}");
        clock.step(ms(1));
        assert_eq!(drain(&queue), ["a"], "{delays:?}");
        queue.done(&"a");
        clock.step(ms(1000));
        assert!(queue.is_empty(), "{delays:?}");
    }
}

#[test]
fn item_added_again_for_the_same_time_keeps_its_place() {
    let (clock, queue) = queue();
    for item in ["a", "b", "a"] {
        queue.add_after(item, ms(10));
    }
    clock.step(ms(10));
    assert_eq!(drain(&queue), ["a", "b"]);
}

#[test]
fn item_added_at_once_does_not_suppress_its_later_self() {
    let (clock, queue) = queue();
    queue.add_after("a", ms(50));
    queue.add("a");
    assert_eq!(drain(&queue), ["a"]);
    queue.done(&"a");
    clock.step(ms(50));
    assert_eq!(drain(&queue), ["a"]);
}

#[test]
fn item_that_fell_due_unseen_does_not_swallow_its_later_self() {
    let (clock, queue) = queue();
    queue.add_after("a", ms(10));
    clock.step(ms(10));
    queue.add_after("a", ms(10));
    assert_eq!(drain(&queue), ["a"]);
    queue.done(&"a");
    clock.step(ms(10));
    assert_eq!(drain(&queue), ["a"]);
}

#[test]
fn item_due_while_a_worker_has_it_comes_back_when_that_worker_is_done() {
    let (clock, queue) = queue();
    queue.add("a");
    assert_eq!(take(&queue), Some("a"));
    queue.add_after("a", ms(50));
    clock.step(ms(50));
    assert_eq!(take(&queue), None);
    queue.done(&"a");
    assert_eq!(drain(&queue), ["a"]);
}

#[test]
fn items_due_come_in_the_order_in_which_they_fell_due_or_were_added() {
    let (clock, queue) = queue();
    queue.add_after("third", ms(30));
    queue.add_after("first", ms(10));
    queue.add_after("second", ms(20));
    queue.add_after("also third", ms(30));
    clock.step(ms(25));
    queue.add("between");
    clock.step(ms(100));
    assert_eq!(drain(&queue), ["first", "second", "between", "third", "also third"]);
}

#[test]
fn item_given_back_queues_behind_what_fell_due_before() {
    let (clock, queue) = queue();
    queue.add("a");
    take(&queue);
    queue.add("a");
    queue.add_after("b", ms(10));
    clock.step(ms(10));
    queue.done(&"a");
    assert_eq!(drain(&queue), ["b", "a"]);
}

#[test]
fn delay_beyond_all_time_never_ends_and_harms_nothing() {
    let (clock, queue) = queue();
    clock.step(ms(1));
    queue.add_after("never", Duration::MAX);
    queue.add_after("soon", ms(1));
    clock.step(Duration::from_secs(100 * 365 * 86400));
    assert_eq!(drain(&queue), ["soon"]);
}

#[test]
fn queue_shut_down_forgets_what_is_not_due_and_keeps_what_is() {
    let (clock, queue) = queue();
    queue.add_after("due", ms(10));
    queue.add_after("not due", ms(20));
    clock.step(ms(10));
    queue.shut_down();
    queue.add_after("too late", ms(1));
    queue.add_after("too late as well", Duration::ZERO);
    clock.step(ms(100));
    assert_eq!(poll(&mut pin!(queue.get())), Poll::Ready(Some("due")));
    assert_eq!(poll(&mut pin!(queue.get())), Poll::Ready(None));
    assert!(queue.waiting.lock().by_deadline.is_empty());
}

#[test]
fn shutdown_with_drain_does_not_wait_for_what_is_not_due() {
    let (clock, queue) = queue();
    queue.add("a");
    take(&queue);
    queue.add_after("due", ms(10));
    queue.add_after("not due", ms(20));
    clock.step(ms(10));
    let mut draining = pin!(queue.shut_down_with_drain());
    assert_eq!(poll(&mut draining), Poll::Pending);
    clock.step(ms(100));
    assert_eq!(drain(&queue), ["due"]);
    queue.done(&"due");
    assert_eq!(poll(&mut draining), Poll::Pending);
    queue.done(&"a");
    assert_eq!(poll(&mut draining), Poll::Ready(()));
}

#[test]
fn metrics_refreshed_count_what_fell_due_while_nobody_looked() {
    #[derive(Default, Clone)]
    struct Depth(Arc<Mutex<usize>>);
    impl MetricsProvider for Depth {
        fn queue(&self, _name: &str) -> Option<Arc<dyn crate::QueueMetrics>> {
            Some(Arc::new(self.clone()))
        }
    }
    impl crate::QueueMetrics for Depth {
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

#[tokio::test]
async fn parked_worker_wakes_when_the_item_is_due() {
    let (clock, queue) = queue();
    let mut get = pin!(queue.get());
    assert_eq!(poll(&mut get), Poll::Pending);
    queue.add_after("a", ms(50));
    assert_eq!(poll(&mut get), Poll::Pending);
    assert_eq!(clock.sleepers(), 1);
    clock.step(ms(50));
    assert_eq!(get.await, Some("a"));
}

#[tokio::test]
async fn parked_worker_wakes_for_each_of_several_items_added_one_after_the_other() {
    let (clock, queue) = queue();
    for item in ["a", "b", "c"] {
        let mut get = pin!(queue.get());
        assert_eq!(poll(&mut get), Poll::Pending);
        queue.add_after(item, ms(50));
        assert_eq!(poll(&mut get), Poll::Pending);
        assert_eq!(clock.sleepers(), 1, "nobody waits for {item}");
        clock.step(ms(50));
        assert_eq!(poll(&mut get), Poll::Pending, "it has moved the item and woken itself");
        assert_eq!(poll(&mut get), Poll::Ready(Some(item)));
        queue.done(&item);
    }
}

#[tokio::test]
async fn parked_worker_hears_of_an_item_due_before_the_one_it_waits_for() {
    let (clock, queue) = queue();
    queue.add_after("late", ms(500));
    let mut get = pin!(queue.get());
    assert_eq!(poll(&mut get), Poll::Pending);
    queue.add_after("early", ms(5));
    assert_eq!(poll(&mut get), Poll::Pending);
    clock.step(ms(5));
    assert_eq!(get.await, Some("early"));
}

#[tokio::test]
async fn one_of_many_parked_workers_keeps_the_time_and_another_takes_over() {
    let (clock, queue) = queue();
    queue.add_after("a", ms(10));
    queue.add_after("b", ms(20));
    let mut workers: Vec<_> = (0..3).map(|_| Box::pin(queue.get())).collect();
    for worker in &mut workers {
        assert_eq!(poll(&mut worker.as_mut()), Poll::Pending);
    }
    assert_eq!(clock.sleepers(), 1);

    // The one that keeps the time goes away, as a worker does that is cancelled.
    drop(workers.remove(0));
    assert_eq!(clock.sleepers(), 0);
    for worker in &mut workers {
        assert_eq!(poll(&mut worker.as_mut()), Poll::Pending);
    }
    assert_eq!(clock.sleepers(), 1);

    // The next one leaves with an item.
    clock.step(ms(10));
    assert_eq!(poll(&mut workers[0].as_mut()), Poll::Pending, "it moves the item, and wakes the other");
    assert_eq!(poll(&mut workers[1].as_mut()), Poll::Ready(Some("a")));
    drop(workers.remove(1));
    assert_eq!(clock.sleepers(), 1);
    clock.step(ms(10));
    assert_eq!(workers.remove(0).await, Some("b"));
}

#[tokio::test(start_paused = true)]
async fn workers_in_simulated_time_get_items_at_the_exact_time() {
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let queue = Arc::new(DelayingQueue::new("test", clock.clone(), &NoQueueMetrics));
    let start = clock.monotonic();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let (queue, clock) = (Arc::clone(&queue), Arc::clone(&clock));
            tokio::spawn(async move {
                let mut got = Vec::new();
                while let Some(item) = queue.get().await {
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
    let due: Vec<_> = delays.into_iter().enumerate().map(|(item, delay)| (item, start + ms(delay))).collect();
    assert_eq!(got, due);
}

#[tokio::test]
async fn worker_that_never_waits_lets_others_run() {
    let (_clock, queue) = queue();
    for item in 0..10_000 {
        queue.add(item);
    }
    let mut worker = pin!(async {
        while !queue.is_empty() {
            if let Some(item) = queue.get().await {
                queue.done(&item);
            }
        }
    });
    assert_eq!(poll(&mut worker), Poll::Pending);
    assert!(!queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn item_due_while_the_only_worker_is_busy_is_its_next() {
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let queue = DelayingQueue::new("test", clock.clone(), &NoQueueMetrics);
    queue.add("work");
    let item = queue.get().await.unwrap();
    queue.add_after("later", ms(10));
    clock.sleep(ms(100)).await;
    let at = clock.monotonic();
    queue.done(&item);
    assert_eq!(queue.get().await, Some("later"));
    assert_eq!(clock.monotonic(), at);
}

/// Items that wait, by deadline and then by when they were added for it; and those that are queued.
#[derive(Default)]
struct Model {
    now: u64,
    added: u64,
    waiting: Vec<(u64, u64, u8)>,
    queue: Vec<u8>,
    working: Vec<u8>,
    requested: Vec<u8>,
}

impl Model {
    fn add(&mut self, item: u8) {
        if self.working.contains(&item) {
            if !self.requested.contains(&item) {
                self.requested.push(item);
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

    /// One millisecond at a time, as the real queue never does.
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
            self.working.push(item);
            item
        })
    }

    fn done(&mut self, item: u8) {
        if let Some(at) = self.working.iter().position(|&other| other == item) {
            self.working.remove(at);
            if let Some(at) = self.requested.iter().position(|&other| other == item) {
                self.requested.remove(at);
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
    fn queue_after_any_calls_is_as_the_model(calls in prop::collection::vec(call(), 0..150)) {
        let ((clock, queue), mut model) = (queue(), Model::default());
        for call in calls {
            match call {
                Call::Add(item) => { queue.add(item); model.add(item); }
                Call::AddAfter(item, delay) => { queue.add_after(item, ms(delay)); model.add_after(item, delay); }
                Call::Get => prop_assert_eq!(take(&queue), model.get()),
                Call::Done(item) => { queue.done(&item); model.done(item); }
                Call::Step(by) => { clock.step(ms(by)); model.step(by); }
            }
        }
        prop_assert_eq!(queue.len(), model.queue.len());
        prop_assert_eq!(drain(&queue), model.queue);
    }
}
