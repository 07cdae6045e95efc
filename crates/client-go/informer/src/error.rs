use std::{error::Error, fmt, sync::Arc, time::Duration};

/// Failure of a list or watch request.
///
/// Contains the error of the transport and its kind, which determines the next request of the reflector. Displays as the
/// transport's error.
#[derive(Debug, Clone)]
pub struct ListWatchError {
    kind: ListWatchErrorKind,
    retry_after: Duration,
    cause: Arc<dyn Error + Send + Sync>,
}

/// Kind of a [`ListWatchError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListWatchErrorKind {
    /// The requested resource version is no longer available.
    ///
    /// API servers: code 410, or reason `Expired` or `Gone`.
    Expired,
    /// The requested resource version is newer than the state of the server.
    ///
    /// API servers: cause `ResourceVersionTooLarge`.
    ResourceVersionTooLarge,
    /// The server rejects requests because there are too many.
    ///
    /// API servers: code 429.
    TooManyRequests,
    /// The server does not support this form of the request. A server without streaming lists rejects them so.
    ///
    /// API servers: code 400, 405, 406, 415, 422 or 501.
    Unsupported,
    /// No response in time.
    Timeout,
    /// The connection could not be established, or it was lost.
    Connection,
    /// Any other failure.
    Other,
}

impl ListWatchError {
    /// Creates an error from that of a transport.
    pub fn new(kind: ListWatchErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, retry_after: Duration::ZERO, cause: Arc::from(cause.into()) }
    }

    /// Sets the minimum time before the next request, as the server has requested it.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after, ..self }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> ListWatchErrorKind {
        self.kind
    }

    /// Returns the minimum time before the next request. Zero if the server has requested none.
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Returns the error of the transport, if it has type `E`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.cause.downcast_ref()
    }
}

impl fmt::Display for ListWatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for ListWatchError {
    // The cause is displayed as this error, so the chain continues behind it.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(fmt::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn stands_for_the_error_of_the_transport() {
        let error = ListWatchError::new(ListWatchErrorKind::Other, Outer(fmt::Error));
        assert_eq!(error.to_string(), "outer");
        assert!(error.source().is_some_and(<dyn Error>::is::<fmt::Error>));
        assert!(error.downcast_ref::<Outer>().is_some());
        assert!(error.downcast_ref::<fmt::Error>().is_none());
    }
}
