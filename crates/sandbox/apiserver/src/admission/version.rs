//! Group-versions in which the objects of a request can be shown to webhooks.

use std::sync::Arc;

use serde_json::Value;

use super::{GroupVersionResource, request::split};
use crate::{
    ApiServer, ApiStatus,
    custom::CustomVersion,
    kind::Kind,
    resource::ServedVersion,
    strict::{self, DecodeError},
};

/// Group-version in which a resource is served.
///
/// Upstream counterpart: an entry of `EquivalentResourceRegistry`.
#[derive(Debug)]
pub(super) enum ServedForm {
    /// Built-in resource in its storage version.
    Stored(Kind),
    /// Built-in resource in another version.
    Served(Kind, ServedVersion),
    /// Version of a custom resource.
    Custom(Arc<CustomVersion>),
}

impl ServedForm {
    /// Group-versions of a resource.
    pub(super) fn all(server: &ApiServer, kind: &Kind) -> Vec<Self> {
        if kind.custom.is_some() {
            let custom = server.registry.custom();
            let versions = custom.get(kind.resource).map(|custom| custom.versions.clone());
            return versions.unwrap_or_default().into_iter().map(Self::Custom).collect();
        }
        let served = kind.resource.definition().served_versions.iter();
        let served = served.map(|version| Self::Served(kind.clone(), *version));
        std::iter::once(Self::Stored(kind.clone())).chain(served).collect()
    }

    pub(super) fn api_version(&self) -> &str {
        match self {
            Self::Stored(kind) => kind.api_version(),
            Self::Served(_, version) => version.api_version(),
            Self::Custom(version) => &version.api_version,
        }
    }

    pub(super) fn group_version_resource(&self) -> GroupVersionResource<'_> {
        let (group, version) = split(self.api_version());
        let resource = match self {
            Self::Stored(kind) | Self::Served(kind, _) => kind.resource,
            Self::Custom(version) => version.resource,
        };
        GroupVersionResource { group, version, resource: resource.plural() }
    }

    /// Brings an object of this version that a webhook has changed into normal form, with defaults.
    pub(super) fn normalize(&self, object: Value) -> Result<Value, ApiStatus> {
        let decoded = match self {
            Self::Stored(kind) => kind.decode(object),
            Self::Served(kind, version) => strict::decode_value(version.api_version(), kind.name(), object),
            Self::Custom(version) => version.decode(object),
        };
        let mut object = decoded.map_err(undecodable)?.object;
        match self {
            Self::Stored(kind) => kind.apply_defaults(&mut object),
            // Defaults are set in the storage version.
            Self::Served(..) => {}
            Self::Custom(version) => version.apply_defaults(&mut object),
        }
        Ok(object)
    }

    /// Converts an object from another version of the same built-in resource.
    pub(super) fn convert_built_in(&self, from: &Self, object: &Value) -> Value {
        let stored = match from {
            Self::Served(kind, version) => &version.convert_to_storage(object, kind.api_version()),
            Self::Stored(_) | Self::Custom(_) => object,
        };
        match self {
            Self::Served(_, version) => version.convert_from_storage(stored),
            Self::Stored(_) | Self::Custom(_) => stored.clone(),
        }
    }
}

/// Converts an object of a subresource that a webhook has changed into normal form.
pub(super) fn normalize_subresource(
    api_version: &str,
    kind: &str,
    object: Value,
) -> Result<Value, ApiStatus> {
    let decoded = strict::decode_value(api_version, kind, object);
    Ok(decoded.map_err(undecodable)?.object)
}

/// Response to a request whose object a webhook has changed to another type.
fn undecodable(error: DecodeError) -> ApiStatus {
    ApiStatus::internal_error(&match error {
        DecodeError::Type { detail, .. } => detail,
        other => other.to_string(),
    })
}
