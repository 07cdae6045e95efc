//! Threads of a manager.

use std::{
    future::pending,
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::{runtime, sync::oneshot};
use tokio_util::sync::CancellationToken;

/// Threads that leader election and the secure port run on.
///
/// The controllers run on the runtime of the caller in both cases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// The runtime of the caller. Required for simulated time.
    #[default]
    CallersRuntime,
    /// A thread with a runtime each. A thread that is busy does not delay the others.
    OwnThreads,
}

impl Placement {
    /// Starts `task` on a thread called `name`, or returns it to be polled by the caller.
    ///
    /// A panic of the task is continued in the returned future.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the task, on its thread.
    ///
    /// # Errors
    ///
    /// If the thread or its runtime cannot be created.
    pub fn start<T: Send + 'static>(
        self,
        name: &str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<BoxFuture<'static, T>> {
        if self == Self::CallersRuntime {
            return Ok(task.boxed());
        }
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, (ended, outcome)) = (CancellationToken::new(), oneshot::channel());
        let dropped = stop.clone().drop_guard();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // The task is dropped by a panic, and not used afterwards.
            let run = AssertUnwindSafe(|| runtime.block_on(stop.run_until_cancelled(task)));
            // An error means that the caller has dropped its future.
            let _ = ended.send(catch_unwind(run));
            // A name resolution may not end.
            runtime.shutdown_background();
        })?;
        let outcome = async move {
            let _dropped = dropped;
            match outcome.await {
                Ok(Ok(Some(output))) => output,
                Ok(Err(panic)) => resume_unwind(panic),
                // The task is cancelled after this future was dropped.
                Ok(Ok(None)) | Err(_) => pending().await,
            }
        };
        Ok(outcome.boxed())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn thread_name() -> Option<String> {
        thread::current().name().map(str::to_owned)
    }

    #[tokio::test]
    async fn task_runs_on_a_thread_of_its_own() {
        let task = Placement::OwnThreads.start("other", async { thread_name() }).unwrap();
        assert_eq!(task.await.as_deref(), Some("other"));
        let task = Placement::CallersRuntime.start("other", async { thread_name() }).unwrap();
        assert_eq!(task.await, thread_name());
    }

    #[tokio::test]
    async fn task_runs_while_the_caller_is_busy() {
        let (sender, done) = mpsc::channel();
        let task = async move {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            sender.send(()).unwrap();
        };
        let _task = Placement::OwnThreads.start("other", task).unwrap();
        // Blocks the runtime of the caller.
        done.recv().unwrap();
    }

    #[tokio::test]
    async fn panic_reaches_the_caller() {
        for placement in [Placement::CallersRuntime, Placement::OwnThreads] {
            let task = placement.start("other", async { panic!("on purpose") }).unwrap();
            let caller: tokio::task::JoinHandle<()> = tokio::spawn(task);
            assert!(caller.await.unwrap_err().is_panic(), "{placement:?}");
        }
    }

    #[tokio::test]
    async fn dropped_future_drops_the_task() {
        let (sender, dropped) = mpsc::channel::<()>();
        let task = async move {
            let _sender = sender;
            pending::<()>().await;
        };
        drop(Placement::OwnThreads.start("other", task).unwrap());
        assert_eq!(dropped.recv(), Err(mpsc::RecvError));
    }
}
