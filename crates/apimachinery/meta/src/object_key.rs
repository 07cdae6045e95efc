use std::{fmt, sync::Arc};

/// Namespace and name of an object. Caches and queues use it as their key.
///
/// A key does not identify an object: an object that is deleted and created again has the same key. The UID identifies
/// it.
///
/// Displays as `namespace/name`, or as `name` if the object has no namespace.
///
/// Upstream counterparts: `cache.ObjectName`, `types.NamespacedName`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Namespace; empty for an object of a cluster-scoped type.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// Creates the key of the object `name` in `namespace`.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_as_namespace_and_name() {
        assert_eq!(ObjectKey::new("shop", "web").to_string(), "shop/web");
        assert_eq!(ObjectKey::new("", "node-1").to_string(), "node-1");
    }
}
