//! Requests to the API server.

use std::fmt::Write as _;

use bytes::Bytes;
use http::Method;
use kcm_meta::ApiResource;

/// Media type of a strategic merge patch.
pub(crate) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
/// Media type of a merge patch (RFC 7396).
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of a JSON patch (RFC 6902).
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of a server-side apply. JSON is a subset of YAML.
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// Media type of objects.
pub(crate) const JSON: &str = "application/json";

/// Encoding of objects in requests and responses.
///
/// Upstream counterpart: `rest.ContentConfig`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentType {
    /// `application/json`.
    #[default]
    Json,
    /// `application/vnd.kubernetes.protobuf` for types with a protobuf decoder, see
    /// [`Decode::supports_protobuf`](crate::Decode::supports_protobuf), and JSON for others. API servers that do not have
    /// protobuf for a type send JSON.
    Protobuf,
}

/// Part of objects that a response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    /// Whole objects.
    Whole,
    /// The metadata of an object. Servers without this representation send the whole object.
    Metadata,
    /// The metadata of the objects of a list.
    MetadataList,
}

impl ContentType {
    /// Returns the accepted media types of a response.
    pub(crate) const fn accept(self, representation: Representation) -> &'static str {
        match (self, representation) {
            (Self::Json, Representation::Whole) => JSON,
            (Self::Json, Representation::Metadata) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
            }
            (Self::Json, Representation::MetadataList) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            }
            (Self::Protobuf, Representation::Whole) => "application/vnd.kubernetes.protobuf,application/json",
            (Self::Protobuf, Representation::Metadata) => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
            }
            (Self::Protobuf, Representation::MetadataList) => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            }
        }
    }
}

/// Effect of sending a request more than once. It determines after which failures the request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idempotency {
    /// None: the request reads.
    Read,
    /// `AlreadyExists`: the request creates an object with a given name.
    NamedCreate,
    /// None, or an error: the request applies a configuration, or deletes an object with a given UID or resource version.
    Idempotent,
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
    /// Accepted media types of the response.
    pub accept: &'static str,
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
        Self { method, path: path.into(), content_type: JSON, accept: JSON, body: body.into(), idempotency }
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

    /// Sets the effect of sending the request more than once.
    #[must_use]
    pub(crate) fn with_idempotency(self, idempotency: Idempotency) -> Self {
        Self { idempotency, ..self }
    }

    /// Returns the effect of sending the request more than once.
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

/// Returns the path of the objects of a resource in `namespace`. Without a namespace, all objects.
pub(crate) fn collection_path(resource: &ApiResource, namespace: &str) -> String {
    // The core group has the root `/api`, all others have `/apis`.
    let mut path = String::from(if resource.group.is_empty() { "/api" } else { "/apis" });
    let mut push = |segment: &str| {
        path.push('/');
        push_escaped(&mut path, segment);
    };
    if !resource.group.is_empty() {
        push(&resource.group);
    }
    push(&resource.version);
    if !namespace.is_empty() {
        push("namespaces");
        push(namespace);
    }
    push(&resource.plural);
    path
}

/// Returns the path of one object.
pub(crate) fn object_path(resource: &ApiResource, namespace: &str, name: &str) -> String {
    let mut path = collection_path(resource, namespace);
    path.push('/');
    push_escaped(&mut path, name);
    path
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

    const PODS: ApiResource = ApiResource::namespaced("", "v1", "Pod", "pods");
    const NAMESPACES: ApiResource = ApiResource::cluster_scoped("", "v1", "Namespace", "namespaces");
    const DEPLOYMENTS: ApiResource = ApiResource::namespaced("apps", "v1", "Deployment", "deployments");

    #[test]
    fn paths() {
        assert_eq!(object_path(&PODS, "default", "web-1"), "/api/v1/namespaces/default/pods/web-1");
        assert_eq!(collection_path(&NAMESPACES, ""), "/api/v1/namespaces");
        assert_eq!(collection_path(&DEPLOYMENTS, ""), "/apis/apps/v1/deployments");
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(object_path(&PODS, "default", "../x?y"), "/api/v1/namespaces/default/pods/..%2Fx%3Fy");
    }

    #[test]
    fn query_values_are_escaped() {
        let mut query = Query::new("/p".to_owned());
        query.add("a", "1");
        query.add("b", "x=y&z");
        assert_eq!(query.into_path(), "/p?a=1&b=x%3Dy%26z");
    }
}
