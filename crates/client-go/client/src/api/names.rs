//! Names of objects, and their paths.

use std::fmt;

use kcm_api::{ApiError, ObjectKey};

use super::Api;
use crate::request::{collection_path, object_path};

/// Name of an object as the caller gives it: a name in the namespace of the [`Api`], or an [`ObjectKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectName<'a> {
    /// Empty for the namespace of the [`Api`].
    namespace: &'a str,
    name: &'a str,
}

impl<'a> From<&'a str> for ObjectName<'a> {
    fn from(name: &'a str) -> Self {
        Self { namespace: "", name }
    }
}

impl<'a> From<&'a String> for ObjectName<'a> {
    fn from(name: &'a String) -> Self {
        Self { namespace: "", name }
    }
}

impl<'a> From<&'a ObjectKey> for ObjectName<'a> {
    fn from(key: &'a ObjectKey) -> Self {
        Self { namespace: &key.namespace, name: &key.name }
    }
}

/// Displays as the caller gave it.
impl fmt::Display for ObjectName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name } = self;
        if namespace.is_empty() { f.write_str(name) } else { write!(f, "{namespace}/{name}") }
    }
}

impl<K> Api<K> {
    /// Returns the path of the objects of this handle.
    pub(crate) fn collection_path(&self) -> String {
        collection_path(&self.resource, self.namespace.as_deref().unwrap_or_default())
    }

    /// Returns the path of an object.
    pub(crate) fn object_path(&self, name: ObjectName<'_>) -> Result<String, ApiError> {
        let namespace = self.namespace_of(name)?;
        // Without a name, the path would be that of all objects.
        if name.name.is_empty() {
            return Err(self.invalid("the object has no name"));
        }
        Ok(object_path(&self.resource, namespace, name.name))
    }

    /// Returns the namespace and the name of an object.
    pub(super) fn resolve<'a>(&'a self, name: ObjectName<'a>) -> Result<(&'a str, &'a str), ApiError> {
        Ok((self.namespace_of(name)?, name.name))
    }

    /// Returns the path of the collection in which an object is created.
    pub(super) fn create_path(&self, name: ObjectName<'_>) -> Result<String, ApiError> {
        Ok(collection_path(&self.resource, self.namespace_of(name)?))
    }

    fn namespace_of<'a>(
        &'a self,
        ObjectName { namespace, name }: ObjectName<'a>,
    ) -> Result<&'a str, ApiError> {
        let own = self.namespace.as_deref().unwrap_or_default();
        match (self.resource.namespaced, own, namespace) {
            (true, "", "") if name.is_empty() => Err(self.invalid("no namespace")),
            (true, "", "") => Err(self.invalid(format_args!("no namespace for {name:?}"))),
            (true, own, "") => Ok(own),
            (true, own, given) if own.is_empty() || own == given => Ok(given),
            (true, own, given) => {
                Err(self.invalid(format_args!("{name:?} is in namespace {given:?}, not in {own:?}")))
            }
            (false, "", "") => Ok(""),
            (false, ..) => Err(self.invalid(format_args!("namespace given for cluster-scoped {name:?}"))),
        }
    }
}
