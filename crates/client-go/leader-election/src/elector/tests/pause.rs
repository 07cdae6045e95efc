//! Futures that can be paused, as SIGSTOP pauses a process.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

#[derive(Default)]
pub(super) struct Pause {
    is_paused: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Pause {
    pub(super) fn stop(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
    }

    pub(super) fn go_on(&self) {
        self.is_paused.store(false, Ordering::SeqCst);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

pub(super) struct Pausable<T> {
    pause: Arc<Pause>,
    future: Pin<Box<dyn Future<Output = T> + Send>>,
}

impl<T> Pausable<T> {
    pub(super) fn new(pause: Arc<Pause>, future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { pause, future: Box::pin(future) }
    }
}

impl<T> Future for Pausable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.pause.is_paused.load(Ordering::SeqCst) {
            *self.pause.waker.lock() = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.future.as_mut().poll(context)
    }
}
