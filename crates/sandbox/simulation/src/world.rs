//! Views of a simulated cluster for rules.

use std::{collections::BTreeMap, fmt, sync::Arc};

use kcm_apiserver::{ApiServer, ListOptions, Object, Resource};
use parking_lot::Mutex;

use crate::scenario::resource;

/// Simulated cluster, and the external systems of the operator.
pub struct World<X = ()> {
    /// API server.
    pub server: Arc<ApiServer>,
    /// External systems.
    pub external: Arc<X>,
    /// Kinds in calls of rules. `true` if the kind existed.
    kinds: Arc<Mutex<BTreeMap<String, bool>>>,
}

impl<X> World<X> {
    pub(crate) fn new(server: &Arc<ApiServer>, external: X) -> Self {
        Self { server: Arc::clone(server), external: Arc::new(external), kinds: Arc::default() }
    }

    /// Object of a kind, which may have a group: `KIND.GROUP`. `namespace` is `""` for cluster-scoped kinds. The run
    /// without faults fails if a kind never exists.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.server.get(self.resource(kind)?, namespace, name).ok()
    }

    /// All objects of a kind, which may have a group. The run without faults fails if a kind never exists.
    pub fn objects(&self, kind: &str) -> Vec<Arc<Object>> {
        let list = |resource| self.server.list(resource, None, &ListOptions::default());
        let objects = self.resource(kind).and_then(|resource| list(resource).ok());
        objects.map(|list| list.items).unwrap_or_default()
    }

    /// Resource of a kind, which may have a group.
    pub(crate) fn resource(&self, kind: &str) -> Option<Resource> {
        let resource = resource(&self.server, kind).ok();
        *self.kinds.lock().entry(kind.to_owned()).or_default() |= resource.is_some();
        resource
    }

    /// A kind in a call of a rule that has not existed then, and does not exist now.
    pub(crate) fn unknown_kind(&self) -> Option<String> {
        let kinds = self.kinds.lock();
        let is_unknown =
            |(kind, existed): &(&String, &bool)| !**existed && resource(&self.server, kind).is_err();
        kinds.iter().find(is_unknown).map(|(kind, _)| kind.clone())
    }
}

impl<X> Clone for World<X> {
    fn clone(&self) -> Self {
        let Self { server, external, kinds } = self;
        Self { server: Arc::clone(server), external: Arc::clone(external), kinds: Arc::clone(kinds) }
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
    /// Verb of the request, such as `create` or `patch`. An apply that creates the object has the verb `patch`.
    pub verb: &'a str,
    /// Plural name of the resource, such as `jobs`. [`Object::resource`] has the group.
    pub resource: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// Object before the write. `None` if it did not exist.
    pub before: Option<&'a Object>,
    /// Object after the write. `None` if it does not exist any more.
    pub after: Option<&'a Object>,
}
