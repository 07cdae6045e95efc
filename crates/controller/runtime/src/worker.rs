//! Workers that process the items of a queue.

use std::ops::ControlFlow;

use kcm_clock::Sleep;
use kcm_workqueue::{Item, RateLimitingQueue, WorkItem};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Reason for which [`Controller::run`](crate::Controller::run) has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// It was stopped, and all keys that were queued have been processed.
    Stopped,
    /// It was stopped, and keys were left when the drain timeout ended.
    DrainTimedOut,
    /// The leader gate is closed. Keys that were not processed are still queued.
    NotLeading,
}

/// Calls `process` for each item of `queue`, up to `workers` at a time, until `stop` is cancelled.
///
/// The arguments of `process` are the number of the worker and the item. If it breaks, the other workers are aborted.
///
/// If `stop` is cancelled, the queue is shut down, the items that it contains are processed, and the function returns. If
/// the future that `deadline` creates ends before, the workers are aborted.
///
/// Upstream counterpart: `worker` and `processNextWorkItem` of each controller.
///
/// # Panics
///
/// If a worker panics, with its payload. Upstream's crash handler ends the process, too (US-2.2).
///
/// # Cancel safety
///
/// Dropping the future aborts the workers. Their items are given back to the queue.
pub(crate) async fn run_workers<T, F, Fut>(
    queue: &RateLimitingQueue<T>,
    workers: usize,
    process: F,
    stop: &CancellationToken,
    deadline: impl FnOnce() -> Sleep,
) -> RunOutcome
where
    T: Item,
    F: Fn(usize, WorkItem<'static, T>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ControlFlow<()>> + Send + 'static,
{
    let mut tasks: JoinSet<ControlFlow<()>> = (0..workers)
        .map(|worker| {
            let (queue, process) = (queue.clone(), process.clone());
            async move {
                while let Some(item) = queue.get().await {
                    process(worker, item).await?;
                }
                ControlFlow::Continue(())
            }
        })
        .collect();
    let mut deadline = Some(deadline);
    let mut timeout: Sleep = Box::pin(std::future::pending());
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled(), if deadline.is_some() => {
                queue.shut_down();
                if let Some(deadline) = deadline.take() {
                    timeout = deadline();
                }
            }
            ended = tasks.join_next() => match ended {
                None => return RunOutcome::Stopped,
                Some(Ok(ControlFlow::Continue(()))) => {}
                Some(Ok(ControlFlow::Break(()))) => {
                    tasks.shutdown().await;
                    return RunOutcome::NotLeading;
                }
                Some(Err(error)) => {
                    if let Ok(payload) = error.try_into_panic() {
                        std::panic::resume_unwind(payload);
                    }
                }
            },
            () = &mut timeout => {
                tasks.shutdown().await;
                return RunOutcome::DrainTimedOut;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use kcm_clock::{Clock, SimulatedClock, Timestamp};
    use kcm_workqueue::QueueConfig;
    use tokio::sync::Semaphore;

    use super::*;

    fn queue() -> RateLimitingQueue<u32> {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        RateLimitingQueue::new(QueueConfig::new("test", clock))
    }

    fn no_deadline() -> Sleep {
        Box::pin(std::future::pending())
    }

    #[tokio::test(start_paused = true)]
    async fn syncs_at_most_one_item_per_worker_at_a_time() {
        let queue = queue();
        (0..10).for_each(|item| queue.add(item));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = CancellationToken::new();
        let sync = {
            let (running, most) = (running.clone(), most.clone());
            move |_, item| {
                let (running, most) = (running.clone(), most.clone());
                async move {
                    let _item = item;
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    ControlFlow::Continue(())
                }
            }
        };
        let workers = tokio::spawn({
            let (queue, stop) = (queue.clone(), stop.clone());
            async move { run_workers(&queue, 3, sync, &stop, no_deadline).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Queued items are synced after the cancellation.
        stop.cancel();
        assert_eq!(workers.await.unwrap(), RunOutcome::Stopped);
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert!(queue.is_empty() && queue.is_shutting_down());
    }

    #[tokio::test]
    async fn panics_with_the_payload_of_a_sync() {
        let queue = queue();
        queue.add(1);
        let ended = tokio::spawn({
            let queue = queue.clone();
            async move {
                let stop = CancellationToken::new();
                run_workers(&queue, 2, |_, _| async { panic!("broken sync") }, &stop, no_deadline).await;
            }
        })
        .await;
        let payload = ended.unwrap_err().into_panic();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"broken sync"));
    }

    #[tokio::test]
    async fn syncs_an_item_again_that_was_added_during_its_sync() {
        let queue = queue();
        let (started, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let stop = CancellationToken::new();
        let workers = tokio::spawn({
            let (queue, stop, started, go) = (queue.clone(), stop.clone(), started.clone(), go.clone());
            let sync = move |_, item| {
                let (started, go) = (started.clone(), go.clone());
                async move {
                    let _item = item;
                    started.add_permits(1);
                    go.acquire().await.unwrap().forget();
                    ControlFlow::Continue(())
                }
            };
            async move { run_workers(&queue, 2, sync, &stop, no_deadline).await }
        });
        queue.add(1);
        started.acquire().await.unwrap().forget();
        queue.add(1);
        tokio::task::yield_now().await;
        assert_eq!(started.available_permits(), 0);
        go.add_permits(2);
        started.acquire().await.unwrap().forget();
        stop.cancel();
        workers.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn aborts_workers_when_the_drain_takes_too_long() {
        let queue = queue();
        queue.add(1);
        let stop = CancellationToken::new();
        stop.cancel();
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        let never = |_, item| async move {
            std::future::pending::<()>().await;
            drop(item);
            ControlFlow::Continue(())
        };
        let deadline = || clock.sleep(Duration::from_secs(5));
        let outcome = run_workers(&queue, 1, never, &stop, deadline).await;
        assert_eq!((outcome, clock.monotonic()), (RunOutcome::DrainTimedOut, Duration::from_secs(5)));
        // The item was given back.
        queue.shut_down_with_drain().await;
    }

    #[tokio::test]
    async fn aborts_all_workers_when_one_breaks() {
        let queue = queue();
        queue.add(1);
        queue.add(2);
        let process = |_, item: WorkItem<'static, u32>| async move {
            if *item == 1 {
                std::future::pending::<()>().await;
            }
            ControlFlow::Break(())
        };
        let stop = CancellationToken::new();
        assert_eq!(run_workers(&queue, 3, process, &stop, no_deadline).await, RunOutcome::NotLeading);
        assert!(!queue.is_shutting_down());
    }
}
