//! [`Object`] for the types of kube-rs and k8s-openapi.

use jiff::Timestamp;
use kube_core::Resource;

use crate::{ControllerRef, Object, ObjectKey, SetResourceVersion};

impl<K: Resource + Send + Sync + 'static> Object for K {
    fn key(&self) -> ObjectKey {
        let meta = self.meta();
        ObjectKey::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(key).map(String::as_str)
    }

    fn creation_timestamp(&self) -> Option<Timestamp> {
        self.meta().creation_timestamp.as_ref().map(|time| time.0)
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.meta().deletion_timestamp.as_ref().map(|time| time.0)
    }

    fn controller(&self) -> Option<ControllerRef<'_>> {
        let references = self.meta().owner_references.as_deref().unwrap_or_default();
        let controller = references.iter().find(|reference| reference.controller == Some(true))?;
        Some(ControllerRef {
            api_version: &controller.api_version,
            kind: &controller.kind,
            name: &controller.name,
            uid: &controller.uid,
        })
    }
}

impl<K: Resource + Send + Sync + 'static> SetResourceVersion for K {
    fn set_resource_version(&mut self, version: &str) {
        self.meta_mut().resource_version = Some(version.to_owned());
    }
}
