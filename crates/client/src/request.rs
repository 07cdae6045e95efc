//! What to ask of an API server.

use std::fmt::Write as _;

use bytes::Bytes;
use http::Method;
use kcm_api::ObjectKey;

/// The media type of a strategic merge patch.
pub(crate) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
/// The media type of objects.
pub(crate) const JSON: &str = "application/json";

/// One request. It can be sent more than once, so its body is shared.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to do.
    pub method: Method,
    /// Path and query, from the root of the API server.
    pub path: String,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body; empty for none.
    pub body: Bytes,
}

impl Request {
    /// A request to read `path`.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), content_type: JSON, body: Bytes::new() }
    }

    /// A request to do `method` on `path` with a JSON `body`.
    pub fn json(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method, path: path.into(), content_type: JSON, body: body.into() }
    }

    /// A request to create what `body` says below `path`.
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::json(Method::POST, path, body)
    }

    /// A request to delete what is at `path`; `body` says how, empty for as usual.
    pub fn delete(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::json(Method::DELETE, path, body)
    }

    /// A request to change what is at `path` by a strategic merge patch.
    pub fn strategic_merge_patch(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::PATCH,
            path: path.into(),
            content_type: STRATEGIC_MERGE_PATCH,
            body: body.into(),
        }
    }

    /// Whether the answer is to be a stream of events.
    pub(crate) fn is_watch(&self) -> bool {
        self.path.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair == "watch=true"))
    }

    /// The path without its query, for logs: a query may hold continue tokens as long as a page.
    pub(crate) fn bare_path(&self) -> &str {
        self.path.split_once('?').map_or(&self.path, |(path, _)| path)
    }
}

/// The path of all objects of a type, in all namespaces.
pub(crate) fn collection_path(api_version: &str, plural: &str) -> String {
    format!("{}/{plural}", group_path(api_version))
}

/// The path of the objects of a type in `namespace`.
pub(crate) fn namespaced_path(api_version: &str, plural: &str, namespace: &str) -> String {
    let mut path = group_path(api_version);
    if !namespace.is_empty() {
        path.push_str("/namespaces/");
        push_escaped(&mut path, namespace);
    }
    path.push('/');
    path.push_str(plural);
    path
}

/// The path of one object.
pub(crate) fn object_path(api_version: &str, plural: &str, key: &ObjectKey) -> String {
    let mut path = namespaced_path(api_version, plural, &key.namespace);
    path.push('/');
    push_escaped(&mut path, &key.name);
    path
}

/// The core group has a root of its own, for reasons of age.
fn group_path(api_version: &str) -> String {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    format!("{root}/{api_version}")
}

/// Builds a query, escaping values.
#[derive(Debug)]
pub(crate) struct Query {
    text: String,
}

impl Query {
    pub(crate) fn new(path: String) -> Self {
        Self { text: path }
    }

    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.text.push(if self.text.contains('?') { '&' } else { '?' });
        self.text.push_str(name);
        self.text.push('=');
        push_escaped(&mut self.text, value);
    }

    pub(crate) fn into_path(self) -> String {
        self.text
    }
}

/// Names that the API accepts need no escaping; a name that came from somewhere else must not become a path.
fn push_escaped(to: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            to.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(to, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_an_object_in_the_core_group_starts_at_api() {
        let key = ObjectKey::new("default", "web-1");
        assert_eq!(object_path("v1", "pods", &key), "/api/v1/namespaces/default/pods/web-1");
        assert_eq!(namespaced_path("v1", "namespaces", ""), "/api/v1/namespaces");
        assert_eq!(collection_path("apps/v1", "deployments"), "/apis/apps/v1/deployments");
    }

    #[test]
    fn path_of_a_name_that_looks_like_a_path_stays_one_segment() {
        let key = ObjectKey::new("default", "../x?y");
        assert_eq!(object_path("v1", "pods", &key), "/api/v1/namespaces/default/pods/..%2Fx%3Fy");
    }

    #[test]
    fn query_values_are_escaped() {
        let mut query = Query::new("/p".to_owned());
        query.add("a", "1");
        query.add("b", "x=y&z");
        assert_eq!(query.into_path(), "/p?a=1&b=x%3Dy%26z");
    }
}
