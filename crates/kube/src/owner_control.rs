use std::{borrow::Cow, fmt};

use async_trait::async_trait;
use http::Method;
use kcm_api::{ApiError, ErrorCause, ObjectKey};
use kcm_client::{ApiClient, Request};
use kcm_controller_ref_manager::{LiveOwner, OwnerControl, OwnerPatch};
use kcm_meta::Object;
use kube_client::Client;
use kube_core::{PartialObjectMeta, Resource};
use serde::de::DeserializeOwned;

use crate::clients::{send, unlimited};

/// Adopts and releases objects of type `K` for one owner, with a kube client.
///
/// The requests of [`claim`](kcm_controller_ref_manager::claim). Owner references are changed by merge patch, which API
/// servers accept for all types: the patch contains all references of the cached object, and fails with 409 if the object
/// has changed since.
pub struct ApiOwnerControl<K: Resource> {
    client: ApiClient,
    owner_path: String,
    resource: K::DynamicType,
    strategic: bool,
}

impl<K: Resource> ApiOwnerControl<K> {
    /// Creates the control of the owner `owner`, of type `O`. `owner_resource` and `resource` are `()` for types that are
    /// known at compile time.
    pub fn new<O: Resource>(
        client: Client,
        owner: &ObjectKey,
        owner_resource: &O::DynamicType,
        resource: K::DynamicType,
    ) -> Self {
        let owner_path = format!("{}/{}", O::url_path(owner_resource, namespace(owner)), owner.name);
        Self { client: unlimited(client), owner_path, resource, strategic: false }
    }

    /// Sends strategic merge patches, as upstream. Only for built-in types.
    ///
    /// A strategic merge patch does not fail if another field of the object has changed.
    #[must_use]
    pub fn strategic(self) -> Self {
        Self { strategic: true, ..self }
    }
}

fn namespace(key: &ObjectKey) -> Option<&str> {
    Some(&*key.namespace).filter(|namespace| !namespace.is_empty())
}

#[async_trait]
impl<K> OwnerControl<K> for ApiOwnerControl<K>
where
    K: Resource + Clone + DeserializeOwned + Send + Sync + 'static,
{
    fn kind(&self) -> Cow<'static, str> {
        K::kind(&self.resource).into_owned().into()
    }

    async fn live_owner(&self) -> Result<LiveOwner, ApiError> {
        let owner: PartialObjectMeta = send(&self.client, &Request::get(&*self.owner_path)).await?;
        Ok(LiveOwner::of(&owner))
    }

    async fn patch(&self, object: &K, patch: &OwnerPatch) -> Result<K, ApiError> {
        let key = object.key();
        let path = format!("{}/{}", K::url_path(&self.resource, namespace(&key)), key.name);
        if self.strategic {
            let request = Request::strategic_merge_patch(path, patch.strategic_merge());
            return send(&self.client, &request).await;
        }
        let references = object.meta().owner_references.as_deref().unwrap_or_default();
        let body = patch.merge(object.resource_version(), references);
        let body = body.map_err(|error| ApiError::InvalidRequest(ErrorCause::of(error)))?;
        let Some(body) = body else { return Ok(object.clone()) };
        let mut request = Request::json(Method::PATCH, path, body);
        request.content_type = "application/merge-patch+json";
        send(&self.client, &request).await
    }
}

impl<K: Resource> fmt::Debug for ApiOwnerControl<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiOwnerControl")
            .field("owner", &self.owner_path)
            .field("kind", &K::kind(&self.resource))
            .finish_non_exhaustive()
    }
}
