use std::{error::Error as StdError, io};

use kcm_api::{ApiError, ErrorCause, Status};
use kube_client::Error;

/// Converts an error of a kube client.
///
/// An error of the transport may mean that the request has taken effect, unless the connection was refused.
pub fn api_error(error: Error) -> ApiError {
    match error {
        Error::Api(status) => {
            let converted = serde_json::to_value(&*status).and_then(serde_json::from_value::<Status>);
            converted.map_or_else(
                |_| ApiError::status(status.code, &status.reason, status.message.clone()),
                |status| ApiError::Status(Box::new(status)),
            )
        }
        Error::SerdeError(_) | Error::FromUtf8(_) => ApiError::Decode(ErrorCause::of(error)),
        Error::HttpError(_) | Error::BuildRequest(_) => ApiError::InvalidRequest(ErrorCause::of(error)),
        Error::Service(cause) if cause.is::<ApiError>() => cause
            .downcast()
            .map_or_else(|cause| ApiError::Transport(cause.to_string().into()), |error| *error),
        Error::Auth(_) => ApiError::NotSent(ErrorCause::of(error)),
        _ => match io_error(&error) {
            Some(io::ErrorKind::ConnectionRefused) => ApiError::NotSent(ErrorCause::of(error)),
            Some(io::ErrorKind::TimedOut) => ApiError::Timeout(error.to_string()),
            _ => ApiError::Transport(ErrorCause::of(error)),
        },
    }
}

/// Returns the kind of the I/O error that caused `error`.
fn io_error(error: &Error) -> Option<io::ErrorKind> {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use kube_core::Status as KubeStatus;
    use serde_json::json;

    use super::*;

    #[test]
    fn status_is_converted_with_its_details() {
        let status: KubeStatus = serde_json::from_value(json!({
            "status": "Failure", "message": "Too large resource version", "reason": "Timeout", "code": 504,
            "details": {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 2},
        }))
        .unwrap();
        let error = api_error(Error::Api(Box::new(status)));
        assert_eq!(error.to_string(), "Too large resource version");
        assert!(error.has_cause("ResourceVersionTooLarge"));
        assert_eq!(error.retry_after_seconds(), Some(2));
    }

    #[test]
    fn outcome_of_a_request_is_unknown_unless_the_connection_was_refused() {
        let may_have_taken_effect = |cause| {
            let error = api_error(Error::Service(Box::new(io::Error::from(cause))));
            assert_eq!(matches!(error, ApiError::Timeout(_)), cause == io::ErrorKind::TimedOut);
            error.may_have_taken_effect()
        };
        assert!(!may_have_taken_effect(io::ErrorKind::ConnectionRefused));
        assert!(may_have_taken_effect(io::ErrorKind::ConnectionReset));
        assert!(may_have_taken_effect(io::ErrorKind::TimedOut));
    }
}
