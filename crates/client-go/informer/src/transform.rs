use kube_core::Resource;

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
pub fn drop_managed_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}
