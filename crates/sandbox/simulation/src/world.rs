//! Views of a simulated cluster for rules.

use std::{fmt, sync::Arc};

use kcm_apiserver::{ApiServer, ListOptions, Object};

use crate::scenario::resource;

/// Simulated cluster, and the external systems of the operator.
#[derive(Clone)]
pub struct World<X> {
    /// API server.
    pub server: Arc<ApiServer>,
    /// External systems.
    pub external: Arc<X>,
}

impl<X> World<X> {
    /// Object of a kind, which may have a group: `KIND.GROUP`. `namespace` is `""` for cluster-scoped kinds. `None` also for an
    /// unknown kind.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.server.get(resource(&self.server, kind).ok()?, namespace, name).ok()
    }

    /// All objects of a kind. None for an unknown kind.
    pub fn objects(&self, kind: &str) -> Vec<Arc<Object>> {
        let list = |resource| self.server.list(resource, None, &ListOptions::default());
        let objects = resource(&self.server, kind).and_then(list);
        objects.map(|list| list.items).unwrap_or_default()
    }
}

impl<X> fmt::Debug for World<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A write of the operator that was executed.
#[derive(Debug)]
pub struct Write<'a> {
    /// Process, such as `m0.2` for the second life of the first one.
    pub process: &'a str,
    /// Verb, such as `create` or `patch`.
    pub verb: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// Object before the write. `None` if it did not exist.
    pub before: Option<&'a Object>,
    /// Object after the write. `None` if it does not exist any more.
    pub after: Option<&'a Object>,
}
