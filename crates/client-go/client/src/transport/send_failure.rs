//! Failures of requests on a connection.

use std::io;

use http::Request;
use hyper::client::conn::TrySendError;
use thiserror::Error;
use tower::BoxError;

use crate::Body;

/// Reason why a request got no answer.
pub(super) enum SendFailure {
    /// The connection was closed before any part of the request was sent, or the server did not process it.
    NotSent(Box<Request<Body>>),
    /// The server did not process the request, and the connection may be open.
    Refused(Box<Request<Body>>),
    /// The connection broke after the request, or a part of it, may have been sent.
    Broken(ConnectionError),
    /// The request cannot be sent. No part of it was sent.
    Unsendable(BoxError),
}

/// Error of a connection that was open.
#[derive(Debug, Error)]
#[error(transparent)]
pub(crate) enum ConnectionError {
    Http1(hyper::Error),
    Http2(h2::Error),
}

impl From<TrySendError<Request<Body>>> for SendFailure {
    fn from(mut error: TrySendError<Request<Body>>) -> Self {
        match error.take_message() {
            Some(request) => Self::NotSent(Box::new(request)),
            None => Self::Broken(ConnectionError::Http1(error.into_error())),
        }
    }
}

/// Error of a connection that the server has closed.
pub(super) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server closed the connection")
}
