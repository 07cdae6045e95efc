//! Ready transforms.

#[cfg(feature = "kube")]
use kube_core::Resource;

/// Replaces `object` with a copy without spare capacity, for [`InformerConfig::transform`].
///
/// Decoders grow collections in steps, so a decoded object takes more memory than a copy of it. A `Pod` of k8s-openapi
/// takes a quarter less. The copy costs time for each event.
///
/// ```
/// use std::sync::Arc;
///
/// use kcm_informer::{Transform, shrink_to_fit};
///
/// let transform: Transform<Vec<String>> = Arc::new(shrink_to_fit);
/// let mut object = Vec::with_capacity(8);
/// object.push("web".to_owned());
/// transform(&mut object);
/// assert_eq!(object.capacity(), 1);
/// ```
///
/// [`InformerConfig::transform`]: crate::InformerConfig::transform
pub fn shrink_to_fit<K: Clone>(object: &mut K) {
    // `clone_from` would reuse the collections of `object`.
    let copy = object.clone();
    *object = copy;
}

/// Removes `metadata.managedFields`, which is the largest part of many objects.
///
/// For [`InformerConfig::transform`](crate::InformerConfig::transform):
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kcm_informer::{Transform, drop_managed_fields};
///
/// let transform: Transform<ConfigMap> = Arc::new(drop_managed_fields);
/// ```
///
/// An update without the field does not change it.
///
/// Upstream counterpart: `cache.TransformStripManagedFields`.
#[cfg(feature = "kube")]
pub fn drop_managed_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}
