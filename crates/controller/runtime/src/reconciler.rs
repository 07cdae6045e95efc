//! Controller-specific part of the control loop.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use kcm_meta::ObjectKey;
use tracing::{Span, error_span};

use crate::{ErrorClass, Requeue};

/// Reconciles the objects of one controller. A [`Controller`](crate::Controller) calls it for each key of its queue, and
/// never twice at a time for the same key.
///
/// Upstream counterparts: the `syncHandler` of each controller, and `reconcile.Reconciler` of controller-runtime.
pub trait Reconciler: Send + Sync + 'static {
    /// Error of a reconciliation.
    type Error: fmt::Display + Send + 'static;

    /// Message that is logged at `-v=4` before a key is reconciled.
    const STARTED: Option<&'static str> = None;
    /// Message that is logged at `-v=4` after a key is reconciled.
    const FINISHED: &'static str = "Finished syncing";
    /// Message of an error.
    const FAILED: &'static str = "Sync failed";
    /// Number of consecutive failures of a key that are logged at `-v=2`. Later failures are logged as errors.
    const QUIET_RETRIES: u32 = 0;
    /// `true` if a reconciliation logs nothing below `-v=2`. Its [span](Self::span), which costs time for each key, is then created
    /// at `-v=2` and after a failure only.
    const IS_QUIET: bool = false;

    /// Reconciles the object at `key`, and returns the time of the next reconciliation if no event comes before it.
    ///
    /// The object may not exist any more. Implementations are written as `async fn`.
    ///
    /// # Errors
    ///
    /// If the key must be reconciled again. [`classify`](Self::classify) decides whether it is retried.
    ///
    /// # Cancel safety
    ///
    /// An implementation must permit that the future is dropped. The key then stays in the queue.
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = Result<Requeue, Self::Error>> + Send;

    /// Returns the treatment of `error`. Default: [`ErrorClass::Failed`].
    fn classify(error: &Self::Error) -> ErrorClass {
        let _ = error;
        ErrorClass::Failed
    }

    /// Returns the time after which the key is reconciled, even if its back-off after `error` is longer. Default: `None`.
    fn wake_after(error: &Self::Error) -> Option<Duration> {
        let _ = error;
        None
    }

    /// Returns the span of a reconciliation. Its fields are part of each line that is logged meanwhile.
    ///
    /// The key is a field under upstream's name for the kind, such as `deployment`; by default it is `object`. The level
    /// is `ERROR`, so that errors are logged with the key at every verbosity.
    fn span(&self, key: &ObjectKey) -> Span {
        error_span!("reconcile", object = %key)
    }
}

impl<R: Reconciler> Reconciler for Arc<R> {
    type Error = R::Error;

    const STARTED: Option<&'static str> = R::STARTED;
    const FINISHED: &'static str = R::FINISHED;
    const FAILED: &'static str = R::FAILED;
    const QUIET_RETRIES: u32 = R::QUIET_RETRIES;
    const IS_QUIET: bool = R::IS_QUIET;

    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = Result<Requeue, R::Error>> + Send {
        R::reconcile(self, key)
    }

    fn classify(error: &R::Error) -> ErrorClass {
        R::classify(error)
    }

    fn wake_after(error: &R::Error) -> Option<Duration> {
        R::wake_after(error)
    }

    fn span(&self, key: &ObjectKey) -> Span {
        R::span(self, key)
    }
}
