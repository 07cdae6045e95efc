//! Admission by objects of the API: attributes of a write, and the rules that select writes.
//!
//! Admission by the server itself is in [`crate::registry`].
//!
//! Upstream counterpart: `apiserver/pkg/admission`.

pub(crate) mod matching;
#[cfg(feature = "cel")]
pub(crate) mod policies;
#[cfg(not(feature = "cel"))]
#[path = "admission/no_policies.rs"]
pub(crate) mod policies;
mod request;
mod review;
mod version;
mod webhooks;

use serde_json::Value;

use crate::User;

pub(crate) use request::{Admission, AdmittedRequest};

/// Operation that is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Group and version with the plural name of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupVersionResource<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
}

/// Group and version with the name of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupVersionKind<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

/// A write that is admitted.
///
/// Upstream counterpart: `admission.Attributes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub(crate) operation: Operation,
    /// Kind of `object`. That of a subresource may differ from that of the resource.
    pub(crate) kind: GroupVersionKind<'a>,
    pub(crate) resource: GroupVersionResource<'a>,
    /// Name of the subresource, or `""`.
    pub(crate) subresource: &'a str,
    /// Namespace of the object. For a namespace, its name.
    pub(crate) namespace: &'a str,
    /// Name of the object, or `""` if it will be generated.
    pub(crate) name: &'a str,
    /// New object in the version of `kind`. `None` for a delete.
    pub(crate) object: Option<&'a Value>,
    /// Stored object in the version of `kind`. `None` for a create.
    pub(crate) old_object: Option<&'a Value>,
    /// Options of the request, such as a `CreateOptions`.
    pub(crate) options: &'a Value,
    pub(crate) user: &'a User,
    pub(crate) dry_run: bool,
}
