//! What is asked of a handler, and what it answers.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::User;

/// What answers requests for a path. It is called on a worker thread of the runtime: it must not block, and
/// should be done within milliseconds. A panic in it ends in a 500, and in nothing else.
pub type Handler = Arc<dyn Fn(&Asked<'_>) -> Answer + Send + Sync>;

/// `answer` as a [`Handler`].
pub fn handler(answer: impl Fn(&Asked<'_>) -> Answer + Send + Sync + 'static) -> Handler {
    Arc::new(answer)
}

/// A request by somebody who may make it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path, as it was sent.
    pub path: &'a str,
    /// What followed the `?`, as it was sent; empty if nothing did.
    pub query: &'a str,
    /// The headers, those with credentials left out.
    pub headers: &'a HeaderMap,
    /// The body; at most 64 KiB.
    pub body: &'a Bytes,
    /// Who asks.
    pub user: &'a User,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The code.
    pub status: StatusCode,
    /// The headers: `Content-Type` and what else is needed.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl<'a> Asked<'a> {
    /// The values of the query's parameter `name`, in order, decoded.
    pub fn parameters<'n>(&self, name: &'n str) -> impl Iterator<Item = Cow<'a, str>> + use<'a, 'n> {
        self.query.split('&').filter_map(move |pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key) == name).then(|| decode(value))
        })
    }

    /// Whether the query has the parameter `name`, with a value or without.
    pub fn has_parameter(&self, name: &str) -> bool {
        self.parameters(name).next().is_some()
    }
}

impl Answer {
    /// A 200 with plain text.
    pub fn text(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, "text/plain; charset=utf-8", body)
    }

    /// A 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, "application/json", body)
    }

    /// Any answer.
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { status, headers, body: body.into() }
    }

    /// A failure in plain text, as Go's `http.Error` puts it: a line, and not to be guessed at by a browser.
    pub fn error(status: StatusCode, message: impl fmt::Display) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{message}\n"))
            .with(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// A query's `%xx` and `+` as what they stand for. What is no such sequence stays as it is.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| byte == b'%').and_then(hex);
        decoded.push(match (byte, escaped) {
            (_, Some(escaped)) => escaped,
            (b'+', None) => b' ',
            (other, None) => other,
        });
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}
