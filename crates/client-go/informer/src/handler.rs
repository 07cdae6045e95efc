use std::sync::Arc;

/// Who wants to know what changes.
///
/// Upstream counterpart: `cache.ResourceEventHandler`. The store has changed already when a method is called,
/// and calls come one at a time, in the order of the changes. They are made on the reflector's task: a handler
/// must not block; what takes time belongs behind a work queue.
pub trait EventHandler<K>: Send + Sync + 'static {
    /// `object` is new. `initial` tells that it was there before this handler, or the informer, was.
    fn on_add(&self, object: &Arc<K>, initial: bool);

    /// `old` has become `new`. At a resync, and at a relist that finds the object unchanged, they are the same;
    /// when an object was deleted and created anew between two looks, they have different UIDs (US-2.1).
    fn on_update(&self, old: &Arc<K>, new: &Arc<K>);

    /// An object is gone.
    fn on_delete(&self, deleted: &Deleted<K>);

    /// A relist has replaced the state, and its changes have been handled. An object that was created and deleted since
    /// the state before was reported by no event.
    fn on_replace(&self) {}
}

/// An object that is gone.
#[derive(Debug, Clone)]
pub enum Deleted<K> {
    /// The watch told so, and this is the object's last state.
    Seen(Arc<K>),
    /// It was missing from a later list. This is the last state that was known, which may not be the last.
    ///
    /// Upstream counterpart: `cache.DeletedFinalStateUnknown`.
    Unseen(Arc<K>),
}

impl<K> Deleted<K> {
    /// The last known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Seen(object) | Self::Unseen(object) => object,
        }
    }
}
