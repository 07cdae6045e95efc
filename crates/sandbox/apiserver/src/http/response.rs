//! Responses.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::Value;

use crate::{ApiStatus, json::write_json, schema::ordered::Ordered};

/// Response body: complete, or a stream for a watch or a long list.
pub type ApiBody = UnsyncBoxBody<Bytes, Infallible>;

/// HTTP response.
pub type ApiResponse = Response<ApiBody>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Serializes `value` as a line of JSON, in the order of its kind.
pub fn json_bytes(value: &Value) -> Bytes {
    let mut text = Vec::with_capacity(256);
    write_json(&mut text, &Ordered::new(value));
    text.push(b'\n');
    text.into()
}

/// Appends an event of a watch as a line of JSON.
pub fn write_event(lines: &mut Vec<u8>, kind: &str, object: &Value) {
    lines.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    write_json(lines, &Ordered::new(object));
    lines.extend_from_slice(b"}\n");
}

/// Response with a serialized JSON body.
pub fn json_text(code: StatusCode, text: Bytes) -> ApiResponse {
    with_type(code, JSON, Full::new(text).boxed_unsync())
}

/// Response with a JSON body.
pub fn json(code: StatusCode, value: &Value) -> ApiResponse {
    json_text(code, json_bytes(value))
}

/// Response with a plain-text body.
pub fn text(words: impl Into<Bytes>) -> ApiResponse {
    with_type(StatusCode::OK, TEXT, Full::new(words.into()).boxed_unsync())
}

/// Response 404 to a path that is no part of the API.
pub fn page_not_found() -> ApiResponse {
    with_type(StatusCode::NOT_FOUND, TEXT, Full::from("404 page not found\n").boxed_unsync())
}

/// Response with a streamed JSON body.
pub fn stream(body: ApiBody) -> ApiResponse {
    with_type(StatusCode::OK, JSON, body)
}

/// Response with a failure status.
pub fn failure(status: &ApiStatus) -> ApiResponse {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, &status.to_value());
    // client-go retries a 429 only if it has this header.
    let seconds = status.details.as_ref().and_then(|details| details.retry_after_seconds);
    if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Adds a `Warning` header per warning.
pub fn warn(response: &mut ApiResponse, warnings: &[String]) {
    for warning in warnings {
        let quoted: String = warning
            .chars()
            .filter(|c| !c.is_control())
            .flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c]))
            .collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

fn with_type(code: StatusCode, content_type: HeaderValue, body: ApiBody) -> ApiResponse {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
