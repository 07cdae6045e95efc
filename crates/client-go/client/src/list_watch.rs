//! The source of a reflector.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, Pod, ReplicaSet};
use kcm_informer::{List, ListOptions, ListWatch, WatchOptions, WatchStream};

use crate::{
    ApiClient,
    kind::Kind,
    list::{self, Scope},
    watch,
};

/// Lists and watches all objects of one type, in all namespaces.
struct Collection<K: Kind> {
    client: ApiClient,
    decoder: Arc<K::Decoder>,
}

impl ApiClient {
    /// The source of all objects of a type.
    ///
    /// Lists take tokens from this client's bucket; watches do not.
    pub fn list_watch<K: Kind>(&self) -> Arc<dyn ListWatch<K>> {
        Arc::new(Collection { client: self.clone(), decoder: Arc::default() })
    }

    /// All pods, lean.
    pub fn pods(&self) -> Arc<dyn ListWatch<Pod>> {
        self.list_watch()
    }

    /// All ReplicaSets.
    pub fn replica_sets(&self) -> Arc<dyn ListWatch<ReplicaSet>> {
        self.list_watch()
    }

    /// All Deployments.
    pub fn deployments(&self) -> Arc<dyn ListWatch<Deployment>> {
        self.list_watch()
    }
}

#[async_trait]
impl<K: Kind> ListWatch<K> for Collection<K> {
    async fn list(&self, options: &ListOptions) -> Result<List<K>, ApiError> {
        list::list::<K>(&self.client, &self.decoder, Scope::Cluster, options).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ApiError> {
        watch::watch::<K>(&self.client, Arc::clone(&self.decoder), options).await
    }
}

impl<K: Kind> fmt::Debug for Collection<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collection").field("resource", &K::PLURAL).field("client", &self.client).finish()
    }
}
