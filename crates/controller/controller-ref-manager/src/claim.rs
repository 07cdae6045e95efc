use std::sync::Arc;

use async_trait::async_trait;
use kcm_api::{ApiError, Labels, ObjectKey, Pod, ReplicaSet, Selector, Time};
use tracing::debug;

use crate::{
    AdoptionRefused, Claim, ClaimError, ClaimErrors, ObjectView, OwnerIdentity, OwnerPatch, classify,
};

/// An object that can be owned.
pub trait Claimable: Send + Sync + 'static {
    /// Its kind, for messages.
    const KIND: &'static str;

    /// Namespace and name.
    fn key(&self) -> ObjectKey;
    /// Which object it is.
    fn uid(&self) -> &Arc<str>;
    /// Which version of the object this is.
    fn resource_version(&self) -> &str;
    /// When it was stored first, if it says so. What is older is seen to first.
    fn created(&self) -> Option<Time> {
        None
    }
    /// What [`classify`] looks at.
    fn view(&self) -> ObjectView<'_>;
}

impl Claimable for Pod {
    const KIND: &'static str = "Pod";

    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }

    fn created(&self) -> Option<Time> {
        self.creation_timestamp
    }

    fn view(&self) -> ObjectView<'_> {
        let labels: &Labels = &self.labels;
        ObjectView {
            namespace: &self.key.namespace,
            labels,
            controller_uid: self.controller.as_deref().map(|controller| &*controller.uid),
            deleting: self.deletion_timestamp.is_some(),
        }
    }
}

impl Claimable for ReplicaSet {
    const KIND: &'static str = kcm_api::replica_set::KIND;

    fn key(&self) -> ObjectKey {
        self.metadata.key()
    }

    fn uid(&self) -> &Arc<str> {
        &self.metadata.uid
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn created(&self) -> Option<Time> {
        self.metadata.creation_timestamp
    }

    fn view(&self) -> ObjectView<'_> {
        ObjectView {
            namespace: &self.metadata.namespace,
            labels: &self.metadata.labels,
            controller_uid: self.metadata.controller().map(|controller| &*controller.uid),
            deleting: self.metadata.is_being_deleted(),
        }
    }
}

/// What claiming needs of the cluster.
#[async_trait]
pub trait OwnerControl<K>: Send + Sync {
    /// The owner as the server has it now, read past every cache.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn live_owner(&self) -> Result<LiveOwner, ApiError>;

    /// Changes the owners of `object`; answers with it as it is now.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn patch(&self, object: &ObjectKey, patch: &OwnerPatch) -> Result<K, ApiError>;
}

/// What the server says of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOwner {
    /// Which object has the owner's name.
    pub uid: Arc<str>,
    /// Since when it is being deleted, if it is.
    pub deletion_timestamp: Option<Time>,
}

impl From<&kcm_api::ObjectMeta> for LiveOwner {
    fn from(metadata: &kcm_api::ObjectMeta) -> Self {
        Self { uid: Arc::clone(&metadata.uid), deletion_timestamp: metadata.deletion_timestamp }
    }
}

/// The outcome of [`claim`].
#[derive(Debug)]
pub struct Claimed<K> {
    /// What is ours now. An object that was adopted is the server's answer, if that is newer than what was
    /// given.
    pub objects: Vec<Arc<K>>,
    /// What went wrong with other objects.
    pub error: Option<ClaimErrors>,
}

impl<K> Claimed<K> {
    /// The objects if all went well. Both workload controllers end their sync otherwise.
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

/// Claims for `owner` what is its own among `objects`: adopts, releases, and tells what remains (US-3.4).
///
/// Patches go out one after the other, the oldest object first and then by name, so that the same state always
/// leads to the same requests; upstream's order is its cache's, which is random. Before the first adoption, and
/// only then, the server is asked whether the owner is still there; the answer holds for the whole call. An
/// object that is gone by the time of its patch is none of ours. All objects are seen to even when some fail.
///
/// Upstream counterpart: `PodControllerRefManager.ClaimPods`, `ReplicaSetControllerRefManager.ClaimReplicaSets`.
///
/// # Cancel safety
///
/// Dropping the future leaves the remaining objects as they are; claiming again picks up from there.
pub async fn claim<K, C>(
    owner: &OwnerIdentity,
    selector: &Selector,
    objects: impl IntoIterator<Item = Arc<K>>,
    control: &C,
) -> Claimed<K>
where
    K: Claimable,
    C: OwnerControl<K> + ?Sized,
{
    let mut claimed = Vec::new();
    let mut changes = Vec::new();
    for object in objects {
        match classify(owner, selector, object.view()) {
            Claim::Owned => claimed.push(object),
            Claim::Adopt => changes.push((object.key(), true, object)),
            Claim::Release => changes.push((object.key(), false, object)),
            Claim::NotOurs | Claim::Ignore(_) => {}
        }
    }
    changes.sort_by(|(a_key, _, a), (b_key, _, b)| (a.created(), a_key).cmp(&(b.created(), b_key)));

    let mut gate = Gate { owner, verdict: None };
    let mut errors = Vec::new();
    for (key, adopt, object) in changes {
        if adopt {
            match gate.adopt(control, &key, object).await {
                Ok(adopted) => claimed.extend(adopted),
                Err(error) => errors.push(error),
            }
        } else if let Err(error) = release(owner, control, &key, &*object).await {
            errors.push(error.into());
        }
    }
    Claimed { objects: claimed, error: ClaimErrors::collect(errors) }
}

/// Lets nothing be adopted for an owner that the server no longer has.
struct Gate<'a> {
    owner: &'a OwnerIdentity,
    /// Asked for at most once per sync, and only if there is something to adopt.
    verdict: Option<Result<(), AdoptionRefused>>,
}

impl Gate<'_> {
    /// The object if it is ours now; none if it is gone.
    async fn adopt<K, C>(
        &mut self,
        control: &C,
        key: &ObjectKey,
        object: Arc<K>,
    ) -> Result<Option<Arc<K>>, ClaimError>
    where
        K: Claimable,
        C: OwnerControl<K> + ?Sized,
    {
        let verdict = match self.verdict.take() {
            Some(verdict) => verdict,
            None => recheck(self.owner, control).await,
        };
        let verdict = self.verdict.insert(verdict);
        if let Err(refused) = verdict {
            return Err(ClaimError::AdoptionRefused {
                kind: K::KIND,
                key: key.clone(),
                uid: Arc::clone(object.uid()),
                source: refused.clone(),
            });
        }
        match control.patch(key, &OwnerPatch::adopt(self.owner, object.uid())).await {
            // DEVIATION: upstream goes on with what its cache has, and earns a conflict when it writes to it in
            // the same sync. An answer of the version that we hold brings nothing new, though.
            Ok(answer) if answer.resource_version() == object.resource_version() => Ok(Some(object)),
            Ok(answer) => Ok(Some(Arc::new(answer))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

async fn recheck<K, C>(owner: &OwnerIdentity, control: &C) -> Result<(), AdoptionRefused>
where
    C: OwnerControl<K> + ?Sized,
{
    let fresh = control.live_owner().await.map_err(AdoptionRefused::Recheck)?;
    if fresh.uid != owner.uid {
        return Err(AdoptionRefused::Gone {
            kind: owner.kind,
            key: owner.key(),
            got: fresh.uid,
            wanted: Arc::clone(&owner.uid),
        });
    }
    match fresh.deletion_timestamp {
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
    K: Claimable,
    C: OwnerControl<K> + ?Sized,
{
    debug!(kind = K::KIND, object = %key, owner = %owner.key(), "Patching object to remove its controllerRef");
    match control.patch(key, &OwnerPatch::release(&owner.uid, object.uid())).await {
        Ok(_) => Ok(()),
        // Gone, or gone and made anew under that name, or no longer ours: as it should be.
        Err(error) if error.is_not_found() || error.is_invalid() => Ok(()),
        Err(error) => Err(error),
    }
}
