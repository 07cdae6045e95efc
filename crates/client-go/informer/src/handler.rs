use std::sync::Arc;

/// Receives the changes of the objects of an informer.
///
/// The methods are called after the change of the store, one at a time and in the order of the changes. They run on the
/// task of the reflector and must not block: enqueue a key in a work queue instead.
///
/// Upstream counterpart: `cache.ResourceEventHandler`.
pub trait EventHandler<K>: Send + Sync + 'static {
    /// `object` was added. `initial` is `true` if it existed before the handler was added or the informer was started.
    fn on_add(&self, object: &Arc<K>, initial: bool);

    /// `old` was replaced by `new` (US-2.1).
    ///
    /// Both are the same state if a resync or a relist reports an unchanged object. Their UIDs differ if the object was
    /// deleted and created again before a relist.
    fn on_update(&self, old: &Arc<K>, new: &Arc<K>);

    /// An object was deleted.
    fn on_delete(&self, deleted: &Deleted<K>);

    /// The version of a relist is lower than that of the state before it: the source was restored from a backup. Versions
    /// of earlier writes may never be reached. Called before the changes of the relist are handled.
    fn on_restore(&self) {}

    /// A relist has replaced the state, and its changes have been handled. An object that was created and deleted since
    /// the state before was reported by no event.
    fn on_replace(&self) {}
}

/// Object that was deleted.
#[derive(Debug, Clone)]
pub enum Deleted<K> {
    /// Final state of the object, from a watch.
    FinalState(Arc<K>),
    /// State in the store before the deletion. The final state is unknown because a relist reported the deletion, or
    /// because the final state cannot be decoded.
    ///
    /// Upstream counterpart: `cache.DeletedFinalStateUnknown`.
    FinalStateUnknown(Arc<K>),
}

impl<K> Deleted<K> {
    /// Returns the last known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::FinalState(object) | Self::FinalStateUnknown(object) => object,
        }
    }
}
