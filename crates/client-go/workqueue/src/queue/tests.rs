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
use crate::metrics::NoQueueMetrics;

fn queue<T: Item>() -> Queue<T> {
    Queue::new("test", Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH)), &NoQueueMetrics)
}

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn get_now<T: Item>(queue: &Queue<T>) -> Option<T> {
    match queue.try_get() {
        TryGet::Item(item) => Some(item),
        TryGet::Empty | TryGet::ShutDown => None,
    }
}

fn get_all<T: Item>(queue: &Queue<T>) -> Vec<T> {
    std::iter::from_fn(|| get_now(queue)).collect()
}

mod order {
    use super::*;

    #[test]
    fn is_that_of_adds() {
        let queue = queue();
        for item in ["c", "a", "b"] {
            queue.add(item);
        }
        assert_eq!(get_all(&queue), ["c", "a", "b"]);
    }

    #[test]
    fn item_added_again_while_queued_keeps_its_place() {
        let queue = queue();
        for item in ["a", "b", "a", "a"] {
            queue.add(item);
        }
        assert_eq!(queue.len(), 2);
        assert_eq!(get_all(&queue), ["a", "b"]);
    }

    #[test]
    fn item_added_while_processed_is_queued_after_done() {
        let queue = queue();
        queue.add("a");
        assert_eq!(get_now(&queue), Some("a"));
        queue.add("a");
        queue.add("a");
        assert_eq!((get_now(&queue), queue.len()), (None, 0));
        queue.add("b");
        queue.done(&"a");
        assert_eq!(get_all(&queue), ["b", "a"]);
    }
}

mod urgent {
    use super::*;

    #[test]
    fn items_alternate_with_others() {
        let queue = queue();
        for item in ["a", "b", "c"] {
            queue.add(item);
        }
        for item in ["x", "y", "z"] {
            queue.add_urgent(item);
        }
        assert_eq!(get_all(&queue), ["x", "a", "y", "b", "z", "c"]);
    }

    #[test]
    fn queued_item_moves_once() {
        let queue = queue();
        for item in ["a", "b", "c", "d"] {
            queue.add(item);
        }
        queue.add_urgent("c");
        queue.add_urgent("c");
        queue.add("c");
        assert_eq!(queue.len(), 4);
        assert_eq!(get_all(&queue), ["c", "a", "b", "d"]);
    }

    /// The place that an urgent item has left is not that of a later add.
    #[test]
    fn item_is_taken_once_for_all_its_places() {
        let queue = queue();
        queue.add("a");
        queue.add("b");
        queue.add_urgent("b");
        assert_eq!(get_now(&queue), Some("b"));
        queue.done(&"b");
        queue.add("b");
        assert_eq!(queue.len(), 2);
        assert_eq!(get_all(&queue), ["a", "b"]);
        queue.done(&"b");
        assert_eq!((get_now(&queue), queue.len()), (None, 0));
    }

    #[test]
    fn item_added_while_processed_is_urgent_after_done() {
        let queue = queue();
        queue.add("a");
        assert_eq!(get_now(&queue), Some("a"));
        queue.add("b");
        queue.add("a");
        queue.add_urgent("a");
        queue.done(&"a");
        assert_eq!(get_all(&queue), ["a", "b"]);
    }
}

mod done {
    use super::*;

    #[test]
    fn removes_the_item() {
        let queue = queue();
        queue.add("a");
        get_all(&queue);
        queue.done(&"a");
        assert!(queue.is_empty());
        assert!(queue.state.lock().items.is_empty());
        queue.add("a");
        assert_eq!(get_all(&queue), ["a"]);
    }

    #[test]
    fn has_no_effect_on_items_that_are_not_processed() {
        let queue = queue();
        queue.done(&"a");
        queue.add("a");
        queue.done(&"a");
        assert_eq!(get_all(&queue), ["a"]);
        queue.done(&"a");
        queue.done(&"a");
        assert_eq!(get_all(&queue), [""; 0]);
    }
}

mod get {
    use super::*;

    #[derive(Default)]
    struct CountWakes(AtomicUsize);

    impl Wake for CountWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn waits_for_an_item() {
        let queue = queue();
        let mut get = pin!(queue.next());
        assert_eq!(poll(&mut get), Poll::Pending);
        queue.add("a");
        assert_eq!(get.await, Some("a"));
    }

    #[test]
    fn is_woken_by_done_of_an_item_that_was_added_again() {
        let queue = queue();
        queue.add("a");
        get_now(&queue);
        queue.add("a");
        let wakes = Arc::new(CountWakes::default());
        let mut get = pin!(queue.next());
        let waker = Waker::from(Arc::clone(&wakes));
        assert_eq!(get.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        queue.done(&"a");
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut get), Poll::Ready(Some("a")));
    }

    #[tokio::test]
    async fn each_item_wakes_one_worker() {
        let queue = queue();
        let wakes = Arc::new(CountWakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut workers: Vec<_> = (0..50).map(|_| Box::pin(queue.next())).collect();
        for worker in &mut workers {
            assert_eq!(worker.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        }
        for added in 1..=3 {
            queue.add(added);
            assert_eq!(wakes.0.load(Ordering::Relaxed), added);
        }
        let items: Vec<_> = workers
            .iter_mut()
            .filter_map(|worker| match worker.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(item) => item,
                Poll::Pending => None,
            })
            .collect();
        assert_eq!(items.len(), 3);
    }

    #[tokio::test]
    async fn worker_that_is_cancelled_after_its_wake_up_loses_no_item() {
        let queue = queue();
        let mut other = pin!(queue.next());
        assert_eq!(poll(&mut other), Poll::Pending);
        {
            let mut cancelled = pin!(queue.next());
            assert_eq!(poll(&mut cancelled), Poll::Pending);
            queue.add("a");
        }
        assert_eq!(queue.len(), 1);
        assert_eq!(poll(&mut other), Poll::Ready(Some("a")));
    }

    #[tokio::test]
    async fn worker_that_never_waits_yields() {
        let queue = queue();
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
        // The budget of this task is used up before the queue is empty.
        assert_eq!(poll(&mut worker), Poll::Pending);
        assert!(!queue.is_empty());
    }
}

mod shut_down {
    use super::*;

    #[tokio::test]
    async fn queued_items_are_processed_and_none_is_added() {
        let queue = queue();
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await, Some("a"));
        queue.add("a");
        queue.shut_down();
        assert!(queue.is_shutting_down());
        queue.add("c");
        queue.done(&"a");
        assert_eq!(queue.next().await, Some("b"));
        assert_eq!(queue.next().await, Some("a"));
        assert_eq!(queue.next().await, None);
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test]
    async fn ends_all_waiting_workers() {
        let queue = queue::<&str>();
        let mut workers: Vec<_> = (0..3).map(|_| Box::pin(queue.next())).collect();
        for worker in &mut workers {
            assert_eq!(poll(&mut worker.as_mut()), Poll::Pending);
        }
        queue.shut_down();
        for worker in &mut workers {
            assert_eq!(poll(&mut worker.as_mut()), Poll::Ready(None));
        }
    }

    #[tokio::test]
    async fn drain_waits_for_queued_and_processed_items() {
        let queue = queue();
        queue.add("a");
        queue.add("b");
        assert_eq!(get_now(&queue), Some("a"));
        queue.add("a");
        let mut drain = pin!(queue.shut_down_with_drain());
        assert_eq!(poll(&mut drain), Poll::Pending);
        queue.add("c");
        queue.done(&"a");
        assert_eq!(poll(&mut drain), Poll::Pending);
        assert_eq!(get_now(&queue), Some("b"));
        queue.done(&"b");
        assert_eq!(poll(&mut drain), Poll::Pending);
        assert_eq!(get_now(&queue), Some("a"));
        assert_eq!(poll(&mut drain), Poll::Pending);
        queue.done(&"a");
        assert_eq!(poll(&mut drain), Poll::Ready(()));
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test]
    async fn drain_of_an_idle_queue_does_not_wait() {
        let queue = queue::<&str>();
        queue.shut_down_with_drain().await;
        assert!(queue.is_shutting_down());
    }

    #[tokio::test]
    async fn ends_a_drain() {
        let queue = queue();
        queue.add("a");
        get_now(&queue);
        let mut drain = pin!(queue.shut_down_with_drain());
        assert_eq!(poll(&mut drain), Poll::Pending);
        queue.shut_down();
        assert_eq!(poll(&mut drain), Poll::Ready(()));
    }
}

/// Workers and producers on several threads: no item has two workers, and no add is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_workers_process_every_add() {
    const ITEMS: usize = 20;
    const ADDS: usize = 2_000;
    #[derive(Default)]
    struct Processed {
        workers: AtomicUsize,
        /// Version of the item when it was last processed.
        version: AtomicUsize,
    }
    let queue = Arc::new(queue());
    let versions: Arc<[AtomicUsize; ITEMS]> = Arc::default();
    let processed: Arc<[Processed; ITEMS]> = Arc::default();

    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (queue, versions) = (Arc::clone(&queue), Arc::clone(&versions));
            let processed = Arc::clone(&processed);
            tokio::spawn(async move {
                while let Some(item) = queue.next().await {
                    let (processed, version): (&Processed, &AtomicUsize) =
                        (&processed[item], &versions[item]);
                    assert_eq!(processed.workers.fetch_add(1, Ordering::SeqCst), 0, "item {item}");
                    processed.version.store(version.load(Ordering::SeqCst), Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    processed.workers.fetch_sub(1, Ordering::SeqCst);
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
        let added = versions[item].load(Ordering::SeqCst);
        assert_eq!(processed[item].version.load(Ordering::SeqCst), added, "item {item}");
    }
}

mod metrics {
    use super::*;

    /// Reported metric; durations in seconds.
    #[derive(Debug, Clone, PartialEq)]
    enum Reported {
        Depth(usize),
        Added,
        QueueDuration(u64),
        WorkDuration(u64),
        UnfinishedWork(u64),
        LongestRunning(u64),
    }

    #[derive(Default, Clone)]
    struct Recording(Arc<Mutex<Vec<Reported>>>);

    impl Recording {
        fn push(&self, reported: Reported) {
            self.0.lock().push(reported);
        }

        fn take(&self) -> Vec<Reported> {
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
            self.push(Reported::Depth(items));
        }
        fn added(&self) {
            self.push(Reported::Added);
        }
        fn queue_duration(&self, duration: Duration) {
            self.push(Reported::QueueDuration(duration.as_secs()));
        }
        fn work_duration(&self, duration: Duration) {
            self.push(Reported::WorkDuration(duration.as_secs()));
        }
        fn unfinished_work(&self, total: Duration) {
            self.push(Reported::UnfinishedWork(total.as_secs()));
        }
        fn longest_running_processor(&self, longest: Duration) {
            self.push(Reported::LongestRunning(longest.as_secs()));
        }
    }

    #[test]
    fn report_adds_depth_and_durations() {
        use Reported::{Added, Depth, LongestRunning, QueueDuration, UnfinishedWork, WorkDuration};
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let step = |seconds| clock.step(Duration::from_secs(seconds));
        let reported = Recording::default();
        let queue = Queue::new("test", Arc::new(clock.clone()), &reported);

        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(reported.take(), [Added, Depth(1), Added, Depth(2)]);

        step(3);
        assert_eq!(get_now(&queue), Some("a"));
        assert_eq!(reported.take(), [Depth(1), QueueDuration(3)]);

        // Added while processed: the queue duration starts here.
        step(2);
        queue.add("a");
        queue.add("a");
        assert_eq!(reported.take(), [Added, Depth(2)]);

        step(1);
        assert_eq!(get_now(&queue), Some("b"));
        assert_eq!(reported.take(), [Depth(1), QueueDuration(6)]);

        step(10);
        queue.refresh_metrics();
        assert_eq!(reported.take(), [UnfinishedWork(13 + 10), LongestRunning(13), Depth(1)]);

        queue.done(&"a");
        queue.done(&"b");
        assert_eq!(reported.take(), [WorkDuration(13), WorkDuration(10)]);

        assert_eq!(get_now(&queue), Some("a"));
        assert_eq!(reported.take(), [Depth(0), QueueDuration(11)]);
        queue.done(&"a");
        reported.take();
        queue.refresh_metrics();
        assert_eq!(reported.take(), [UnfinishedWork(0), LongestRunning(0), Depth(0)]);
    }
}

/// Compares the queue with a model that has upstream's list and two sets.
mod model {
    use super::*;

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

        fn get(&mut self) -> TryGet<u8> {
            let Some(item) = self.queue.pop_front() else {
                return if self.shutting_down { TryGet::ShutDown } else { TryGet::Empty };
            };
            self.dirty.remove(&item);
            self.processing.insert(item);
            TryGet::Item(item)
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
        fn agrees_after_any_calls(calls in prop::collection::vec(call(), 0..200)) {
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
                let processing_dirty = model.dirty.intersection(&model.processing).count();
                prop_assert_eq!(state.processing_dirty, processing_dirty);
            }
        }
    }
}
