//! What a reflector asks next: decided here, without doing anything.

use std::time::Duration;

use kcm_api::ApiError;

/// What to ask of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Everything, and then what happens, in one stream.
    StreamingList {
        /// A state not older than this; the newest, if `None`.
        from: Option<String>,
    },
    /// Everything.
    List {
        /// As above; `"0"` is whatever the server has at hand.
        from: Option<String>,
    },
    /// What happens.
    Watch {
        /// After this version.
        from: Option<String>,
    },
}

/// What has come of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome<'a> {
    /// Everything was told. A streaming list goes on as a watch.
    Complete,
    /// The answer came to its end.
    Closed {
        /// Why, if it did not simply end.
        error: Option<&'a ApiError>,
        /// It told nothing and lasted less than a second.
        brief: bool,
    },
}

/// How long to wait before the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Not at all.
    No,
    /// By the back-off, and not less than the server asks for.
    BackOff {
        /// What the server asks for.
        at_least: Duration,
    },
}

/// Where a reflector is on its way.
///
/// | asked | what came of it | asks next |
/// |---|---|---|
/// | anything | a [relist](Self::relist) is requested | all, from the newest, at once |
/// | anything | 410, version too large | all, from the newest; at once if a list had asked for an older one |
/// | streaming list from the newest | version too large | plain list, after back-off, this time |
/// | streaming list from the newest | no answer in time | plain list, at once, this time |
/// | streaming list | 400, 405, 406, 415, 422, 501 | plain list, at once, and never a streaming one again |
/// | streaming list | 429, no connection | the same after back-off |
/// | streaming list | other errors, an end before all was told | plain list, at once, this time |
/// | list | any error | all, after back-off |
/// | watch | 429, no connection | the same from where it was, after back-off |
/// | watch | end, or connection lost on the way | the same from where it was, at once |
/// | watch | an end within a second without an event | all, after back-off |
/// | watch | other errors | all, after back-off |
///
/// "All" is a streaming list where the server has that, and is never older than what is known. Once all is to be from
/// the newest, every further try is, until one is complete.
///
/// A server whose watch cache stays behind refuses streaming lists from the newest, and answers a plain list from its
/// storage. A plain list may also take a connection that works when the one for watches does not.
///
/// As upstream (US-2.1), but for three things that change no outcome. DEVIATION: after a 410 upstream asks for a
/// state not older than the version that is gone, and for the newest only if that fails, too; here it is the
/// newest at once. Upstream forgets that a server has no streaming lists, and asks for one at every relist. And
/// when a watch cannot be opened upstream resumes it only if the connection was refused or the answer was 429,
/// here whenever there was no answer: a lost connection says nothing about the version.
#[derive(Debug)]
pub(crate) struct Course {
    streaming: Streaming,
    next: Next,
    /// `true` if the next list must be a consistent read: a relist was requested, or the last version is of no use to
    /// the server.
    newest: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streaming {
    Wanted,
    /// Not this time.
    Skipped,
    /// Not with this server.
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    All,
    Changes,
}

const NO: Pause = Pause::No;

impl Course {
    pub(crate) const fn new() -> Self {
        Self { streaming: Streaming::Wanted, next: Next::All, newest: false }
    }

    /// Sends no streaming lists, as to a server that has none.
    pub(crate) fn disable_streaming_lists(&mut self) {
        self.streaming = Streaming::Unsupported;
    }

    /// Makes the next request a list from the newest state, in place of the one under way.
    pub(crate) fn relist(&mut self) {
        self.next = Next::All;
        self.newest = true;
        self.forget_skipping();
    }

    /// What to ask, when `last` is the newest version known.
    pub(crate) fn request(&self, last: Option<String>) -> Request {
        let known = if self.newest { None } else { last.clone() };
        match (self.next, self.streaming) {
            (Next::Changes, _) => Request::Watch { from: last },
            (Next::All, Streaming::Wanted) => Request::StreamingList { from: known },
            // Only the very first list may be old: later it would take the store back in time.
            (Next::All, _) if last.is_none() && !self.newest => Request::List { from: Some("0".to_owned()) },
            (Next::All, _) => Request::List { from: known },
        }
    }

    /// Takes note of what came of the last request.
    pub(crate) fn step(&mut self, outcome: Outcome<'_>) -> Pause {
        let (error, brief) = match outcome {
            Outcome::Complete => {
                self.next = Next::Changes;
                self.newest = false;
                self.forget_skipping();
                return NO;
            }
            Outcome::Closed { error, brief } => (error, brief),
        };
        match self.next {
            Next::Changes => self.watch_closed(error, brief),
            Next::All if self.streaming == Streaming::Wanted => self.streaming_list_closed(error),
            Next::All => self.list_failed(error),
        }
    }

    fn watch_closed(&mut self, error: Option<&ApiError>, brief: bool) -> Pause {
        match error {
            None if !brief => NO,
            Some(error) if is_lost(error) && !brief => NO,
            Some(error) if is_lost(error) || error.is_too_many_requests() => back_off(error),
            Some(error) => {
                self.next = Next::All;
                self.newest |= is_unusable_version(error);
                back_off(error)
            }
            None => {
                self.next = Next::All;
                Pause::BackOff { at_least: Duration::ZERO }
            }
        }
    }

    fn streaming_list_closed(&mut self, error: Option<&ApiError>) -> Pause {
        match error {
            Some(error) if self.newest && is_too_large(error) => {
                self.streaming = Streaming::Skipped;
                back_off(error)
            }
            Some(ApiError::Timeout(_)) if self.newest => {
                self.streaming = Streaming::Skipped;
                NO
            }
            Some(error) if is_unusable_version(error) => self.ask_for_the_newest(error),
            Some(error) if is_lost(error) || error.is_too_many_requests() => back_off(error),
            Some(error) if is_unsupported(error) => {
                self.streaming = Streaming::Unsupported;
                NO
            }
            _ => {
                self.streaming = Streaming::Skipped;
                NO
            }
        }
    }

    fn list_failed(&mut self, error: Option<&ApiError>) -> Pause {
        match error {
            Some(error) if is_unusable_version(error) => self.ask_for_the_newest(error),
            Some(error) => {
                self.forget_skipping();
                back_off(error)
            }
            None => NO,
        }
    }

    fn ask_for_the_newest(&mut self, error: &ApiError) -> Pause {
        // A server that has not even that must not be asked in a tight loop.
        if std::mem::replace(&mut self.newest, true) { back_off(error) } else { NO }
    }

    fn forget_skipping(&mut self) {
        if self.streaming == Streaming::Skipped {
            self.streaming = Streaming::Wanted;
        }
    }
}

fn back_off(error: &ApiError) -> Pause {
    let seconds = error.retry_after_seconds().unwrap_or(0);
    Pause::BackOff { at_least: Duration::from_secs(u64::from(seconds)) }
}

/// The version was compacted away, or belongs to a server that has seen more.
fn is_unusable_version(error: &ApiError) -> bool {
    error.is_expired() || is_too_large(error)
}

/// The server has not seen the version yet.
fn is_too_large(error: &ApiError) -> bool {
    error.has_cause("ResourceVersionTooLarge")
}

/// There is no connection, or none any more: that says nothing about versions.
fn is_lost(error: &ApiError) -> bool {
    matches!(error, ApiError::NotSent(_) | ApiError::Transport(_) | ApiError::Timeout(_))
}

/// The request as such is not understood.
fn is_unsupported(error: &ApiError) -> bool {
    error.is_invalid() || matches!(error.code(), Some(400 | 405 | 406 | 415 | 501))
}

#[cfg(test)]
mod tests;
