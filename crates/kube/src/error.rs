use std::{error::Error as StdError, io, time::Duration};

use kcm_api::{ApiError, Status};
use kcm_informer::{ListWatchError, ListWatchErrorKind};
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
        Error::SerdeError(_) | Error::FromUtf8(_) => ApiError::Decode(error.to_string()),
        Error::HttpError(_) | Error::BuildRequest(_) => ApiError::InvalidRequest(error.to_string()),
        Error::Service(cause) if cause.is::<ApiError>() => {
            cause.downcast().map_or_else(|cause| ApiError::Transport(cause.to_string()), |error| *error)
        }
        Error::Auth(_) => ApiError::NotSent(error.to_string()),
        _ => match io_error(&error) {
            Some(io::ErrorKind::ConnectionRefused) => ApiError::NotSent(error.to_string()),
            Some(io::ErrorKind::TimedOut) => ApiError::Timeout(error.to_string()),
            _ => ApiError::Transport(error.to_string()),
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

/// Converts the error of a list or watch request.
pub(crate) fn list_watch_error(error: ApiError) -> ListWatchError {
    let kind = match &error {
        ApiError::NotSent(_) | ApiError::Transport(_) => ListWatchErrorKind::Connection,
        ApiError::Timeout(_) => ListWatchErrorKind::Timeout,
        _ if error.is_expired() => ListWatchErrorKind::Expired,
        _ if error.has_cause("ResourceVersionTooLarge") => ListWatchErrorKind::ResourceVersionTooLarge,
        _ if error.is_too_many_requests() => ListWatchErrorKind::TooManyRequests,
        _ if matches!(error.code(), Some(400 | 405 | 406 | 415 | 422 | 501)) => {
            ListWatchErrorKind::Unsupported
        }
        _ => ListWatchErrorKind::Other,
    };
    let retry_after = Duration::from_secs(error.retry_after_seconds().unwrap_or(0).into());
    ListWatchError::new(kind, error).with_retry_after(retry_after)
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
        let error = list_watch_error(error);
        assert_eq!(error.kind(), ListWatchErrorKind::ResourceVersionTooLarge);
        assert_eq!(error.retry_after(), Duration::from_secs(2));
    }

    #[test]
    fn outcome_of_a_request_is_unknown_unless_the_connection_was_refused() {
        struct Case {
            cause: io::ErrorKind,
            may_have_taken_effect: bool,
            kind: ListWatchErrorKind,
        }
        let cases = [
            Case {
                cause: io::ErrorKind::ConnectionRefused,
                may_have_taken_effect: false,
                kind: ListWatchErrorKind::Connection,
            },
            Case {
                cause: io::ErrorKind::ConnectionReset,
                may_have_taken_effect: true,
                kind: ListWatchErrorKind::Connection,
            },
            Case {
                cause: io::ErrorKind::TimedOut,
                may_have_taken_effect: true,
                kind: ListWatchErrorKind::Timeout,
            },
        ];
        for Case { cause, may_have_taken_effect, kind } in cases {
            let error = api_error(Error::Service(Box::new(io::Error::from(cause))));
            assert_eq!(error.may_have_taken_effect(), may_have_taken_effect, "{cause:?}");
            assert_eq!(list_watch_error(error).kind(), kind, "{cause:?}");
        }
    }
}
