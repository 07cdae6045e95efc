//! Decides which request a reflector sends next. Pure: nothing is sent here.

use std::time::Duration;

use crate::{ListWatchError, ListWatchErrorKind as Kind};

/// Request to the source. `from` is a resource version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// All objects, then changes, in one stream.
    StreamingList {
        /// The state is not older than this version. `None` is a consistent read.
        from: Option<String>,
    },
    /// All objects.
    List {
        /// As for a streaming list. `"0"` is any state that the server has cached.
        from: Option<String>,
    },
    /// Changes.
    Watch {
        /// Changes after this version.
        from: Option<String>,
    },
}

/// Time of the next request after one that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// At once.
    Immediately,
    /// After the back-off.
    AfterBackoff {
        /// Minimum delay, requested by the server.
        at_least: Duration,
    },
}

/// State of a reflector: determines the next request from the results of those before.
///
/// | Request | Result | Next request |
/// |---|---|---|
/// | any | [relist](Self::relist) requested | list, consistent read, at once |
/// | any | version expired or too large | list, consistent read; at once if the request was a list of an older state |
/// | streaming list, consistent read | version too large | plain list after back-off |
/// | streaming list, consistent read | timeout | plain list at once |
/// | streaming list | unsupported | plain list at once; no streaming list from then on |
/// | streaming list | 429, no connection | repeated after back-off |
/// | streaming list | other errors; end of the stream before all objects | plain list at once |
/// | plain list | any error | list after back-off |
/// | watch | 429, no connection | watch from the last version after back-off |
/// | watch | end of the stream, connection lost | watch from the last version at once |
/// | watch | end of the stream within 1 s, no event | list after back-off |
/// | watch | other errors | list after back-off |
///
/// A list is a streaming list if the server supports them, of a state not older than the last version. A list that has
/// to be a consistent read is repeated as one until it is complete.
///
/// An API server whose watch cache is behind rejects a streaming list that is a consistent read, but answers a plain list
/// from its storage. A plain list may also succeed if only the connection of the watches fails.
///
/// DEVIATION, without effect on the resulting state (US-2.1): after a 410 upstream first lists a state not older than the
/// expired version. Upstream tries a streaming list again on every relist after the server has rejected one. If a watch
/// cannot be opened, upstream keeps the version only after 429 or a refused connection; here after any failure without a
/// response.
#[derive(Debug)]
pub(crate) struct ReflectorState {
    streaming_lists: StreamingLists,
    next: Next,
    /// `true` if the next list must be a consistent read.
    consistent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamingLists {
    Enabled,
    /// The next list is a plain one.
    Skipped,
    Disabled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    List,
    Watch,
}

impl ReflectorState {
    pub(crate) const fn new() -> Self {
        Self { streaming_lists: StreamingLists::Enabled, next: Next::List, consistent: false }
    }

    /// Replaces streaming lists with plain lists.
    pub(crate) fn disable_streaming_lists(&mut self) {
        self.streaming_lists = StreamingLists::Disabled;
    }

    /// Makes the next request a list that is a consistent read.
    pub(crate) fn relist(&mut self) {
        self.next = Next::List;
        self.consistent = true;
        self.end_skipping();
    }

    /// Returns the next request. `last` is the last resource version of the store.
    pub(crate) fn request(&self, last: Option<String>) -> Request {
        match (self.next, self.streaming_lists) {
            (Next::Watch, _) => Request::Watch { from: last },
            (Next::List, StreamingLists::Enabled) => Request::StreamingList { from: self.list_version(last) },
            // Later lists must not return a state older than that of the store.
            (Next::List, _) if last.is_none() && !self.consistent => {
                Request::List { from: Some("0".to_owned()) }
            }
            (Next::List, _) => Request::List { from: self.list_version(last) },
        }
    }

    fn list_version(&self, last: Option<String>) -> Option<String> {
        last.filter(|_| !self.consistent)
    }

    /// Records that the list is complete. A streaming list continues as a watch.
    pub(crate) fn list_completed(&mut self) {
        self.next = Next::Watch;
        self.consistent = false;
        self.end_skipping();
    }

    /// Records the end of the last request, with the error if it failed.
    ///
    /// `very_short` is `true` if the request ended within a second and without an event.
    pub(crate) fn request_ended(&mut self, error: Option<&ListWatchError>, very_short: bool) -> Retry {
        match self.next {
            Next::Watch => self.watch_ended(error, very_short),
            Next::List if self.streaming_lists == StreamingLists::Enabled => self.streaming_list_ended(error),
            Next::List => self.list_ended(error),
        }
    }

    fn watch_ended(&mut self, error: Option<&ListWatchError>, very_short: bool) -> Retry {
        match error.map(ListWatchError::kind) {
            None | Some(Kind::Timeout | Kind::Connection) if !very_short => Retry::Immediately,
            Some(Kind::Timeout | Kind::Connection | Kind::TooManyRequests) => back_off(error),
            kind => {
                self.next = Next::List;
                self.consistent |= matches!(kind, Some(Kind::Expired | Kind::ResourceVersionTooLarge));
                back_off(error)
            }
        }
    }

    fn streaming_list_ended(&mut self, error: Option<&ListWatchError>) -> Retry {
        match error.map(ListWatchError::kind) {
            Some(Kind::ResourceVersionTooLarge) if self.consistent => {
                self.streaming_lists = StreamingLists::Skipped;
                back_off(error)
            }
            Some(Kind::Timeout) if self.consistent => self.skip_streaming_list(),
            Some(Kind::Expired | Kind::ResourceVersionTooLarge) => self.require_consistent_read(error),
            Some(Kind::Timeout | Kind::Connection | Kind::TooManyRequests) => back_off(error),
            Some(Kind::Unsupported) => {
                self.streaming_lists = StreamingLists::Disabled;
                Retry::Immediately
            }
            Some(Kind::Other) | None => self.skip_streaming_list(),
        }
    }

    fn list_ended(&mut self, error: Option<&ListWatchError>) -> Retry {
        match error.map(ListWatchError::kind) {
            Some(Kind::Expired | Kind::ResourceVersionTooLarge) => self.require_consistent_read(error),
            Some(_) => {
                self.end_skipping();
                back_off(error)
            }
            None => Retry::Immediately,
        }
    }

    fn require_consistent_read(&mut self, error: Option<&ListWatchError>) -> Retry {
        // If a consistent read is rejected as well, the next one must not follow at once.
        if std::mem::replace(&mut self.consistent, true) { back_off(error) } else { Retry::Immediately }
    }

    fn skip_streaming_list(&mut self) -> Retry {
        self.streaming_lists = StreamingLists::Skipped;
        Retry::Immediately
    }

    fn end_skipping(&mut self) {
        if self.streaming_lists == StreamingLists::Skipped {
            self.streaming_lists = StreamingLists::Enabled;
        }
    }
}

fn back_off(error: Option<&ListWatchError>) -> Retry {
    Retry::AfterBackoff { at_least: error.map_or(Duration::ZERO, ListWatchError::retry_after) }
}

#[cfg(test)]
mod tests;
