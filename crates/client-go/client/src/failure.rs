//! Conversion of failures to [`ApiError`].

use std::error::Error;

use http::StatusCode;
use kcm_api::{ApiError, ErrorCause, Status, StatusDetails, error::reason, protobuf};
use tower::BoxError;

use crate::{
    causes::{self, causes},
    transport::{ClientConfigError, SendError},
};

/// Returns the error of a response with `code` and `body`.
///
/// Upstream counterpart: `errors.FromObject` and `NewGenericServerResponse`.
pub(crate) fn error_response(
    code: StatusCode,
    body: &[u8],
    what: &str,
    retry_after: Option<u64>,
) -> ApiError {
    let mut status = decode_status(body)
        .filter(|status| status.status == "Failure")
        .unwrap_or_else(|| generic(code, what));
    if status.code == 0 {
        status.code = code.as_u16();
    }
    if let Some(seconds) = retry_after {
        let details = status.details.get_or_insert_default();
        details.retry_after_seconds.get_or_insert(u32::try_from(seconds).unwrap_or(u32::MAX));
    }
    ApiError::Status(Box::new(status))
}

fn decode_status(body: &[u8]) -> Option<Status> {
    if protobuf::is_enveloped(body) {
        return protobuf::open_envelope(body).and_then(Status::decode_protobuf).ok();
    }
    serde_json::from_slice(body).ok()
}

/// Returns a [`Status`] for a response without one, for example from a proxy. It does not contain the body, which may
/// be long and of any content.
fn generic(code: StatusCode, what: &str) -> Status {
    let reason = match code.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => reason::FORBIDDEN,
        404 => reason::NOT_FOUND,
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => reason::CONFLICT,
        410 => reason::GONE,
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => reason::INVALID,
        429 => reason::TOO_MANY_REQUESTS,
        503 => "ServiceUnavailable",
        504 => reason::TIMEOUT,
        500.. => "InternalError",
        _ => "",
    };
    Status {
        status: "Failure".to_owned(),
        message: format!("{what}: the server answered {code} without an explanation"),
        reason: reason.to_owned(),
        details: Some(StatusDetails::default()),
        code: code.as_u16(),
        follows_lost_attempt: false,
    }
}

/// Returns the error of the request `what` that got no response, or a part of one.
pub(crate) fn connection_error(what: &str, error: BoxError) -> ApiError {
    match error.downcast() {
        // A service in this process has the error.
        Ok(error) => *error,
        Err(error) => {
            let text = format!("{what}: {}", causes::describe(&*error));
            let kind = if is_not_sent(&*error) { ApiError::NotSent } else { ApiError::Transport };
            kind(ErrorCause::new(text, error))
        }
    }
}

/// `true` if no part of the request was sent.
fn is_not_sent(error: &(dyn Error + 'static)) -> bool {
    // Without credentials, nothing is sent.
    causes(error).any(|cause| {
        cause.is::<ClientConfigError>() || cause.downcast_ref().is_some_and(SendError::is_not_sent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_a_status() {
        let body = br#"{"kind":"Status","status":"Failure","message":"m","reason":"Conflict","code":409}"#;
        let error = error_response(StatusCode::CONFLICT, body, "PUT /x", None);
        assert!(error.is_conflict());
        assert_eq!(error.to_string(), "m");
    }

    #[test]
    fn body_is_a_status_in_protobuf() {
        let body = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x16\x12\x07Failure\x1a\x01m\x22\x08Conflict";
        let error = error_response(StatusCode::CONFLICT, body, "PUT /x", None);
        assert!(error.is_conflict());
        assert_eq!(error.to_string(), "m");
        let error = error_response(StatusCode::CONFLICT, &body[..body.len() - 1], "PUT /x", None);
        assert_eq!(error.to_string(), "PUT /x: the server answered 409 Conflict without an explanation");
    }

    #[test]
    fn body_is_not_a_status() {
        let error = error_response(StatusCode::GONE, b"<html>secret</html>", "GET /x", None);
        assert!(error.is_expired());
        assert_eq!(error.to_string(), "GET /x: the server answered 410 Gone without an explanation");
    }

    #[test]
    fn retry_after_header() {
        let error = error_response(StatusCode::TOO_MANY_REQUESTS, b"", "GET /x", Some(3));
        assert!(error.is_too_many_requests());
        assert_eq!(error.retry_after_seconds(), Some(3));
    }
}
