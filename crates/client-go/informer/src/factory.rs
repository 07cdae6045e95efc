//! Informers that controllers share.

use std::{any::Any, borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use async_trait::async_trait;
use kcm_meta::Object;
use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::informer::SharedInformer;

/// Objects of an informer. Together with the type, it identifies the informer in a [`SharedInformerFactory`].
///
/// Two selectors are the same only if their text is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InformerOptions {
    /// Resource, and its group if that is not the core group: `pods`, `deployments.apps`. By convention also the name of
    /// the informer.
    pub resource: Cow<'static, str>,
    /// Namespaces. Empty: all namespaces.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Label selector in its text form. Empty: all objects.
    pub label_selector: String,
    /// Field selector in its text form. Empty: all objects.
    pub field_selector: String,
}

impl InformerOptions {
    /// Returns the options for all objects of `resource`.
    pub fn new(resource: impl Into<Cow<'static, str>>) -> Self {
        Self { resource: resource.into(), ..Self::default() }
    }

    /// Limits the informer to `namespace` and the namespaces given before.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespaces.insert(namespace.into());
        self
    }

    /// Limits the informer to objects with matching labels.
    #[must_use]
    pub fn labels(self, selector: impl Into<String>) -> Self {
        Self { label_selector: selector.into(), ..self }
    }

    /// Limits the informer to objects with matching fields.
    #[must_use]
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { field_selector: selector.into(), ..self }
    }
}

/// Informer of objects of any type.
#[async_trait]
pub trait AnyInformer: Any + Send + Sync {
    /// See [`SharedInformer::name`].
    fn name(&self) -> &str;

    /// See [`SharedInformer::has_synced`].
    fn has_synced(&self) -> bool;

    /// See [`SharedInformer::wait_for_sync`].
    async fn wait_for_sync(&self, cancel: &CancellationToken) -> bool;

    /// See [`SharedInformer::relist`].
    async fn relist(&self);

    /// See [`SharedInformer::run`].
    async fn run(&self, cancel: CancellationToken);
}

#[async_trait]
impl<K: Object> AnyInformer for SharedInformer<K> {
    fn name(&self) -> &str {
        self.name()
    }

    fn has_synced(&self) -> bool {
        self.has_synced()
    }

    async fn wait_for_sync(&self, cancel: &CancellationToken) -> bool {
        self.wait_for_sync(cancel).await
    }

    async fn relist(&self) {
        self.relist().await;
    }

    async fn run(&self, cancel: CancellationToken) {
        self.run(cancel).await;
    }
}

/// Informers by type and options: controllers that need the same objects share one cache and one watch. Clones share the
/// same informers.
///
/// Upstream counterpart: `SharedInformerFactory`.
#[derive(Clone)]
pub struct SharedInformerFactory {
    inner: Arc<Inner>,
}

struct Inner {
    created: Mutex<Vec<Created>>,
    /// Number of informers.
    count: watch::Sender<usize>,
}

struct Created {
    options: InformerOptions,
    informer: Arc<dyn AnyInformer>,
}

impl SharedInformerFactory {
    /// Creates a factory without informers.
    pub fn new() -> Self {
        Self { inner: Arc::new(Inner { created: Mutex::default(), count: watch::Sender::new(0) }) }
    }

    /// Returns the informer of the objects of type `K` with `options`. `new` creates it at the first request.
    ///
    /// A controller that needs an index [adds](SharedInformer::add_indexers) it to the returned informer, because `new`
    /// of another controller may have created the informer.
    ///
    /// `new` must not call the factory: the call would deadlock.
    pub fn informer<K: Object>(
        &self,
        options: &InformerOptions,
        new: impl FnOnce() -> SharedInformer<K>,
    ) -> SharedInformer<K> {
        let mut created = self.inner.created.lock();
        let same = created.iter().filter(|created| created.options == *options);
        let mut typed = same.filter_map(|created| (&*created.informer as &dyn Any).downcast_ref());
        if let Some(informer) = typed.next() {
            return SharedInformer::clone(informer);
        }
        let informer = new();
        created.push(Created { options: options.clone(), informer: Arc::new(informer.clone()) });
        self.inner.count.send_replace(created.len());
        informer
    }

    /// Returns all informers, in the order in which they were requested first.
    pub fn informers(&self) -> Vec<Arc<dyn AnyInformer>> {
        self.inner.created.lock().iter().map(|created| Arc::clone(&created.informer)).collect()
    }

    /// Waits until all informers have [synced](SharedInformer::has_synced). Returns `false` if `cancel` is cancelled
    /// before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn wait_for_sync(&self, cancel: &CancellationToken) -> bool {
        for informer in self.informers() {
            if !informer.wait_for_sync(cancel).await {
                return false;
            }
        }
        true
    }

    /// Runs all informers until `cancel` is cancelled, each in its own task. Also runs those that are requested later.
    ///
    /// # Panics
    ///
    /// If a handler or an index function panics, or outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the informers.
    pub async fn run(&self, cancel: CancellationToken) {
        let mut count = self.inner.count.subscribe();
        let mut running = JoinSet::new();
        let mut started = 0;
        loop {
            count.borrow_and_update();
            for informer in self.informers().into_iter().skip(started) {
                let cancel = cancel.clone();
                running.spawn(async move { informer.run(cancel).await });
                started += 1;
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                _ = count.changed() => {}
                Some(ended) = running.join_next() => resume_panic(ended),
            }
        }
        while let Some(ended) = running.join_next().await {
            resume_panic(ended);
        }
    }
}

fn resume_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

impl Default for SharedInformerFactory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.inner.created.lock().iter().map(|created| &created.options)).finish()
    }
}

#[cfg(test)]
mod tests;
