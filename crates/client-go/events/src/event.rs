//! What an event says.

use std::sync::Arc;

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ReplicaSet};
use serde_json::Value;

/// What an event is about.
///
/// Upstream counterpart: `v1.ObjectReference`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// Group and version of the kind.
    pub api_version: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
    /// The namespace; empty for what has none.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Arc<str>,
    /// The version of the object that the event is about. No part of what tells two events apart.
    pub resource_version: String,
}

/// Whether an event is good news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It is.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl EventType {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Takes events and returns at once; what becomes of them is not the caller's concern.
///
/// Upstream counterpart: `record.EventRecorder`.
pub trait EventRecorder: Send + Sync + 'static {
    /// Tells that something happened to `regarding`.
    fn event(&self, regarding: &ObjectReference, type_: EventType, reason: &str, message: String);
}

/// Where events are written to.
///
/// Upstream counterpart: `record.EventSink`. Events are core/v1 objects, as JSON.
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// Creates an event in `namespace`; answers with it as stored.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError>;

    /// Changes an event by a strategic merge patch.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError>;
}

impl From<&Deployment> for ObjectReference {
    fn from(deployment: &Deployment) -> Self {
        Self::of(kcm_api::deployment::KIND, &deployment.metadata)
    }
}

impl From<&ReplicaSet> for ObjectReference {
    fn from(replica_set: &ReplicaSet) -> Self {
        Self::of(kcm_api::replica_set::KIND, &replica_set.metadata)
    }
}

impl ObjectReference {
    fn of(kind: &str, meta: &kcm_api::ObjectMeta) -> Self {
        Self {
            api_version: kcm_api::deployment::API_VERSION.into(),
            kind: kind.into(),
            namespace: Arc::clone(&meta.namespace),
            name: Arc::clone(&meta.name),
            uid: Arc::clone(&meta.uid),
            resource_version: meta.resource_version.clone(),
        }
    }
}
