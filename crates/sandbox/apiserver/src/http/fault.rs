//! Fault injection rules, and their effects on responses.

use std::{convert::Infallible, fmt, str::FromStr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kcm_api::GoDuration;
use kcm_clock::Clock;
use thiserror::Error;

use super::response::{self, ApiBody, ApiResponse};
use crate::{ApiStatus, StatusReason};

/// Maximum number of parts of a stream that [`lag`] holds. Further ones wait in the server.
const LAGGING: usize = 1024;

/// Fault injection rule: selects requests and the action applied to them. Parsed from text (`"…".parse::<Fault>()`):
///
/// ```text
/// METHOD PATH [ACTION] [OPTION=VALUE …]
/// ```
///
/// `METHOD` is an HTTP method, `WATCH` (a GET that watches; `GET` matches only other reads), `CONTINUE` (a GET of a further
/// part of a list) or `*`. `PATH` is the path without the query. In it, `*` matches within a segment and `**` matches anything.
///
/// | action | effect |
/// |---|---|
/// | none, with `delay` | the request is served after the delay |
/// | `400`, `401`, `403`, `404`, `409`, `410`, `429`, `500`, `503`, `504` | the request is not served and fails with this status; a watch gets 410 as an event, as upstream |
/// | `after:500` etc. | the request is served, its write takes effect, and it fails with this status |
/// | `webhook:403`, `webhook:500` | an admission webhook denies the request or fails; it is not served |
/// | `cut` | a watch ends; with `events=N` after N lines |
/// | `lag:2s` | the events of a watch are sent 2 s later |
/// | `break` | the connection breaks without a response; the request is not served |
/// | `late:5s` | the connection breaks without a response; the request is served 5 s later (`late:0s`: immediately) |
///
/// An HTTP/1.1 connection that breaks is closed. On HTTP/2 the stream is reset and the connection stays open.
///
/// | option | meaning |
/// |---|---|
/// | `delay=500ms` | delay before the request is served (`ms` or `s`) |
/// | `retry-after=1` | `Retry-After` header in seconds |
/// | `events=3` | number of lines of a watch before it ends |
/// | `agent=kubectl*` | only requests with a matching `User-Agent`; `*` matches anything |
/// | `skip=2` | ignore the first two matching requests |
/// | `every=3` | of the remaining requests, apply the fault to every third |
/// | `times=5` | apply the fault at most five times |
///
/// Injection is deterministic: it depends only on the order of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    method: MethodMatch,
    path: Glob,
    agent: Option<Glob>,
    pub(super) action: FaultAction,
    pub(super) delay: Duration,
    skip: u64,
    every: u64,
    /// Number of times that the fault is applied.
    pub(super) times: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MethodMatch {
    All,
    Watch,
    Continue,
    Method(Method),
}

/// Kind of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Watch,
    /// Further part of a list.
    Continued,
    /// Other read, or no read.
    Other,
}

/// Effect of a fault on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FaultAction {
    /// The request is served.
    None,
    /// The request fails with this status.
    Refuse(ApiStatus),
    /// The request is served and fails with this status.
    RefuseAfter(ApiStatus),
    /// The request is served. Its stream ends after this number of lines.
    Cut { events: u64 },
    /// The request is served. The parts of its stream are sent later.
    Lag(Duration),
    /// The connection breaks without a response. The request is served after this time, or never.
    Break { served_after: Option<Duration> },
}

/// Invalid fault injection rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("fault {rule:?}: {reason}")]
pub struct FaultError {
    /// The rule.
    pub rule: String,
    /// Cause.
    pub reason: String,
}

/// Faults of a request.
#[derive(Debug)]
pub(super) struct FaultDecision {
    pub(super) delay: Duration,
    pub(super) action: FaultAction,
}

impl Fault {
    pub(super) fn matches(&self, method: &Method, read: Read, path: &str, agent: &str) -> bool {
        let is_watch = read == Read::Watch;
        let method = match &self.method {
            MethodMatch::All => true,
            MethodMatch::Watch => is_watch,
            MethodMatch::Continue => read == Read::Continued,
            MethodMatch::Method(only) => !is_watch && only == method,
        };
        // Only streams can be cut.
        let suits = is_watch || !matches!(self.action, FaultAction::Cut { .. } | FaultAction::Lag(_));
        method
            && suits
            && self.path.matches(path)
            && self.agent.as_ref().is_none_or(|glob| glob.matches(agent))
    }

    /// `true` if the fault applies to the request that is number `matched` of those that match, from 1.
    pub(super) fn is_turn(&self, matched: u64) -> bool {
        matched.checked_sub(self.skip).is_some_and(|turn| turn > 0 && turn.is_multiple_of(self.every))
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(rule: &str) -> Result<Self, FaultError> {
        parse(rule).map_err(|reason| FaultError { rule: rule.to_owned(), reason })
    }
}

fn parse(rule: &str) -> Result<Fault, String> {
    let mut words = rule.split_whitespace();
    let method = match words.next().ok_or("empty rule")? {
        "*" => MethodMatch::All,
        "WATCH" => MethodMatch::Watch,
        "CONTINUE" => MethodMatch::Continue,
        name @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE") => {
            MethodMatch::Method(name.parse().map_err(|_| format!("invalid method {name:?}"))?)
        }
        other => {
            return Err(format!(
                "invalid method {other:?}: expected GET, POST, PUT, PATCH, DELETE, WATCH, CONTINUE or *"
            ));
        }
    };
    let path = words.next().ok_or("missing path")?;
    if !path.starts_with(['/', '*']) {
        return Err(format!("invalid path {path:?}: must begin with / or *"));
    }
    let mut fault = Fault {
        method,
        path: Glob(path.to_owned()),
        agent: None,
        action: FaultAction::None,
        delay: Duration::ZERO,
        skip: 0,
        every: 1,
        times: u64::MAX,
    };
    let (mut retry_after, mut events) = (None, None);
    for (index, word) in words.enumerate() {
        let Some((option, value)) = word.split_once('=') else {
            if index > 0 {
                return Err(format!("unknown option {word:?}"));
            }
            fault.action = action(word)?;
            continue;
        };
        let number = || value.parse::<u64>().map_err(|_| format!("invalid {word:?}: expected an integer"));
        match option {
            "delay" => {
                let bad = || format!("invalid {word:?}: expected a duration such as 500ms or 2s");
                fault.delay = duration(value).ok_or_else(bad)?;
            }
            "retry-after" => {
                retry_after =
                    Some(value.parse::<u32>().map_err(|_| format!("invalid {word:?}: expected seconds"))?);
            }
            "events" => events = Some(number()?),
            "agent" => fault.agent = Some(Glob(value.replace('*', "**"))),
            "skip" => fault.skip = number()?,
            "every" => {
                fault.every =
                    Some(number()?).filter(|n| *n > 0).ok_or("invalid every=0: must be positive")?;
            }
            "times" => fault.times = number()?,
            _ => return Err(format!("unknown option {option:?}")),
        }
    }
    match (&mut fault.action, retry_after) {
        (FaultAction::Refuse(status) | FaultAction::RefuseAfter(status), Some(seconds)) => {
            *status = status.clone().with_retry_after(seconds);
        }
        (_, Some(_)) => return Err("retry-after requires a status code".to_owned()),
        _ => {}
    }
    match (&mut fault.action, events) {
        (FaultAction::Cut { events }, Some(given)) => *events = given,
        (_, Some(_)) => return Err("events requires cut".to_owned()),
        (FaultAction::None, _) if fault.delay.is_zero() => {
            return Err("missing action or delay".to_owned());
        }
        (FaultAction::Cut { .. }, _) if !matches!(fault.method, MethodMatch::Watch | MethodMatch::All) => {
            return Err("cut requires WATCH".to_owned());
        }
        _ => {}
    }
    Ok(fault)
}

fn action(word: &str) -> Result<FaultAction, String> {
    let status = |code: &str| {
        let reason = match code {
            "400" => StatusReason::BadRequest,
            "401" => StatusReason::Unauthorized,
            "403" => StatusReason::Forbidden,
            "404" => StatusReason::NotFound,
            "409" => StatusReason::Conflict,
            "410" => StatusReason::Expired,
            "429" => StatusReason::TooManyRequests,
            "500" => StatusReason::InternalError,
            "503" => StatusReason::ServiceUnavailable,
            "504" => StatusReason::Timeout,
            _ => {
                return Err(format!(
                    "unknown action {code:?}: expected 400, 401, 403, 404, 409, 410, 429, 500, 503, 504, after:CODE, cut, \
                     break, late:DURATION, webhook:403 or webhook:500"
                ));
            }
        };
        Ok(ApiStatus::new(reason, format!("{reason}: injected fault")))
    };
    match word.split_once(':') {
        Some(("after", code)) => status(code).map(FaultAction::RefuseAfter),
        Some(("webhook", code)) => webhook(code).map(FaultAction::Refuse),
        Some((action @ ("late" | "lag"), time)) => {
            let time = duration(time)
                .ok_or_else(|| format!("invalid {word:?}: expected a duration such as 500ms or 2s"))?;
            Ok(match action {
                "lag" => FaultAction::Lag(time),
                _ => FaultAction::Break { served_after: Some(time) },
            })
        }
        _ if word == "cut" => Ok(FaultAction::Cut { events: 0 }),
        _ if word == "break" => Ok(FaultAction::Break { served_after: None }),
        _ => status(word).map(FaultAction::Refuse),
    }
}

/// Response to a request that an admission webhook rejects, with kube-apiserver's message.
fn webhook(code: &str) -> Result<ApiStatus, String> {
    match code {
        "403" => Ok(ApiStatus::new(
            StatusReason::Forbidden,
            "admission webhook \"fault.example.com\" denied the request: injected fault",
        )),
        "500" => Ok(ApiStatus::new(
            StatusReason::InternalError,
            "Internal error occurred: failed calling webhook \"fault.example.com\": injected fault",
        )),
        _ => Err(format!("unknown action webhook:{code}: expected webhook:403 or webhook:500")),
    }
}

fn duration(text: &str) -> Option<Duration> {
    GoDuration::parse(text).ok()?.to_std()
}

/// Pattern: `*` matches within a path segment, `**` matches anything.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Glob(pub(super) String);

impl Glob {
    pub(super) fn matches(&self, text: &str) -> bool {
        matches(self.0.as_bytes(), text.as_bytes())
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return text.is_empty() };
    if *first != b'*' {
        return text.split_first().is_some_and(|(byte, text)| byte == first && matches(rest, text));
    }
    let (rest, any) = rest.strip_prefix(b"*").map_or((rest, false), |rest| (rest, true));
    let reach =
        if any { text.len() } else { text.iter().position(|byte| *byte == b'/').unwrap_or(text.len()) };
    (0..=reach).any(|taken| text.get(taken..).is_some_and(|text| matches(rest, text)))
}

/// Response to a watch with the failure as its only event.
pub(super) fn error_event(status: &ApiStatus) -> ApiResponse {
    let mut line = Vec::new();
    response::write_event(&mut line, "ERROR", &status.to_value());
    response::json_text(StatusCode::OK, line.into())
}

/// Ends a stream after `events` lines.
pub(super) fn cut(response: ApiResponse, events: u64) -> ApiResponse {
    let (parts, body) = response.into_parts();
    let frames = stream::unfold((body, events), async |(mut body, left): (ApiBody, u64)| {
        if left == 0 {
            return None;
        }
        let Ok(frame) = body.frame().await?;
        let data = frame.into_data().ok()?;
        let (data, left) = first_lines(data, left);
        Some((Ok::<_, Infallible>(Frame::data(data)), (body, left)))
    });
    ApiResponse::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}

/// Sends the parts of a stream `time` later, without changing their intervals.
pub(super) fn lag(response: ApiResponse, time: Duration, clock: Arc<dyn Clock>) -> ApiResponse {
    let (parts, body) = response.into_parts();
    let frames = BodyStream::new(body).map(move |frame| {
        let delay = clock.sleep(time);
        async {
            delay.await;
            frame
        }
    });
    ApiResponse::from_parts(parts, StreamBody::new(frames.buffered(LAGGING)).boxed_unsync())
}

/// Returns at most `left` lines of `data`, and the number of lines left after them.
fn first_lines(data: Bytes, mut left: u64) -> (Bytes, u64) {
    for (index, byte) in data.iter().enumerate() {
        if *byte == b'\n' {
            left -= 1;
            if left == 0 {
                return (data.slice(..=index), 0);
            }
        }
    }
    (data, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_with_stars_matches_segments_or_all() {
        for (pattern, path, expected) in [
            ("/api/v1/pods", "/api/v1/pods", true),
            ("/api/v1/namespaces/*/pods", "/api/v1/namespaces/a/pods", true),
            ("/api/v1/namespaces/*/pods", "/api/v1/namespaces/a/b/pods", false),
            ("/api/v1/namespaces/*/pods", "/api/v1/namespaces/a/pods/b", false),
            ("/api/**", "/api/v1/namespaces/a/pods", true),
            ("**/pods/*-1", "/api/v1/namespaces/a/pods/web-1", true),
            ("/api/v1/p*", "/api/v1/", false),
        ] {
            assert_eq!(Glob(pattern.to_owned()).matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn invalid_rules_are_rejected() {
        for bad in [
            "",
            "POST",
            "POST a 429",
            "FETCH /a 429",
            "POST /a",
            "POST /a 418",
            "POST /a after:cut",
            "POST /a webhook",
            "POST /a webhook:404",
            "POST /a late",
            "POST /a late:5",
            "WATCH /a lag",
            "WATCH /a lag:2",
            "POST /a break:5s",
            "POST /a break retry-after=1",
            "POST /a cut",
            "POST /a 429 500",
            "POST /a 429 times=x",
            "POST /a 429 every=0",
            "POST /a 429 often=1",
            "POST /a delay=1",
            "POST /a delay=1s retry-after=1",
            "WATCH /a 410 events=1",
        ] {
            let error = bad.parse::<Fault>().unwrap_err();
            assert_eq!(error.rule, bad, "{error}");
        }
    }

    #[test]
    fn stream_is_cut_after_lines() {
        let lines = Bytes::from_static(b"one\ntwo\nthree\n");
        assert_eq!(first_lines(lines.clone(), 2), (Bytes::from_static(b"one\ntwo\n"), 0));
        assert_eq!(first_lines(lines.clone(), 5), (lines, 2));
    }
}
