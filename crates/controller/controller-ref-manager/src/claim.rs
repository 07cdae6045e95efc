use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey, Selector, Time};
use kcm_meta::Object;
use tracing::debug;

use crate::{AdoptionRefused, Claim, ClaimError, ClaimErrors, OwnerIdentity, OwnerPatch, classify};

/// Requests of [`claim`] to the API server.
#[async_trait]
pub trait OwnerControl<K>: Send + Sync {
    /// Returns the kind of the objects, for messages.
    fn kind(&self) -> Cow<'static, str>;

    /// Reads the owner from the API server, without a cache.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn live_owner(&self) -> Result<LiveOwner, ApiError>;

    /// Patches the owner references of `object`. Returns the patched object.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn patch(&self, object: &K, patch: &OwnerPatch) -> Result<K, ApiError>;
}

/// Owner as the API server returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOwner {
    /// UID of the object that has the owner's name.
    pub uid: Arc<str>,
    /// Time when its deletion was requested.
    pub deletion_timestamp: Option<Time>,
}

impl From<&kcm_api::ObjectMeta> for LiveOwner {
    fn from(metadata: &kcm_api::ObjectMeta) -> Self {
        Self { uid: Arc::clone(&metadata.uid), deletion_timestamp: metadata.deletion_timestamp }
    }
}

impl LiveOwner {
    /// Returns the fields of `owner`, an object of any type.
    pub fn of(owner: &impl Object) -> Self {
        Self { uid: owner.uid_str().into(), deletion_timestamp: owner.deletion_timestamp().map(Time::new) }
    }
}

/// Result of [`claim`].
#[derive(Debug)]
pub struct Claimed<K> {
    /// Objects that the owner manages. An adopted object is the one that the API server returned, if its resource version
    /// differs from the cached one.
    pub objects: Vec<Arc<K>>,
    /// Errors of other objects.
    pub error: Option<ClaimErrors>,
}

impl<K> Claimed<K> {
    /// Returns the objects if no object failed.
    ///
    /// # Errors
    ///
    /// [`Claimed::error`].
    pub fn into_result(self) -> Result<Vec<Arc<K>>, ClaimErrors> {
        match self.error {
            None => Ok(self.objects),
            Some(error) => Err(error),
        }
    }
}

/// Adopts and releases objects for `owner`, and returns the objects that it manages (US-3.4).
///
/// Patches are sent one after the other, for the oldest object first and then by name, so that equal states lead to equal
/// requests. Upstream's order is the random order of its cache. Before the first adoption, the owner is read from the API
/// server; the result is used for the whole call. Objects that no longer exist are skipped. An error of one object does
/// not stop the others.
///
/// Upstream counterpart: `PodControllerRefManager.ClaimPods`, `ReplicaSetControllerRefManager.ClaimReplicaSets`.
///
/// # Cancel safety
///
/// If the future is dropped, the remaining objects are not patched. The next call continues with them.
pub async fn claim<K, C>(
    owner: &OwnerIdentity,
    selector: &Selector,
    objects: impl IntoIterator<Item = Arc<K>>,
    control: &C,
) -> Claimed<K>
where
    K: Object,
    C: OwnerControl<K> + ?Sized,
{
    let mut claimed = Vec::new();
    let mut changes = Vec::new();
    for object in objects {
        match classify(owner, selector, &*object) {
            Claim::Owned => claimed.push(object),
            Claim::Adopt => changes.push((object.key(), true, object)),
            Claim::Release => changes.push((object.key(), false, object)),
            Claim::NotOurs | Claim::Ignore(_) => {}
        }
    }
    changes
        .sort_by(|(a_key, _, a), (b_key, _, b)| (a.creation_time(), a_key).cmp(&(b.creation_time(), b_key)));

    let mut adopter = Adopter { owner, may_adopt: None };
    let mut errors = Vec::new();
    for (key, adopt, object) in changes {
        if adopt {
            match adopter.adopt(control, &key, object).await {
                Ok(adopted) => claimed.extend(adopted),
                Err(error) => errors.push(error),
            }
        } else if let Err(error) = release(owner, control, &key, &*object).await {
            errors.push(error.into());
        }
    }
    Claimed { objects: claimed, error: ClaimErrors::collect(errors) }
}

/// Adopts objects unless the owner was deleted.
///
/// Upstream counterpart: `BaseControllerRefManager.CanAdopt`.
struct Adopter<'a> {
    owner: &'a OwnerIdentity,
    /// Result of the uncached read of the owner. `None` before the first adoption.
    may_adopt: Option<Result<(), AdoptionRefused>>,
}

impl Adopter<'_> {
    /// Adopts `object`. Returns `None` if it no longer exists.
    async fn adopt<K, C>(
        &mut self,
        control: &C,
        key: &ObjectKey,
        object: Arc<K>,
    ) -> Result<Option<Arc<K>>, ClaimError>
    where
        K: Object,
        C: OwnerControl<K> + ?Sized,
    {
        let may_adopt = match self.may_adopt.take() {
            Some(may_adopt) => may_adopt,
            None => recheck(self.owner, control).await,
        };
        if let Err(refused) = self.may_adopt.insert(may_adopt) {
            return Err(ClaimError::AdoptionRefused {
                kind: control.kind(),
                key: key.clone(),
                uid: object.uid_str().into(),
                source: refused.clone(),
            });
        }
        match control.patch(&object, &OwnerPatch::adopt(self.owner, object.uid_str())).await {
            // DEVIATION: upstream continues with the cached object, so that its next write of it in the same sync has a
            // conflict.
            Ok(patched) if patched.resource_version_str() == object.resource_version_str() => {
                Ok(Some(object))
            }
            Ok(patched) => Ok(Some(Arc::new(patched))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads the owner from the API server and checks that it can adopt.
///
/// Upstream counterpart: `RecheckDeletionTimestamp`.
async fn recheck<K, C>(owner: &OwnerIdentity, control: &C) -> Result<(), AdoptionRefused>
where
    C: OwnerControl<K> + ?Sized,
{
    let live = control.live_owner().await.map_err(AdoptionRefused::Recheck)?;
    if live.uid != owner.uid {
        return Err(AdoptionRefused::Gone {
            kind: owner.kind.clone(),
            key: owner.key(),
            got: live.uid,
            wanted: Arc::clone(&owner.uid),
        });
    }
    match live.deletion_timestamp {
        Some(at) => Err(AdoptionRefused::OwnerIsBeingDeleted { key: owner.key(), at }),
        None => Ok(()),
    }
}

async fn release<K, C>(
    owner: &OwnerIdentity,
    control: &C,
    key: &ObjectKey,
    object: &K,
) -> Result<(), ApiError>
where
    K: Object,
    C: OwnerControl<K> + ?Sized,
{
    debug!(kind = &*control.kind(), object = %key, owner = %owner.key(), "Patching object to remove its controllerRef");
    match control.patch(object, &OwnerPatch::release(&owner.uid, object.uid_str())).await {
        Ok(_) => Ok(()),
        // The object was deleted, was created again with another UID, or has no reference to the owner.
        Err(error) if error.is_not_found() || error.is_invalid() => Ok(()),
        Err(error) => Err(error),
    }
}
