use jiff::Timestamp;

use crate::ObjectKey;

/// Metadata of an object, of any type.
///
/// With the feature `kube`, every [`kube_core::Resource`] implements it: types of `k8s-openapi`, types that derive
/// `CustomResource`, `DynamicObject` and `PartialObjectMeta`.
///
/// Absent text is empty, as upstream. No method has the name of a method of kube-rs' `ResourceExt`, so both traits can be in
/// scope.
///
/// Upstream counterpart: `metav1.Object`, as far as caches and controllers use it.
///
/// [`kube_core::Resource`]: https://docs.rs/kube-core/latest/kube_core/trait.Resource.html
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not known as an object of Kubernetes",
    note = "types of kube-rs and k8s-openapi implement `Object` if the feature `kube` of `kcm`, or of each `kcm-…` crate in use, is enabled; they must be `Send + Sync + 'static`"
)]
pub trait Object: Send + Sync + 'static {
    /// Returns the namespace and name.
    ///
    /// Cheap for types that store the key in shared text. Other types copy it.
    fn key(&self) -> ObjectKey;

    /// Returns the UID. An object that is deleted and created again has the same key and another UID.
    fn uid_str(&self) -> &str;

    /// Returns the resource version.
    fn resource_version_str(&self) -> &str;

    /// Returns the value of the label `key`.
    fn label(&self, key: &str) -> Option<&str>;

    /// Returns the time of creation.
    fn creation_time(&self) -> Option<Timestamp>;

    /// Returns the time after which the object may be removed. It is set when the deletion was requested.
    fn deletion_timestamp(&self) -> Option<Timestamp>;

    /// Returns the reference to the controller of the object: the first owner reference with `controller: true`.
    ///
    /// Upstream counterpart: `metav1.GetControllerOf`.
    fn controller(&self) -> Option<ControllerRef<'_>>;

    /// Returns the key of the controller of the object, if it is in the namespace of the object.
    ///
    /// Types that store the name in shared text do not copy it.
    fn controller_key(&self) -> Option<ObjectKey> {
        let controller = self.controller()?;
        Some(ObjectKey { namespace: self.key().namespace, name: controller.name.into() })
    }

    /// `true` if the deletion of the object was requested.
    fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp().is_some()
    }
}

/// Reference to the controller of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ControllerRef<'a> {
    /// Group and version of the controller's kind.
    pub api_version: &'a str,
    /// Kind of the controller.
    pub kind: &'a str,
    /// Name of the controller. It is in the namespace of the object, or cluster-scoped.
    pub name: &'a str,
    /// UID of the controller.
    pub uid: &'a str,
}

/// An object whose resource version can be set. API servers set it when they store an object.
///
/// Fake API servers in tests require it; caches do not.
pub trait SetResourceVersion: Object {
    /// Sets the resource version.
    fn set_resource_version(&mut self, version: &str);
}
