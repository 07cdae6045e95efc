//! Runs items on several threads.

use std::{
    num::NonZero,
    ops::ControlFlow,
    panic::{self, AssertUnwindSafe},
    sync::{Mutex, mpsc},
    thread,
};

/// Number of threads that the machine runs at once.
pub fn available() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs items in order on `jobs` threads and passes each result to `show`, until `show` breaks. Returns the value of the
/// break.
///
/// # Panics
///
/// Panics if `run` panics.
pub fn each<I: Send, R: Send, B>(
    items: impl Iterator<Item = I> + Send,
    jobs: usize,
    run: impl Fn(&I) -> R + Sync,
    mut show: impl FnMut(I, R) -> ControlFlow<B>,
) -> Option<B> {
    let (run, items) = (&run, &Mutex::new(items));
    thread::scope(|scope| {
        let (sender, results) = mpsc::sync_channel(jobs);
        for _ in 0..jobs {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(item) = items.lock().ok().and_then(|mut items| items.next()) {
                    let result = panic::catch_unwind(AssertUnwindSafe(|| run(&item)));
                    // There is no receiver after a break.
                    if sender.send((item, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (item, result) in results {
            let result = result.unwrap_or_else(|panic| panic::resume_unwind(panic));
            if let ControlFlow::Break(value) = show(item, result) {
                return Some(value);
            }
        }
        None
    })
}

/// Runs items in order on `jobs` threads.
///
/// # Panics
///
/// Panics if `run` panics.
pub fn for_each<I: Send>(items: impl Iterator<Item = I> + Send, jobs: usize, run: impl Fn(&I) + Sync) {
    each(items, jobs, run, |_, ()| ControlFlow::<()>::Continue(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_run_once() {
        let mut squares = Vec::new();
        let broken = each(
            0..100,
            3,
            |item| item * item,
            |item, square| {
                squares.push((item, square));
                ControlFlow::<()>::Continue(())
            },
        );
        squares.sort_unstable();
        assert_eq!(broken, None);
        assert_eq!(squares, (0..100).map(|item| (item, item * item)).collect::<Vec<_>>());
    }

    #[test]
    fn break_ends_an_endless_run() {
        let found = each(
            0_u64..,
            3,
            |item| *item,
            |_, item| {
                if item == 10 { ControlFlow::Break(item) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(found, Some(10));
    }

    #[test]
    #[should_panic(expected = "item 3")]
    fn panic_of_a_thread_ends_the_run() {
        let run = |item: &u64| assert_ne!(*item, 3, "item 3");
        each(0_u64.., 3, run, |_, ()| ControlFlow::<()>::Continue(()));
    }
}
