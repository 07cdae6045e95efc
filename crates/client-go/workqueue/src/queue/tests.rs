use std::{
    collections::{HashSet, VecDeque},
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use kcm_clock::{FakeClock, Timestamp};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::NoQueueMetrics;

fn queue<T: Item>() -> Queue<T> {
    Queue::new("test", Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH)), &NoQueueMetrics)
}

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Takes what is there without waiting.
fn take<T: Item>(queue: &Queue<T>) -> Option<T> {
    match queue.try_get() {
        Next::Item(item) => Some(item),
        Next::Empty | Next::ShutDown => None,
    }
}

fn drain<T: Item>(queue: &Queue<T>) -> Vec<T> {
    std::iter::from_fn(|| take(queue)).collect()
}

#[test]
fn items_come_out_in_the_order_they_went_in() {
    let queue = queue();
    for item in ["c", "a", "b"] {
        queue.add(item);
    }
    assert_eq!(drain(&queue), ["c", "a", "b"]);
}

#[test]
fn item_added_again_while_it_waits_is_handed_out_once_at_its_first_place() {
    let queue = queue();
    for item in ["a", "b", "a", "a"] {
        queue.add(item);
    }
    assert_eq!(queue.len(), 2);
    assert_eq!(drain(&queue), ["a", "b"]);
}

#[test]
fn item_added_while_a_worker_has_it_comes_back_once_that_worker_is_done() {
    let queue = queue();
    queue.add("a");
    assert_eq!(take(&queue), Some("a"));
    queue.add("a");
    queue.add("a");
    assert_eq!((take(&queue), queue.len()), (None, 0));
    queue.add("b");
    queue.done(&"a");
    assert_eq!(drain(&queue), ["b", "a"]);
}

#[test]
fn item_given_back_is_unknown_and_can_be_added_anew() {
    let queue = queue();
    queue.add("a");
    drain(&queue);
    queue.done(&"a");
    assert!(queue.is_empty());
    assert!(queue.state.lock().items.is_empty());
    queue.add("a");
    assert_eq!(drain(&queue), ["a"]);
}

#[test]
fn done_of_what_no_worker_has_changes_nothing() {
    let queue = queue();
    queue.done(&"a");
    queue.add("a");
    queue.done(&"a");
    assert_eq!(drain(&queue), ["a"]);
    queue.done(&"a");
    queue.done(&"a");
    assert_eq!(drain(&queue), [""; 0]);
}

#[tokio::test]
async fn get_of_an_empty_queue_waits_for_an_item() {
    let queue = queue();
    let mut get = pin!(queue.get());
    assert_eq!(poll(&mut get), Poll::Pending);
    queue.add("a");
    assert_eq!(get.await, Some("a"));
}

#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn item_given_back_that_was_asked_for_meanwhile_wakes_a_parked_worker() {
    let queue = queue();
    queue.add("a");
    take(&queue);
    queue.add("a");
    let wakes = Arc::new(CountWakes::default());
    let mut get = pin!(queue.get());
    let waker = Waker::from(Arc::clone(&wakes));
    assert_eq!(get.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    queue.done(&"a");
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut get), Poll::Ready(Some("a")));
}

#[tokio::test]
async fn each_item_wakes_one_of_many_parked_workers() {
    let queue = queue();
    let wakes = Arc::new(CountWakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut workers: Vec<_> = (0..50).map(|_| Box::pin(queue.get())).collect();
    for worker in &mut workers {
        assert_eq!(worker.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    }
    for added in 1..=3 {
        queue.add(added);
        assert_eq!(wakes.0.load(Ordering::Relaxed), added);
    }
    // All three are taken by those that were woken, though nobody else is polled.
    let taken: Vec<_> = workers
        .iter_mut()
        .filter_map(|worker| match worker.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(item) => item,
            Poll::Pending => None,
        })
        .collect();
    assert_eq!(taken.len(), 3);
}

#[tokio::test]
async fn worker_that_goes_away_after_it_was_woken_leaves_the_item_to_another() {
    let queue = queue();
    let mut stays = pin!(queue.get());
    assert_eq!(poll(&mut stays), Poll::Pending);
    {
        let mut leaves = pin!(queue.get());
        assert_eq!(poll(&mut leaves), Poll::Pending);
        queue.add("a");
    }
    assert_eq!(queue.len(), 1);
    assert_eq!(poll(&mut stays), Poll::Ready(Some("a")));
}

#[tokio::test]
async fn worker_that_never_waits_lets_others_run() {
    let queue = queue();
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
    // Polled by hand inside a task, whose budget runs out before the queue does.
    assert_eq!(poll(&mut worker), Poll::Pending);
    assert!(!queue.is_empty());
}

#[tokio::test]
async fn queue_shut_down_hands_out_what_it_has_and_takes_nothing_more() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    assert_eq!(queue.get().await, Some("a"));
    queue.add("a");
    queue.shut_down();
    assert!(queue.is_shutting_down());
    queue.add("c");
    queue.done(&"a");
    // "a" was asked for again before the end.
    assert_eq!(queue.get().await, Some("b"));
    assert_eq!(queue.get().await, Some("a"));
    assert_eq!(queue.get().await, None);
    assert_eq!(queue.get().await, None);
}

#[tokio::test]
async fn queue_shut_down_sends_all_parked_workers_home() {
    let queue = queue::<&str>();
    let mut workers: Vec<_> = (0..3).map(|_| Box::pin(queue.get())).collect();
    for worker in &mut workers {
        assert_eq!(poll(&mut worker.as_mut()), Poll::Pending);
    }
    queue.shut_down();
    for worker in &mut workers {
        assert_eq!(poll(&mut worker.as_mut()), Poll::Ready(None));
    }
}

#[tokio::test]
async fn shutdown_with_drain_waits_for_what_is_queued_worked_on_and_asked_for_again() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    assert_eq!(take(&queue), Some("a"));
    queue.add("a");
    let mut drain = pin!(queue.shut_down_with_drain());
    assert_eq!(poll(&mut drain), Poll::Pending);
    queue.add("c");
    queue.done(&"a");
    assert_eq!(poll(&mut drain), Poll::Pending);
    assert_eq!(take(&queue), Some("b"));
    queue.done(&"b");
    assert_eq!(poll(&mut drain), Poll::Pending);
    assert_eq!(take(&queue), Some("a"));
    assert_eq!(poll(&mut drain), Poll::Pending);
    queue.done(&"a");
    assert_eq!(poll(&mut drain), Poll::Ready(()));
    assert_eq!(queue.get().await, None);
}

#[tokio::test]
async fn shutdown_with_drain_of_an_idle_queue_is_done_at_once() {
    let queue = queue::<&str>();
    queue.shut_down_with_drain().await;
    assert!(queue.is_shutting_down());
}

#[tokio::test]
async fn shutdown_calls_a_drain_off() {
    let queue = queue();
    queue.add("a");
    take(&queue);
    let mut drain = pin!(queue.shut_down_with_drain());
    assert_eq!(poll(&mut drain), Poll::Pending);
    queue.shut_down();
    assert_eq!(poll(&mut drain), Poll::Ready(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn items_under_contention_are_with_one_worker_at_a_time_and_no_add_is_lost() {
    const ITEMS: usize = 20;
    const ADDS: usize = 2_000;
    #[derive(Default)]
    struct Seen {
        working: AtomicUsize,
        /// What had been added when the last work on the item began.
        version: AtomicUsize,
    }
    let queue = Arc::new(queue());
    let versions: Arc<[AtomicUsize; ITEMS]> = Arc::default();
    let seen: Arc<[Seen; ITEMS]> = Arc::default();

    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (queue, versions, seen) = (Arc::clone(&queue), Arc::clone(&versions), Arc::clone(&seen));
            tokio::spawn(async move {
                while let Some(item) = queue.get().await {
                    let (seen, version): (&Seen, &AtomicUsize) = (&seen[item], &versions[item]);
                    assert_eq!(seen.working.fetch_add(1, Ordering::SeqCst), 0, "two workers have {item}");
                    seen.version.store(version.load(Ordering::SeqCst), Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    seen.working.fetch_sub(1, Ordering::SeqCst);
                    queue.done(&item);
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let (queue, versions) = (Arc::clone(&queue), Arc::clone(&versions));
            tokio::spawn(async move {
                for n in 0..ADDS {
                    let item = (n * 7 + producer) % ITEMS;
                    versions[item].fetch_add(1, Ordering::SeqCst);
                    queue.add(item);
                    if n % 16 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    queue.shut_down_with_drain().await;
    for worker in workers {
        worker.await.unwrap();
    }
    for item in 0..ITEMS {
        let (added, worked) =
            (versions[item].load(Ordering::SeqCst), seen[item].version.load(Ordering::SeqCst));
        assert_eq!(worked, added, "work on {item} began before it was added last, and not again after");
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Told {
    Depth(usize),
    Added,
    Waited(u64),
    Worked(u64),
    Unfinished(u64),
    Longest(u64),
}

#[derive(Default, Clone)]
struct Recording(Arc<Mutex<Vec<Told>>>);

impl Recording {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock())
    }
}

impl MetricsProvider for Recording {
    fn queue(&self, name: &str) -> Option<Arc<dyn QueueMetrics>> {
        assert_eq!(name, "test");
        Some(Arc::new(self.clone()))
    }
}

impl QueueMetrics for Recording {
    fn depth(&self, items: usize) {
        self.0.lock().push(Told::Depth(items));
    }
    fn added(&self) {
        self.0.lock().push(Told::Added);
    }
    fn queue_duration(&self, waited: Duration) {
        self.0.lock().push(Told::Waited(waited.as_secs()));
    }
    fn work_duration(&self, worked: Duration) {
        self.0.lock().push(Told::Worked(worked.as_secs()));
    }
    fn unfinished_work(&self, total: Duration) {
        self.0.lock().push(Told::Unfinished(total.as_secs()));
    }
    fn longest_running_processor(&self, longest: Duration) {
        self.0.lock().push(Told::Longest(longest.as_secs()));
    }
}

#[test]
fn metrics_count_effective_adds_and_time_waiting_and_work() {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let step = |seconds| clock.step(Duration::from_secs(seconds));
    let told = Recording::default();
    let queue = Queue::new("test", Arc::new(clock.clone()), &told);

    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(told.take(), [Told::Added, Told::Depth(1), Told::Added, Told::Depth(2)]);

    step(3);
    assert_eq!(take(&queue), Some("a"));
    assert_eq!(told.take(), [Told::Depth(1), Told::Waited(3)]);

    // What is asked for again while a worker has it waits too, and from then on.
    step(2);
    queue.add("a");
    queue.add("a");
    assert_eq!(told.take(), [Told::Added, Told::Depth(2)]);

    step(1);
    assert_eq!(take(&queue), Some("b"));
    assert_eq!(told.take(), [Told::Depth(1), Told::Waited(6)]);

    step(10);
    queue.refresh_metrics();
    assert_eq!(told.take(), [Told::Unfinished(13 + 10), Told::Longest(13), Told::Depth(1)]);

    queue.done(&"a");
    queue.done(&"b");
    assert_eq!(told.take(), [Told::Worked(13), Told::Worked(10)]);

    assert_eq!(take(&queue), Some("a"));
    assert_eq!(told.take(), [Told::Depth(0), Told::Waited(11)]);
    queue.done(&"a");
    told.take();
    queue.refresh_metrics();
    assert_eq!(told.take(), [Told::Unfinished(0), Told::Longest(0), Told::Depth(0)]);
}

/// The queue as upstream writes it down: a list and two sets.
#[derive(Default)]
struct Model {
    queue: VecDeque<u8>,
    dirty: HashSet<u8>,
    processing: HashSet<u8>,
    shutting_down: bool,
}

impl Model {
    fn add(&mut self, item: u8) {
        if !self.shutting_down && self.dirty.insert(item) && !self.processing.contains(&item) {
            self.queue.push_back(item);
        }
    }

    fn get(&mut self) -> Next<u8> {
        let Some(item) = self.queue.pop_front() else {
            return if self.shutting_down { Next::ShutDown } else { Next::Empty };
        };
        self.dirty.remove(&item);
        self.processing.insert(item);
        Next::Item(item)
    }

    fn done(&mut self, item: u8) {
        if self.processing.remove(&item) && self.dirty.contains(&item) {
            self.queue.push_back(item);
        }
    }
}

#[derive(Debug, Clone)]
enum Call {
    Add(u8),
    Get,
    Done(u8),
    ShutDown,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        40 => (0_u8..6).prop_map(Call::Add),
        30 => Just(Call::Get),
        29 => (0_u8..6).prop_map(Call::Done),
        1 => Just(Call::ShutDown),
    ]
}

proptest! {
    #[test]
    fn queue_after_any_calls_is_as_the_model(calls in prop::collection::vec(call(), 0..200)) {
        let (queue, mut model) = (queue(), Model::default());
        for call in calls {
            match call {
                Call::Add(item) => { queue.add(item); model.add(item); }
                Call::Get => prop_assert_eq!(queue.try_get(), model.get()),
                Call::Done(item) => { queue.done(&item); model.done(item); }
                Call::ShutDown => { queue.shut_down(); model.shutting_down = true; }
            }
            let state = queue.state.lock();
            prop_assert_eq!(&state.order, &model.queue);
            prop_assert_eq!(state.depth(), model.dirty.len());
            let known: HashSet<_> = model.dirty.union(&model.processing).copied().collect();
            prop_assert_eq!(state.items.keys().copied().collect::<HashSet<_>>(), known);
            let requested = model.dirty.intersection(&model.processing).count();
            prop_assert_eq!(state.requested, requested);
        }
    }
}
