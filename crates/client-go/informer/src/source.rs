//! Sources of objects: the interface between a reflector and a transport.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::error::ListWatchError;

/// Lists and watches the objects of one type.
///
/// A transport implements it for an API server. Tests use [`FakeSource`](crate::testing::FakeSource).
///
/// Upstream counterpart: `cache.ListerWatcher`.
#[async_trait]
pub trait ListWatch<K>: Send + Sync + 'static {
    /// Lists all objects and adds each of them to `sink`, if possible while the response arrives. Returns the resource
    /// version of the list.
    ///
    /// # Errors
    ///
    /// If the request fails, or the response cannot be decoded as a list. The objects in `sink` are then not a list.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the request.
    async fn list_into(
        &self,
        options: &ListOptions,
        sink: &mut dyn ListSink<K>,
    ) -> Result<String, ListWatchError>;

    /// Lists all objects.
    ///
    /// # Errors
    ///
    /// Those of [`list_into`](Self::list_into).
    async fn list(&self, options: &ListOptions) -> Result<List<K>, ListWatchError>
    where
        K: Send,
    {
        let mut list = List::default();
        list.resource_version = self.list_into(options, &mut list).await?;
        Ok(list)
    }

    /// Opens a watch.
    ///
    /// # Errors
    ///
    /// If the request fails. A later failure is returned by the stream, which ends after it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream ends the watch.
    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ListWatchError>;
}

/// Events of one watch. Ends when the server ends the watch, and after an error.
pub type WatchStream<K> = BoxStream<'static, Result<WatchEvent<K>, ListWatchError>>;

/// Options of a list request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `None`: the newest state, a consistent read. `Some("0")`: any state that the server has cached. Otherwise: a state
    /// not older than this version.
    pub resource_version: Option<String>,
}

/// Options of a watch request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Version after which the watch starts. With `send_initial_events`, the initial state is not older than this version.
    pub resource_version: Option<String>,
    /// If `true`, the server sends all objects as `Added` first, followed by a bookmark.
    pub send_initial_events: bool,
    /// Time after which the server ends the watch.
    pub timeout: Duration,
}

/// Receiver of the objects of a list, one after the other.
///
/// The store of an informer drops an object that it has at the same version, so a list needs memory for its other objects
/// only.
pub trait ListSink<K>: Send {
    /// Adds an object.
    fn add(&mut self, object: K);

    /// Adds an object that cannot be decoded.
    fn add_undecodable(&mut self, object: Undecodable);

    /// Removes all objects. The source lists again from the start.
    fn clear(&mut self);
}

/// Result of a list request.
#[derive(Debug)]
pub struct List<K> {
    /// Decoded objects.
    pub items: Vec<K>,
    /// Objects that cannot be decoded.
    pub undecodable: Vec<Undecodable>,
    /// Resource version of the list.
    pub resource_version: String,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self { items: Vec::new(), undecodable: Vec::new(), resource_version: String::new() }
    }
}

impl<K: Send> ListSink<K> for List<K> {
    fn add(&mut self, object: K) {
        self.items.push(object);
    }

    fn add_undecodable(&mut self, object: Undecodable) {
        self.undecodable.push(object);
    }

    fn clear(&mut self) {
        self.items.clear();
        self.undecodable.clear();
    }
}

/// Event of a watch.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// The object was created, or is part of the initial state.
    Added(K),
    /// The object was modified.
    Modified(K),
    /// The object was deleted. Contains its final state.
    Deleted(K),
    /// All changes up to a resource version have been sent.
    Bookmark {
        /// Resource version.
        resource_version: String,
        /// `true` if the bookmark completes the initial state.
        initial_events_end: bool,
    },
    /// An object was created or modified that cannot be decoded.
    Undecodable(Undecodable),
    /// An object was deleted, and its final state cannot be decoded.
    UndecodableDeleted(Undecodable),
}

impl<K> WatchEvent<K> {
    /// Converts the object, if the event contains one.
    pub fn map<T>(self, convert: impl FnOnce(K) -> T) -> WatchEvent<T> {
        match self {
            Self::Added(object) => WatchEvent::Added(convert(object)),
            Self::Modified(object) => WatchEvent::Modified(convert(object)),
            Self::Deleted(object) => WatchEvent::Deleted(convert(object)),
            Self::Bookmark { resource_version, initial_events_end } => {
                WatchEvent::Bookmark { resource_version, initial_events_end }
            }
            Self::Undecodable(object) => WatchEvent::Undecodable(object),
            Self::UndecodableDeleted(object) => WatchEvent::UndecodableDeleted(object),
        }
    }
}

/// Object that cannot be decoded. The store keeps the state that it has of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Key of the object as `namespace/name`, or `name` if it has no namespace. Empty if it cannot be read.
    pub name: String,
    /// Resource version of the object, if it can be read.
    pub resource_version: Option<String>,
    /// Reason.
    pub error: String,
}
