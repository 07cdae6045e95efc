//! Model tests of the queues: shuttle chooses the thread that runs next at each lock, wake-up and yield.
//!
//! A test fails if an assertion fails, or if all threads wait, in any schedule. The schedules come from fixed seeds. The
//! feature `shuttle` replaces the locks and wake-ups of the queues, see `src/sync.rs`.
//!
//! Run with `cargo test -p kcm-workqueue --features shuttle --test model`.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{sync::Arc, time::Duration};

use kcm_clock::{FakeClock, Timestamp};
use kcm_workqueue::{DelayingQueue, NoQueueMetrics, Queue};
use shuttle::{
    Config, Runner,
    future::block_on,
    scheduler::{PctScheduler, RandomScheduler},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
};
use tokio::sync::Notify;

/// Schedules per scheduler and test.
const SCHEDULES: usize = 1000;

/// Runs `test` under schedules drawn uniformly, then under schedules with few preemptions.
fn check(test: fn()) {
    let mut config = Config::new();
    // Room for the backtrace of a failure.
    config.stack_size = 1 << 18;
    Runner::new(RandomScheduler::new_from_seed(1, SCHEDULES), config.clone()).run(test);
    Runner::new(PctScheduler::new_from_seed(1, 3, SCHEDULES), config).run(test);
}

/// Starts a thread that uses `shared`.
fn spawn<T: Send + Sync + 'static>(shared: &Arc<T>, run: impl FnOnce(&T) + Send + 'static) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || run(&shared))
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// State of an item: the number of changes made, and the number that workers have processed.
#[derive(Default)]
struct Observed {
    changes: AtomicUsize,
    processed: AtomicUsize,
    processing: AtomicBool,
}

impl Observed {
    fn change(&self) {
        self.changes.fetch_add(1, SeqCst);
    }

    /// Processes the item as a worker does: reads the state first and uses it later.
    fn process(&self) {
        assert!(!self.processing.swap(true, SeqCst), "two workers process the item at the same time");
        let changes = self.changes.load(SeqCst);
        thread::yield_now();
        self.processed.fetch_max(changes, SeqCst);
        self.processing.store(false, SeqCst);
    }

    fn assert_all_processed(&self) {
        assert_eq!(self.processed.load(SeqCst), self.changes.load(SeqCst), "a change was not processed");
    }
}

mod queue {
    use super::*;

    struct TestEnv {
        queue: Queue<&'static str>,
        observed: Observed,
        /// Number of items that workers have processed.
        taken: AtomicUsize,
    }

    impl TestEnv {
        fn new() -> Arc<Self> {
            let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
            let queue = Queue::new("test", clock, &NoQueueMetrics);
            Arc::new(Self { queue, observed: Observed::default(), taken: AtomicUsize::new(0) })
        }

        /// Takes items until the queue is shut down.
        fn work(&self) {
            while let Some(item) = block_on(self.queue.get()) {
                self.taken.fetch_add(1, SeqCst);
                drop(item);
            }
        }
    }

    /// One worker at a time processes an item, and every change before an `add` is processed after it.
    ///
    /// Fails if `add` ignores an item that is being processed, and if it queues that item at once.
    #[test]
    fn processes_every_change_one_worker_at_a_time() {
        check(|| {
            let env = TestEnv::new();
            let workers = [(); 2].map(|()| {
                spawn(&env, |env| {
                    while let Some(item) = block_on(env.queue.get()) {
                        env.observed.process();
                        drop(item);
                    }
                })
            });
            let adders = [(); 2].map(|()| {
                spawn(&env, |env| {
                    for _ in 0..2 {
                        env.observed.change();
                        env.queue.add("a");
                    }
                })
            });
            join(adders);
            block_on(env.queue.shut_down_with_drain());
            env.observed.assert_all_processed();
            join(workers);
        });
    }

    /// Two items wake two workers. Each worker waits until both have an item.
    ///
    /// Fails if `get` registers for its wake-up after it has released the lock, and if `add` wakes a worker before
    /// the item is in the queue.
    #[test]
    fn wakes_a_worker_for_each_item() {
        check(|| {
            let env = TestEnv::new();
            let both = Arc::new(Barrier::new(2));
            let workers = [(); 2].map(|()| {
                let both = Arc::clone(&both);
                spawn(&env, move |env| {
                    assert!(block_on(env.queue.get()).is_some());
                    both.wait();
                })
            });
            let adders = ["a", "b"].map(|item| spawn(&env, move |env| env.queue.add(item)));
            join(adders);
            join(workers);
        });
    }

    /// A worker that is cancelled in `get` passes its wake-up to another worker.
    ///
    /// Fails if the wake-up is not given back when the future is dropped.
    #[test]
    fn passes_on_the_wake_up_of_a_cancelled_worker() {
        check(|| {
            let env = TestEnv::new();
            let cancel = Arc::new(Notify::new());
            let (taken, took) = mpsc::channel();
            let worker = {
                let taken = taken.clone();
                spawn(&env, move |env| {
                    if let Some(item) = block_on(env.queue.get()) {
                        taken.send(*item).unwrap();
                    }
                })
            };
            let cancelled = {
                let cancel = Arc::clone(&cancel);
                spawn(&env, move |env| {
                    let item = block_on(async {
                        tokio::select! {
                            biased;
                            () = cancel.notified() => None,
                            item = env.queue.get() => item.as_deref().copied(),
                        }
                    });
                    if let Some(item) = item {
                        taken.send(item).unwrap();
                    }
                })
            };
            let canceller = spawn(&cancel, Notify::notify_one);
            env.queue.add("a");
            assert_eq!(took.recv(), Ok("a"));
            env.queue.shut_down();
            join([worker, cancelled, canceller]);
            assert!(took.recv().is_err(), "the item was taken twice");
        });
    }

    /// A shutdown ends every worker, after all items that were queued before it.
    ///
    /// Fails if `shut_down` wakes the workers before it sets its flag.
    #[test]
    fn shut_down_ends_every_worker() {
        check(|| {
            let env = TestEnv::new();
            env.queue.add("a");
            env.queue.add("b");
            let workers = [(); 2].map(|()| spawn(&env, TestEnv::work));
            env.queue.shut_down();
            join(workers);
            assert_eq!(env.taken.load(SeqCst), 2);
        });
    }

    /// A drain waits until all work is done.
    ///
    /// Fails if `drained` registers for its wake-up after it has released the lock, and if it returns while a worker
    /// processes an item.
    #[test]
    fn drain_waits_for_the_last_done() {
        check(|| {
            let env = TestEnv::new();
            env.queue.add("a");
            env.queue.add("b");
            let workers = [(); 2].map(|()| spawn(&env, TestEnv::work));
            block_on(env.queue.shut_down_with_drain());
            assert_eq!(env.taken.load(SeqCst), 2, "the drain ended before the work");
            join(workers);
        });
    }

    /// A plain shutdown ends a drain that no worker completes.
    ///
    /// Fails if `shut_down` does not notify the drain.
    #[test]
    fn shut_down_ends_a_drain() {
        check(|| {
            let env = TestEnv::new();
            env.queue.add("a");
            let drain = spawn(&env, |env| block_on(env.queue.shut_down_with_drain()));
            while !env.queue.is_shutting_down() {
                thread::yield_now();
            }
            env.queue.shut_down();
            join([drain]);
        });
    }
}

mod delaying_queue {
    use kcm_clock::Clock;

    use super::*;

    /// Delay that no schedule reaches if items are queued when they are due.
    const LATE: Duration = Duration::from_secs(1000);

    struct TestEnv {
        queue: DelayingQueue<&'static str>,
        clock: FakeClock,
        observed: Observed,
        taken: AtomicUsize,
        cancel: Notify,
    }

    impl TestEnv {
        fn new() -> Arc<Self> {
            let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
            let queue = DelayingQueue::new("test", Arc::new(clock.clone()), &NoQueueMetrics);
            let (observed, taken, cancel) = (Observed::default(), AtomicUsize::new(0), Notify::new());
            Arc::new(Self { queue, clock, observed, taken, cancel })
        }

        /// Takes items until the queue is shut down.
        async fn work(&self) {
            while let Some(item) = self.queue.get().await {
                self.observed.process();
                if *item == "soon" {
                    self.queue.add_after("again", Duration::from_secs(2));
                }
                self.taken.fetch_add(1, SeqCst);
                drop(item);
            }
        }
    }

    /// A waiting worker gets a delayed item when it is due, also if the worker that sleeps until then is cancelled.
    ///
    /// Fails if `add_after` does not notify the worker that sleeps, if `move_due` leaves a deadline in `earliest` that has
    /// passed, and if no other worker takes over from the cancelled one.
    #[test]
    fn delivers_when_due_if_a_worker_is_cancelled() {
        check(|| {
            let env = TestEnv::new();
            let workers = [false, true].map(|cancelled| {
                spawn(&env, move |env| {
                    block_on(async {
                        tokio::select! {
                            biased;
                            () = env.cancel.notified(), if cancelled => {}
                            () = env.work() => {}
                        }
                    });
                })
            });
            let canceller = spawn(&env, |env| env.cancel.notify_one());
            let adder = spawn(&env, |env| {
                env.queue.add_after("late", LATE);
                env.queue.add_after("soon", Duration::from_secs(1));
            });
            join([canceller, adder]);
            // A sleep that starts after a step ends later, so the clock moves until both items are processed.
            while env.taken.load(SeqCst) < 2 {
                env.clock.step(Duration::from_secs(1));
                thread::yield_now();
            }
            assert!(env.clock.monotonic() < LATE, "an item was queued when the next one was due");
            env.queue.shut_down();
            join(workers);
            assert_eq!(env.taken.load(SeqCst), 2);
        });
    }

    /// A change is processed if its item is added immediately, after a delay, or while a worker processes it.
    ///
    /// Fails if `move_due` adds items after it has released the lock, and if `insert` loses an item that is delayed
    /// again.
    #[test]
    fn processes_every_change_added_now_or_later() {
        check(|| {
            let env = TestEnv::new();
            let worker = spawn(&env, |env| block_on(env.work()));
            let adders = [0, 2, 1].map(|seconds| {
                spawn(&env, move |env| {
                    env.observed.change();
                    env.queue.add_after("a", Duration::from_secs(seconds));
                })
            });
            let stepper = spawn(&env, |env| env.clock.step(Duration::from_secs(1)));
            join(adders);
            join([stepper]);
            // All items are due now, and the shutdown queues items that are due.
            env.clock.step(Duration::from_secs(2));
            block_on(env.queue.shut_down_with_drain());
            env.observed.assert_all_processed();
            join([worker]);
        });
    }

    /// A shutdown ends all workers while items are being delayed.
    ///
    /// Fails if the worker that sleeps until the next deadline does not wait for the queue as well.
    #[test]
    fn shut_down_ends_every_worker() {
        check(|| {
            let env = TestEnv::new();
            let workers = [(); 2].map(|()| spawn(&env, |env| block_on(env.work())));
            let adder = spawn(&env, |env| {
                env.queue.add_after("a", Duration::from_secs(1));
                env.queue.add("b");
            });
            env.queue.shut_down();
            join(workers);
            join([adder]);
        });
    }
}
