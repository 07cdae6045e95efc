//! Where a reflector gets its objects from: the one seam between this crate and a transport.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use kcm_api::ApiError;

/// A way to list and watch the objects of one type.
///
/// Upstream counterpart: `cache.ListerWatcher`. Implemented by the transport crate for an API server, and by
/// tests for a script.
#[async_trait]
pub trait ListWatch<K>: Send + Sync + 'static {
    /// All objects at one version.
    ///
    /// # Errors
    ///
    /// What the server or the transport says. [`ApiError::is_expired`] means the version asked for is gone.
    async fn list(&self, options: &ListOptions) -> Result<List<K>, ApiError>;

    /// What happens from a version on. The stream ends when the server ends it.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), for the request itself. What goes wrong later comes through the stream, after
    /// which it ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream ends the watch.
    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ApiError>;
}

/// Events of one watch.
pub type WatchStream<K> = BoxStream<'static, Result<WatchEvent<K>, ApiError>>;

/// How to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `None`: the newest state, asked of the store itself. `Some("0")`: any state the server has at hand.
    /// Otherwise: a state not older than this version.
    pub resource_version: Option<String>,
}

/// How to watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Watch from after this version; with `send_initial_events`, start with a state not older than it.
    pub resource_version: Option<String>,
    /// Whether the server shall send all that there is first, as `Added`, ended by a bookmark.
    pub send_initial_events: bool,
    /// After how long the server shall end the watch.
    pub timeout: Duration,
}

/// The answer to a list.
#[derive(Debug)]
pub struct List<K> {
    /// The objects that could be decoded.
    pub items: Vec<K>,
    /// Those that could not.
    pub undecodable: Vec<Undecodable>,
    /// The version of the whole.
    pub resource_version: String,
}

impl<K> List<K> {
    /// The same list of what `convert` makes of the objects.
    pub fn map<T>(self, convert: impl FnMut(K) -> T) -> List<T> {
        let Self { items, undecodable, resource_version } = self;
        List { items: items.into_iter().map(convert).collect(), undecodable, resource_version }
    }
}

/// One event of a watch.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// The object is new, or new to this watch.
    Added(K),
    /// The object has changed.
    Modified(K),
    /// The object is gone; this is its last state.
    Deleted(K),
    /// Nothing happened up to this version.
    Bookmark {
        /// The version.
        resource_version: String,
        /// Whether it ends the initial events.
        initial_events_end: bool,
    },
    /// An object that cannot be decoded is new or has changed. The rest goes on.
    Undecodable(Undecodable),
    /// An object is gone whose last state cannot be decoded. Its name is enough to let go of it.
    UndecodableDeleted(Undecodable),
}

impl<K> WatchEvent<K> {
    /// The same event of what `convert` makes of the object, if it tells of one.
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

/// An object that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Namespace and name as `namespace/name`, or the name alone where there is no namespace, as far as they
    /// could be read. What a cache has of an object is found by this.
    pub name: String,
    /// Its version, if it could be read: the watch is that far all the same.
    pub resource_version: Option<String>,
    /// What was wrong.
    pub error: String,
}
