//! Answers.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::Value;

use crate::{ApiStatus, object::write_json};

/// The body of an answer: whole, or for a watch a stream that goes on.
pub type ApiBody = UnsyncBoxBody<Bytes, Infallible>;

/// An answer.
pub(super) type Answer = Response<ApiBody>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// `value` as JSON text.
pub(super) fn json_bytes(value: &Value) -> Bytes {
    let mut text = Vec::with_capacity(256);
    write_json(&mut text, value);
    text.push(b'\n');
    text.into()
}

/// An answer that is JSON already.
pub(super) fn json_text(code: StatusCode, text: Bytes) -> Answer {
    with_type(code, JSON, Full::new(text).boxed_unsync())
}

/// An answer.
pub(super) fn json(code: StatusCode, value: &Value) -> Answer {
    json_text(code, json_bytes(value))
}

/// An answer in plain words.
pub(super) fn text(words: impl Into<Bytes>) -> Answer {
    with_type(StatusCode::OK, TEXT, Full::new(words.into()).boxed_unsync())
}

/// A stream of JSON lines.
pub(super) fn stream(body: ApiBody) -> Answer {
    with_type(StatusCode::OK, JSON, body)
}

/// An answer that says no.
pub(super) fn failure(status: &ApiStatus) -> Answer {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = json(code, &status.to_value());
    // Clients retry a 429 only with the header.
    let seconds = status.details.as_ref().and_then(|details| details.retry_after_seconds);
    if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

/// Adds a Warning header for each of `warnings`.
pub(super) fn warn(answer: &mut Answer, warnings: &[String]) {
    for warning in warnings {
        let quoted: String = warning
            .chars()
            .filter(|c| !c.is_control())
            .flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c]))
            .collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
}

fn with_type(code: StatusCode, content_type: HeaderValue, body: ApiBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}
