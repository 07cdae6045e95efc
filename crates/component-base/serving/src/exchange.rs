//! What is asked of a handler, and what it answers.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, USER_AGENT, X_CONTENT_TYPE_OPTIONS},
};
use percent_encoding::percent_decode_str;
use serde::Serialize;

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
    /// The path, decoded.
    pub path: &'a str,
    /// What followed the `?`, as it was sent; empty if nothing did.
    pub query: &'a str,
    /// The headers, those with credentials left out.
    pub headers: &'a HeaderMap,
    /// The body, at most 64 KiB. Empty unless the [route has one](crate::Routes::exact_with_body).
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
            (unescape(key, true) == name).then(|| unescape(value, true))
        })
    }

    /// Whether the query has the parameter `name`, with a value or without.
    pub fn has_parameter(&self, name: &str) -> bool {
        self.parameters(name).next().is_some()
    }

    /// Whether JSON is for a person to read: who asks says so, or seems to be one.
    pub(crate) fn wants_pretty(&self) -> bool {
        match self.parameters("pretty").next().filter(|value| !value.is_empty()) {
            Some(value) => matches!(&*value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
            None => {
                let agent = self.headers.get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
                [&b"curl"[..], b"Wget", b"Mozilla/5.0"].iter().any(|person| agent.starts_with(person))
            }
        }
    }

    /// `object` as JSON, as upstream writes it: in one line, or for a person.
    pub(crate) fn render(&self, object: &impl Serialize) -> String {
        let json = if self.wants_pretty() {
            serde_json::to_string_pretty(object)
        } else {
            serde_json::to_string(object).map(|json| json + "\n")
        };
        // Cannot fail: what is given to it has text for keys.
        json.unwrap_or_default()
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

    /// A 200 of any type.
    pub fn of_type(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, content_type, body)
    }

    /// Any answer.
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { status, headers, body: body.into() }
    }

    /// A failure in plain text, as Go's `http.Error` puts it: a line, and not to be guessed at by a browser.
    pub fn error(status: StatusCode, message: impl fmt::Display) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{message}\n"))
            .with(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
    }

    /// There is nothing at that path.
    pub fn not_found() -> Self {
        Self::error(StatusCode::NOT_FOUND, "404 page not found")
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// What `%xx` stands for, and `+` for a space if it is a query. What is no such sequence stays as it is.
pub(crate) fn unescape(text: &str, is_query: bool) -> Cow<'_, str> {
    if is_query && text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned());
    }
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(query: &'a str, headers: &'a HeaderMap, user: &'a User) -> Asked<'a> {
        static NOTHING: Bytes = Bytes::new();
        Asked { method: &Method::GET, path: "/", query, headers, body: &NOTHING, user }
    }

    #[test]
    fn parameters_of_a_query_are_decoded_in_order() {
        let (headers, user) = (HeaderMap::new(), User::default());
        let asked = asked("a=1&b&a=%41+%zz%2&%61=x&a", &headers, &user);
        let values: Vec<_> = asked.parameters("a").collect();
        assert_eq!(values, ["1", "A %zz%2", "x", ""]);
        assert!(asked.has_parameter("b"));
        assert!(!asked.has_parameter("c"));
    }

    #[test]
    fn answers_are_pretty_for_browsers_and_for_who_asks() {
        let pretty = |query: &str, agent: &'static str| {
            let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
            asked(query, &headers, &User::default()).wants_pretty()
        };
        assert!(pretty("", "curl/8") && pretty("", "Mozilla/5.0 (X11)") && pretty("pretty=1", "Go"));
        assert!(!pretty("", "Go") && !pretty("pretty=false", "curl/8") && !pretty("pretty=x", "Go"));
    }
}
