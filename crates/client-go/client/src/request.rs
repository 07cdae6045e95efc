//! Requests to the API server.

use std::fmt::Write as _;

use bytes::Bytes;
use http::Method;
use kcm_api::ObjectKey;

/// Media type of a strategic merge patch.
pub(crate) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
/// Media type of objects.
pub(crate) const JSON: &str = "application/json";

/// Effect of sending a request more than once. It determines after which failures the request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idempotency {
    /// None: the request reads.
    Read,
    /// `AlreadyExists`: the request creates an object with a given name.
    NamedCreate,
    /// An error, or no further effect: the request replaces, patches or deletes an object.
    Change,
    /// A further effect, such as a second object with a generated name.
    NotIdempotent,
}

/// Request to the API server. It may be sent more than once, so the body is shared.
#[derive(Debug, Clone)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Media type of the body.
    pub content_type: &'static str,
    /// Body. Empty if there is none.
    pub body: Bytes,
    idempotency: Idempotency,
}

impl Request {
    /// Creates a GET request.
    pub fn get(path: impl Into<String>) -> Self {
        Self::json(Method::GET, path, Bytes::new())
    }

    /// Creates a request with a JSON `body`. A POST is considered not idempotent.
    pub fn json(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let idempotency = match method {
            Method::GET | Method::HEAD => Idempotency::Read,
            Method::PUT | Method::PATCH | Method::DELETE => Idempotency::Change,
            _ => Idempotency::NotIdempotent,
        };
        Self { method, path: path.into(), content_type: JSON, body: body.into(), idempotency }
    }

    /// Creates a request that creates an object in the collection `path`. The `body` must contain `metadata.name`,
    /// which makes the request idempotent.
    pub fn create(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { idempotency: Idempotency::NamedCreate, ..Self::post(path, body) }
    }

    /// Creates a POST request. It is not idempotent.
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::json(Method::POST, path, body)
    }

    /// Creates a DELETE request. `body` contains the `DeleteOptions`; it may be empty.
    pub fn delete(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::json(Method::DELETE, path, body)
    }

    /// Creates a request with a strategic merge patch.
    pub fn strategic_merge_patch(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { content_type: STRATEGIC_MERGE_PATCH, ..Self::json(Method::PATCH, path, body) }
    }

    /// Effect of sending the request more than once.
    pub fn idempotency(&self) -> Idempotency {
        self.idempotency
    }

    /// `true` for a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.path.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair == "watch=true"))
    }

    /// Returns the path without the query, for logs. A query may contain a long continue token.
    pub(crate) fn bare_path(&self) -> &str {
        self.path.split_once('?').map_or(&self.path, |(path, _)| path)
    }
}

/// Returns the path of all objects of a resource.
pub(crate) fn collection_path(api_version: &str, plural: &str) -> String {
    format!("{}/{plural}", group_path(api_version))
}

/// Returns the path of the objects of a resource in `namespace`. Cluster-scoped resources have an empty namespace.
pub fn namespaced_path(api_version: &str, plural: &str, namespace: &str) -> String {
    let mut path = group_path(api_version);
    if !namespace.is_empty() {
        path.push_str("/namespaces/");
        push_escaped(&mut path, namespace);
    }
    path.push('/');
    path.push_str(plural);
    path
}

/// Returns the path of one object.
pub fn object_path(api_version: &str, plural: &str, key: &ObjectKey) -> String {
    let mut path = namespaced_path(api_version, plural, &key.namespace);
    path.push('/');
    push_escaped(&mut path, &key.name);
    path
}

/// The core group has the root `/api`, all others have `/apis`.
fn group_path(api_version: &str) -> String {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    format!("{root}/{api_version}")
}

/// Path with a query. Values are escaped.
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

/// Escapes a name or value. Valid names need no escaping; others must not change the structure of the path.
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
    fn paths() {
        let key = ObjectKey::new("default", "web-1");
        assert_eq!(object_path("v1", "pods", &key), "/api/v1/namespaces/default/pods/web-1");
        assert_eq!(namespaced_path("v1", "namespaces", ""), "/api/v1/namespaces");
        assert_eq!(collection_path("apps/v1", "deployments"), "/apis/apps/v1/deployments");
    }

    #[test]
    fn names_are_escaped() {
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
