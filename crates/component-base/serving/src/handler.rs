//! Handlers, and the requests and responses that they process.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT, X_CONTENT_TYPE_OPTIONS},
};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use crate::User;

/// Handler of the requests for a path.
///
/// It runs on a worker thread of the runtime: it must not block, and should return within milliseconds. A panic causes
/// status code 500.
pub type Handler = Arc<dyn Fn(&Request<'_>) -> Response + Send + Sync>;

/// Creates a [`Handler`] from a function.
///
/// ```
/// use kcm_serving::{Response, handler};
///
/// let hello = handler(|request| Response::text(format!("hello, {}\n", request.user.name)));
/// ```
pub fn handler(function: impl Fn(&Request<'_>) -> Response + Send + Sync + 'static) -> Handler {
    Arc::new(function)
}

/// Authorized request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Method.
    pub method: &'a Method,
    /// Decoded path.
    pub path: &'a str,
    /// Query without the `?`, not decoded.
    pub query: &'a str,
    /// Headers, without credentials.
    pub headers: &'a HeaderMap,
    /// Body, at most 64 KiB. Empty unless the [route reads bodies](crate::Routes::exact_with_body).
    pub body: &'a Bytes,
    /// Authenticated user.
    pub user: &'a User,
}

/// Response to a request.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: StatusCode,
    /// Headers, including `Content-Type`.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl<'a> Request<'a> {
    /// Decoded values of the query parameter `name`, in order.
    pub fn parameters<'n>(&self, name: &'n str) -> impl Iterator<Item = Cow<'a, str>> + use<'a, 'n> {
        self.query.split('&').filter_map(move |pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(key, true) == name).then(|| unescape(value, true))
        })
    }

    /// Returns `true` if the query has the parameter `name`, with or without a value.
    pub fn has_parameter(&self, name: &str) -> bool {
        self.parameters(name).next().is_some()
    }

    /// Returns `true` if JSON is formatted for people: by the parameter `pretty`, or else by the user agent.
    pub(crate) fn wants_pretty(&self) -> bool {
        match self.parameters("pretty").next().filter(|value| !value.is_empty()) {
            Some(value) => matches!(&*value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
            None => {
                let agent = self.headers.get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
                [&b"curl"[..], b"Wget", b"Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
            }
        }
    }

    /// Formats `object` as JSON as upstream: on one line, or [for people](Self::wants_pretty).
    pub(crate) fn render(&self, object: &impl Serialize) -> String {
        let json = if self.wants_pretty() {
            serde_json::to_string_pretty(object)
        } else {
            serde_json::to_string(object).map(|json| json + "\n")
        };
        // Does not fail: all map keys are strings.
        json.unwrap_or_default()
    }
}

impl Response {
    /// Status 200 with plain text.
    pub fn text(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, "text/plain; charset=utf-8", body)
    }

    /// Status 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, "application/json", body)
    }

    /// Status 200 with another content type.
    pub fn of_type(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, content_type, body)
    }

    /// Response with a status, content type and body.
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { status, headers, body: body.into() }
    }

    /// Error in plain text, as Go's `http.Error`: one line, with `X-Content-Type-Options: nosniff`.
    pub fn error(status: StatusCode, message: impl fmt::Display) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{message}\n"))
            .with(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
    }

    /// Status 404.
    pub fn not_found() -> Self {
        Self::error(StatusCode::NOT_FOUND, "404 page not found")
    }

    /// Status 429, as upstream when too many requests are in flight.
    pub(crate) fn too_many_requests() -> Self {
        Self::error(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.")
            .with(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Sets a header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// Decodes `%xx`, and `+` as a space in a query. Invalid sequences are not changed.
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

    fn request<'a>(query: &'a str, headers: &'a HeaderMap, user: &'a User) -> Request<'a> {
        static NOTHING: Bytes = Bytes::new();
        Request { method: &Method::GET, path: "/", query, headers, body: &NOTHING, user }
    }

    #[test]
    fn decodes_query_parameters_in_order() {
        let (headers, user) = (HeaderMap::new(), User::default());
        let request = request("a=1&b&a=%41+%zz%2&%61=x&a", &headers, &user);
        let values: Vec<_> = request.parameters("a").collect();
        assert_eq!(values, ["1", "A %zz%2", "x", ""]);
        assert!(request.has_parameter("b"));
        assert!(!request.has_parameter("c"));
    }

    #[test]
    fn pretty_follows_the_parameter_and_the_user_agent() {
        let pretty = |query: &str, agent: &'static str| {
            let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
            request(query, &headers, &User::default()).wants_pretty()
        };
        assert!(pretty("", "curl/8") && pretty("", "Mozilla/5.0 (X11)") && pretty("pretty=1", "Go"));
        assert!(!pretty("", "Go") && !pretty("pretty=false", "curl/8") && !pretty("pretty=x", "Go"));
    }
}
