//! Workers that sync the items of a queue.

use kcm_workqueue::RateLimitingQueue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Calls `sync` for each item of `queue`, up to `workers` at a time, until `stop` is cancelled.
///
/// An item is never in two syncs at a time, and is marked done after its sync. `sync` requeues items. If `stop` is
/// cancelled, the queue is shut down, the items that it contains are synced, and the function returns.
///
/// Upstream counterpart: `worker` and `processNextWorkItem` of each controller.
///
/// # Panics
///
/// If a sync panics, with its payload. Upstream's crash handler ends the process, too (US-2.2).
///
/// # Cancel safety
///
/// Dropping the future aborts running syncs and does not change the queue.
pub(crate) async fn run_workers<T, F, Fut>(
    queue: &RateLimitingQueue<T>,
    workers: usize,
    sync: F,
    stop: CancellationToken,
) where
    T: kcm_workqueue::Item,
    F: Fn(T) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut workers: JoinSet<()> = (0..workers)
        .map(|_| {
            let (queue, sync) = (queue.clone(), sync.clone());
            async move {
                while let Some(item) = queue.get().await {
                    sync(item.clone()).await;
                    queue.done(&item);
                }
            }
        })
        .collect();
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled(), if !stopping => {
                queue.shut_down();
                stopping = true;
            }
            ended = workers.join_next() => match ended {
                None => return,
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    if let Ok(payload) = error.try_into_panic() {
                        std::panic::resume_unwind(payload);
                    }
                }
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

    use kcm_clock::{SimulatedClock, Timestamp};
    use kcm_workqueue::QueueConfig;
    use tokio::sync::Semaphore;

    use super::*;

    fn queue() -> RateLimitingQueue<u32> {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        RateLimitingQueue::new(QueueConfig::new("test", clock))
    }

    #[tokio::test(start_paused = true)]
    async fn syncs_at_most_one_item_per_worker_at_a_time() {
        let queue = queue();
        (0..10).for_each(|item| queue.add(item));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = CancellationToken::new();
        let sync = {
            let (running, most) = (running.clone(), most.clone());
            move |_| {
                let (running, most) = (running.clone(), most.clone());
                async move {
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                }
            }
        };
        let workers = tokio::spawn({
            let (queue, stop) = (queue.clone(), stop.clone());
            async move { run_workers(&queue, 3, sync, stop).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Queued items are synced after the cancellation.
        stop.cancel();
        workers.await.unwrap();
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
                run_workers(&queue, 2, |_| async { panic!("broken sync") }, CancellationToken::new()).await;
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
            let sync = move |_| {
                let (started, go) = (started.clone(), go.clone());
                async move {
                    started.add_permits(1);
                    go.acquire().await.unwrap().forget();
                }
            };
            async move { run_workers(&queue, 2, sync, stop).await }
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
}
