//! Separation of the manager's work from that of the rest of the process.
//!
//! API server, nodes and script run in [`uncounted`]. All other work of the process is the manager's. `cargo xtask budget`
//! counts instructions with callgrind, which starts or stops at each call and return of [`counted`] and
//! [`exclude`], and writes its counters at each return of [`end_section`].

use std::{
    alloc::System,
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

static MANAGER: Mutex<ManagerAllocations> = Mutex::new(ManagerAllocations {
    total: Allocations { count: 0, bytes: 0 },
    since: Allocations { count: 0, bytes: 0 },
});

/// Number of allocations and reallocations, and bytes that they added.
#[derive(Debug, Clone, Copy)]
pub struct Allocations {
    pub count: usize,
    pub bytes: usize,
}

struct ManagerAllocations {
    total: Allocations,
    /// Allocations of the process at the end of the last [`uncounted`] work.
    since: Allocations,
}

impl Allocations {
    /// Allocations of the manager before the current [`uncounted`] work.
    pub fn of_manager() -> Self {
        MANAGER.lock().total
    }

    fn of_process() -> Self {
        let stats = ALLOCATOR.stats();
        Self { count: stats.allocations + stats.reallocations, bytes: stats.bytes_allocated }
    }

    pub fn since(self, start: Self) -> Self {
        Self { count: self.count - start.count, bytes: self.bytes - start.bytes }
    }
}

/// Runs `work` with instructions counted, except those in [`uncounted`].
#[inline(never)]
pub fn counted(work: &mut dyn FnMut()) {
    MANAGER.lock().since = Allocations::of_process();
    work();
}

/// Runs `work` without counting. Calls must not be nested.
pub fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let (mut work, mut result) = (Some(work), None);
    exclude(&mut || {
        {
            let mut manager = MANAGER.lock();
            let spent = Allocations::of_process().since(manager.since);
            manager.total.count += spent.count;
            manager.total.bytes += spent.bytes;
        }
        result = work.take().map(|work| work());
        MANAGER.lock().since = Allocations::of_process();
    });
    result.unwrap()
}

#[inline(never)]
fn exclude(work: &mut dyn FnMut()) {
    work();
}

/// Ends a section of the script.
#[inline(never)]
pub fn end_section() {
    std::hint::black_box(());
}

/// Future or body that runs [`uncounted`].
#[derive(Clone)]
pub struct Uncounted<T>(pub T);

pub type UncountedFuture<T> = Uncounted<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Boxes a future that runs [`uncounted`].
pub fn uncounted_future<T>(future: impl Future<Output = T> + Send + 'static) -> UncountedFuture<T> {
    uncounted(|| Uncounted(Box::pin(future) as _))
}

impl<T: Unpin + Future> Future for Uncounted<T> {
    type Output = T::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T::Output> {
        uncounted(|| Pin::new(&mut self.0).poll(context))
    }
}

impl<B: http_body::Body + Unpin> http_body::Body for Uncounted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        uncounted(|| Pin::new(&mut self.0).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
