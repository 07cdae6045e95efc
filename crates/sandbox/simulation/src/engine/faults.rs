//! Faults and incidents as data.
//!
//! Times are milliseconds since the start of the simulation.

use std::{fmt, sync::Arc};

use http::request::Parts;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::step::verb_and_resource;

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct At<T> {
    /// Time of the event.
    pub at: u64,
    /// The event.
    pub event: T,
}

/// Something that happens to a manager or to its host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "`manager` and `front_end` are positions, all times are milliseconds")]
pub enum Incident {
    /// The process is killed. It is started again later.
    Kill { manager: usize },
    /// The process is terminated by SIGTERM, and is started again later. A process that does not handle the signal continues.
    Terminate { manager: usize },
    /// The process is stopped and continued (SIGSTOP, SIGCONT).
    Stop { manager: usize, time: u64 },
    /// The network drops all packets between the host and the API server.
    Cut { manager: usize, time: u64 },
    /// The wall clock of the host steps by this much.
    ClockStep { manager: usize, by: i64 },
    /// The watch cache of an API server lags behind by this much from now on.
    Lag { front_end: usize, lag: u64 },
    /// The store is replaced by a backup from this long ago, with lower revisions.
    Restore { age: u64 },
}

/// Effect of a fault on one request.
///
/// Times are milliseconds. That of `Cut` is exact. Of the others, each request draws one up to them, unless the scenario has
/// surprises.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the type describes the times")]
pub enum FaultEffect {
    /// The request arrives later.
    DelayRequest { time: u64 },
    /// The response arrives later.
    DelayResponse { time: u64 },
    /// The connection breaks before the server has read the request.
    LoseRequest,
    /// The connection breaks after the request was executed.
    LoseResponse,
    /// The connection breaks at once, and the request is executed later.
    Late { time: u64 },
    /// No response ever comes. The request is executed if `executed`.
    Silence { executed: bool },
    /// The API server refuses.
    Refuse { code: u16, retry_after: Option<u32> },
    /// A webhook refuses (403) or cannot be called (500).
    Webhook { code: u16 },
    /// The process is killed at this request, which is executed if `executed`.
    Kill { executed: bool },
    /// The process is stopped right before it sends this request.
    Stop { time: u64 },
    /// The host of the process is disconnected right before it sends this request.
    Cut { time: u64 },
    /// The watch ends after so many chunks, in the middle of a line if `torn`.
    CutWatch { chunks: u32, torn: bool },
    /// The watch delivers so many chunks, then nothing for a time, and ends with 410. Only a list reports the changes of
    /// that time.
    ExpireWatch { chunks: u32, time: u64 },
    /// The server sends no bookmarks, and refuses streaming lists.
    NoBookmarks,
    /// The watch delivers later.
    DelayWatch { time: u64 },
}

impl FaultEffect {
    /// `true` if a request of this kind can have the effect.
    pub(super) fn applies(self, is_watch: bool, is_write: bool) -> bool {
        match self {
            Self::Stop { .. } | Self::Cut { .. } => true,
            Self::Webhook { .. } => is_write,
            Self::CutWatch { .. }
            | Self::ExpireWatch { .. }
            | Self::NoBookmarks
            | Self::DelayWatch { .. } => is_watch,
            _ => !is_watch,
        }
    }

    /// `true` if the request is executed, and its sender may get no response. A delay of a surprise is shorter than the timeouts of
    /// clients.
    pub(super) fn executes_without_response(self, is_surprise: bool) -> bool {
        match self {
            Self::LoseResponse
            | Self::Late { .. }
            | Self::Silence { executed: true }
            | Self::Kill { executed: true } => true,
            Self::DelayRequest { .. } | Self::DelayResponse { .. } => !is_surprise,
            _ => false,
        }
    }
}

/// Fault of some requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestFault<R = RequestPattern> {
    /// Requests that it may affect.
    pub requests: R,
    /// Effect on a request.
    pub effect: FaultEffect,
    /// Share of the requests, in thousandths.
    pub per_mille: u32,
    /// Time of the first.
    pub from: u64,
    /// Time after the last.
    pub until: u64,
}

/// Selection of requests that a fault may affect.
pub trait RequestSelector: fmt::Debug + Send + Sync {
    /// `true` if the fault may affect the request.
    fn selects(&self, request: &Parts, is_watch: bool) -> bool;
}

impl<R: RequestSelector + 'static> RequestFault<R> {
    /// The fault with a selection of any type.
    #[doc(hidden)]
    pub fn erased(self) -> RequestFault<Arc<dyn RequestSelector>> {
        let Self { requests, effect, per_mille, from, until } = self;
        RequestFault { requests: Arc::new(requests), effect, per_mille, from, until }
    }
}

/// Requests by verb and resource, such as `create pods`, `update websites/status` and `watch *`.
///
/// The verbs are `create`, `update`, `patch`, `delete`, `get`, `list` and `watch`. `*` selects all verbs but `watch`, or all
/// resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestPattern(#[serde(deserialize_with = "pattern")] pub String);

/// Verbs of a [`RequestPattern`].
const VERBS: [&str; 8] = ["create", "update", "patch", "delete", "get", "list", "watch", "*"];

/// Deserializes a pattern with a known verb.
fn pattern<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let pattern = String::deserialize(deserializer)?;
    let verb = pattern.split(' ').next().unwrap_or_default();
    if VERBS.contains(&verb) {
        return Ok(pattern);
    }
    let verbs = VERBS.join(", ");
    Err(D::Error::custom(format!("invalid requests {pattern:?}: {verb:?} is none of the verbs {verbs}")))
}

impl RequestSelector for RequestPattern {
    fn selects(&self, request: &Parts, is_watch: bool) -> bool {
        let Some((verb, resource)) = verb_and_resource(&request.method, request.uri.path()) else {
            return false;
        };
        let (of_verb, of_resource) = self.0.split_once(' ').unwrap_or((&self.0, "*"));
        let is_verb = if is_watch { of_verb == "watch" } else { matches!(of_verb, "*") || of_verb == verb };
        is_verb && (of_resource == "*" || of_resource == resource)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn pattern_selects_by_verb_and_resource() {
        let selects = |pattern: &str, is_watch| {
            let uri = "/apis/example.org/v1/namespaces/shop/websites/web/status";
            let (parts, ()) = Request::patch(uri).body(()).unwrap().into_parts();
            RequestPattern(pattern.to_owned()).selects(&parts, is_watch)
        };
        for pattern in ["patch websites/status", "patch *", "* websites/status", "* *", "patch"] {
            assert!(selects(pattern, false), "{pattern}");
        }
        for pattern in ["update websites/status", "patch websites", "watch *"] {
            assert!(!selects(pattern, false), "{pattern}");
        }
        assert!(selects("watch *", true) && !selects("* *", true));
    }

    #[test]
    fn pattern_requires_a_known_verb() {
        let parse = |text: &str| serde_json::from_str::<RequestPattern>(text);
        for verb in VERBS {
            assert!(parse(&format!("\"{verb} pods\"")).is_ok(), "{verb}");
        }
        let error = parse("\"put pods\"").unwrap_err().to_string();
        let verbs = "create, update, patch, delete, get, list, watch, *";
        assert!(
            error.contains(&format!("invalid requests \"put pods\": \"put\" is none of the verbs {verbs}")),
            "{error}"
        );
    }
}
