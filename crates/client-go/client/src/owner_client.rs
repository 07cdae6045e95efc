//! Adoption over the client.

use std::{borrow::Cow, fmt};

use async_trait::async_trait;
use kcm_api::{ApiError, ErrorCause, ObjectKey};
use kcm_controller_ref_manager::{LiveOwner, OwnerControl, OwnerPatch};
use kcm_meta::{ApiResource, Kind, Object, StrategicMerge};
use kube_client::core::{PartialObjectMeta, Resource};

use crate::{Api, ApiClient, Decode, Patch};

/// Adopts and releases objects of type `K` for one owner: the requests of [`claim`](kcm_controller_ref_manager::claim).
///
/// Owner references are changed by merge patch, which API servers accept for all types: the patch contains all references
/// of the cached object, and fails with 409 if the object has changed since.
pub struct OwnerClient<K> {
    objects: Api<K>,
    owners: Api<PartialObjectMeta>,
    owner: ObjectKey,
    /// Conversion to a strategic merge patch. `None` for merge patches.
    strategic: Option<fn(&OwnerPatch) -> Patch<K>>,
}

impl<K: Kind<Decoder: Decode<K>>> OwnerClient<K> {
    /// Creates the client of `owner`.
    pub fn new<O: Kind>(client: &ApiClient, owner: &O) -> Self {
        Self::with_api(client.api(), O::resource(), owner.key())
    }
}

impl<K> OwnerClient<K> {
    /// Creates the client of the owner `owner` of `owner_resource`. [`ApiClient::api_for`] returns the `objects` of a type that
    /// has no [`Kind`].
    pub fn with_api(objects: Api<K>, owner_resource: ApiResource, owner: ObjectKey) -> Self {
        let owners = objects.client().api_for(owner_resource);
        Self { objects, owners, owner, strategic: None }
    }

    /// Sends strategic merge patches, as upstream.
    ///
    /// A strategic merge patch does not fail if another field of the object has changed.
    #[must_use]
    pub fn strategic(self) -> Self
    where
        K: StrategicMerge,
    {
        Self { strategic: Some(|patch| Patch::strategic(patch.strategic_merge())), ..self }
    }
}

#[async_trait]
impl<K: Resource + Object + Clone> OwnerControl<K> for OwnerClient<K> {
    fn kind(&self) -> Cow<'static, str> {
        self.objects.resource().kind.clone()
    }

    async fn live_owner(&self) -> Result<LiveOwner, ApiError> {
        Ok(LiveOwner::of(&self.owners.get(&self.owner).await?))
    }

    async fn patch(&self, object: &K, patch: &OwnerPatch) -> Result<K, ApiError> {
        let patch = match self.strategic {
            Some(strategic) => strategic(patch),
            None => {
                let references = object.meta().owner_references.as_deref().unwrap_or_default();
                let body = patch.merge(object.resource_version_str(), references);
                let body = body.map_err(|error| ApiError::InvalidRequest(ErrorCause::of(error)))?;
                let Some(body) = body else { return Ok(object.clone()) };
                Patch::merge(body)
            }
        };
        self.objects.patch(&object.key(), &patch).await
    }
}

impl<K> fmt::Debug for OwnerClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerClient")
            .field("owners", self.owners.resource())
            .field("owner", &self.owner)
            .field("objects", self.objects.resource())
            .finish_non_exhaustive()
    }
}
