//! Responses in protobuf.
//!
//! Responses are made in JSON and converted at the end, so that this is the only place that distinguishes encodings.

use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::{media, response::ApiResponse, route::Target};
use crate::protobuf::{self, Message};

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
const WATCH: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");

/// `true` if `accept` prefers protobuf, and objects of the target can be encoded.
pub(super) fn is_requested(accept: &str, target: &Target) -> bool {
    media::prefers_protobuf(accept)
        && target.served_version.is_none()
        && protobuf::is_encodable(target.kind.api_version(), target.kind.name())
}

/// Returns the accepted media types with JSON in place of protobuf.
pub(super) fn as_json(accept: &str) -> String {
    accept.replace("application/vnd.kubernetes.protobuf", "application/json")
}

/// Converts a response from JSON. A response that cannot be encoded remains as it is.
pub(super) async fn convert(response: ApiResponse, is_watch: bool) -> ApiResponse {
    let (mut parts, body) = response.into_parts();
    if is_watch && parts.status.is_success() {
        parts.headers.insert(CONTENT_TYPE, WATCH);
        let frames = body.map_frame(|frame| frame.map_data(|lines| frames(&lines)));
        return ApiResponse::from_parts(parts, frames.boxed_unsync());
    }
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes);
    let body = match protobuf::encode_text(&body).await {
        Some(encoded) => {
            parts.headers.insert(CONTENT_TYPE, PROTOBUF);
            Bytes::from(encoded)
        }
        None => body,
    };
    ApiResponse::from_parts(parts, Full::new(body).boxed_unsync())
}

/// Converts complete lines to frames.
fn frames(lines: &[u8]) -> Bytes {
    let mut frames = Vec::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
        let type_ = event["type"].as_str().unwrap_or_default();
        let object = protobuf::encode(&event["object"]).unwrap_or_default();
        let event = Message::default().bytes(1, type_).bytes(2, Message::default().bytes(1, object));
        let event = event.into_vec();
        frames.extend_from_slice(&u32::try_from(event.len()).unwrap_or(u32::MAX).to_be_bytes());
        frames.extend_from_slice(&event);
    }
    frames.into()
}
