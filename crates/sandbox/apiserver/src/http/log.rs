//! Logs of containers.
//!
//! Upstream counterpart: `LogREST`, `LogLocation`, and `ReadLogs` of the kubelet.

use std::{convert::Infallible, future::ready, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    query::Query,
    response::{self, ApiResponse},
    verbs::ResourceRequest,
};
use crate::{
    ApiStatus, Object,
    containers::{container_of, ended, is_running, status_of},
    json::{at, bool_at, str_at},
    validate::path::{Errors, Path},
};

/// Upstream counterpart: `PodLogOptions`.
#[derive(Debug, Default)]
struct LogOptions {
    /// Number of lines at the end.
    tail: Option<usize>,
    /// Maximum number of bytes.
    limit: Option<usize>,
    /// Time before which lines are left out.
    since: Option<Timestamp>,
    timestamps: bool,
    follow: bool,
    previous: bool,
}

impl LogOptions {
    fn parse(query: &Query, pod: &str, now: Timestamp) -> Result<Self, ApiStatus> {
        let mut errors = Errors::default();
        let (tail, limit) = (query.number("tailLines")?, query.number("limitBytes")?);
        let seconds = query.number("sinceSeconds")?;
        let time = query.get("sinceTime").map(str::parse::<Timestamp>).transpose().map_err(|cause| {
            let given = query.get("sinceTime").unwrap_or_default();
            ApiStatus::bad_request(format!(
                "parsing time {given:?} as \"2006-01-02T15:04:05Z07:00\": {cause}"
            ))
        })?;
        errors.not_negative(&Path::new("tailLines"), tail);
        if let Some(limit) = limit.filter(|limit| *limit < 1) {
            errors.invalid(&Path::new("limitBytes"), limit, "must be greater than 0");
        }
        if seconds.is_some() && time.is_some() {
            let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.forbidden(&Path::new("[]"), detail);
        } else if let Some(seconds) = seconds.filter(|seconds| *seconds < 1) {
            errors.invalid(&Path::new("sinceSeconds"), seconds, "must be greater than 0");
        }
        if query.get("stream").is_some() {
            errors.forbidden(&Path::new("stream"), "may not be specified");
        }
        if !errors.0.is_empty() {
            return Err(ApiStatus::invalid("PodLogOptions", "", pod, &errors.0));
        }
        let number = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        let ago = |seconds| now.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        let flag = |name| query.flag(name).unwrap_or_default();
        Ok(Self {
            tail: tail.map(number),
            limit: limit.map(number),
            since: time.or_else(|| seconds.map(ago)),
            timestamps: flag("timestamps"),
            follow: flag("follow"),
            previous: flag("previous"),
        })
    }

    /// Returns the requested part of a log whose lines have the time `started`.
    fn select(&self, log: &str, started: &str) -> String {
        let is_older = |since: Timestamp| started.parse().is_ok_and(|started: Timestamp| started < since);
        if self.since.is_some_and(is_older) {
            return String::new();
        }
        let lines: Vec<&str> = log.split_inclusive('\n').collect();
        let skipped = self.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
        let mut text = String::new();
        for line in lines.into_iter().skip(skipped) {
            if self.timestamps {
                text += started;
                text.push(' ');
            }
            text += line;
        }
        text
    }
}

impl ResourceRequest<'_> {
    /// Returns the log of a container. All lines have the time at which the container started.
    pub(super) fn log(&self) -> Result<ApiResponse, ApiStatus> {
        let target = self.target;
        let (server, name) = (self.server, target.name());
        let options = LogOptions::parse(self.query, name, server.config.clock.now())?;
        let pod = server.get(target.resource(), &target.namespace, name)?;
        let container = container_of(&pod, self.query.get("container"))?;
        if str_at(pod.value(), &["spec", "nodeName"]).is_empty() {
            let mut response = response::text(Bytes::new());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        let started = started(&pod, container, options.previous)?;
        let mut text = options.select(&(server.config.logs)(&pod, container), started).into_bytes();
        let is_cut = options.limit.is_some_and(|limit| text.len() >= limit);
        text.truncate(options.limit.unwrap_or(usize::MAX));
        if !options.follow || options.previous || is_cut || !is_running(&pod, Some(container)) {
            return Ok(response::text(text));
        }
        let (container, shutdown) = (container.to_owned(), self.shutdown.clone());
        let ended = ended(Arc::clone(server), pod, Some(container));
        let end = async move {
            tokio::select! {
                () = ended => {}
                () = shutdown.cancelled() => {}
            }
        };
        let text = stream::once(ready(Ok::<_, Infallible>(Frame::data(Bytes::from(text)))));
        let frames = text.chain(stream::once(end).filter_map(|()| ready(None)));
        let (parts, _) = response::text(Bytes::new()).into_parts();
        Ok(ApiResponse::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
    }
}

/// Returns the time at which the container, or its previous run, started.
///
/// Upstream counterpart: `validateContainerLogStatus` of the kubelet.
fn started<'a>(pod: &'a Object, container: &str, previous: bool) -> Result<&'a str, ApiStatus> {
    let (name, status) = (pod.name(), status_of(pod, container).unwrap_or(&Value::Null));
    let last = at(status, &["lastState", "terminated"]);
    if previous {
        let missing = || {
            ApiStatus::bad_request(format!(
                "previous terminated container {container:?} in pod {name:?} not found"
            ))
        };
        return last.map(|last| str_at(last, &["startedAt"])).ok_or_else(missing);
    }
    let current = ["running", "terminated"].iter().find_map(|state| at(status, &["state", state]));
    match current.or(last) {
        Some(run) => Ok(str_at(run, &["startedAt"])),
        None if bool_at(status, &["started"]) => Ok(""),
        None => {
            let reason = match str_at(status, &["state", "waiting", "reason"]) {
                "" => "ContainerCreating",
                "ErrImagePull" => "image can't be pulled",
                "ImagePullBackOff" => "trying and failing to pull image",
                reason => reason,
            };
            Err(ApiStatus::bad_request(format!(
                "container {container:?} in pod {name:?} is waiting to start: {reason}"
            )))
        }
    }
}
