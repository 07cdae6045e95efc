//! Audit events.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    route::{Review, Target},
    user::UserExtra,
};
use crate::ApiStatus;

/// Receiver of audit events, called when the response to a request begins.
///
/// Upstream counterpart: `audit.Backend`.
pub type AuditSink = Arc<dyn Fn(&AuditEvent) + Send + Sync>;

/// Audit event of a request.
///
/// Upstream counterpart: `audit.k8s.io/v1` Event at level Request.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEvent {
    /// Unique ID.
    pub id: String,
    /// Time at which the request was received.
    pub received: Timestamp,
    /// Time until the response began.
    pub latency: Duration,
    /// Path and query.
    pub uri: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; for non-resource requests the
    /// lower-case method.
    pub verb: &'static str,
    /// User name.
    pub user: String,
    /// The user's UID, or empty.
    pub user_uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Further attributes of the user.
    pub extra: UserExtra,
    /// `User-Agent` header.
    pub user_agent: String,
    /// Requested resource, if any.
    pub object: Option<ObjectReference>,
    /// Request body.
    pub request_object: Option<Value>,
    /// HTTP status code of the response.
    pub code: u16,
    /// Failure status of the response, if any.
    pub failure: Option<ApiStatus>,
    /// The server's [revision](crate::ApiServer::revision) immediately before the request was served.
    pub revision_before: u64,
    /// The server's revision immediately after the request was served. Includes concurrent writes of other clients.
    pub revision_after: u64,
}

/// Requested resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectReference {
    /// The API group, empty for the core group.
    pub api_group: String,
    /// API version, without the group.
    pub api_version: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// UID in the request body, or empty.
    pub uid: String,
    /// Resource version in the request body, or empty.
    pub resource_version: String,
}

impl From<&Target> for ObjectReference {
    fn from(target: &Target) -> Self {
        let (group, version) = target.api_version().split_once('/').unwrap_or(("", target.api_version()));
        Self {
            api_group: group.to_owned(),
            api_version: version.to_owned(),
            resource: target.resource().plural().to_owned(),
            subresource: target.subresource.map_or("", |part| part.name()).to_owned(),
            namespace: target.namespace.clone(),
            name: target.name().to_owned(),
            ..Self::default()
        }
    }
}

impl From<&Review> for ObjectReference {
    fn from(review: &Review) -> Self {
        let api_version = review.kind.api_version();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self {
            api_group: group.to_owned(),
            api_version: version.to_owned(),
            resource: review.kind.plural().to_owned(),
            namespace: review.namespace.clone(),
            ..Self::default()
        }
    }
}
