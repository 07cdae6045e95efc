//! The source of a reflector.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt};
use kcm_api::ApiError;
use kcm_informer::{
    ListOptions, ListSink, ListWatch, ListWatchError, ListWatchErrorKind, WatchOptions, WatchStream,
};

use crate::{
    api::{Api, ListParams},
    list,
    watch::{self, Bookmarks},
};

/// Lists and watches the objects that `params` selects.
#[derive(Debug)]
pub(crate) struct Collection<K> {
    pub(crate) api: Api<K>,
    pub(crate) params: ListParams,
}

#[async_trait]
impl<K: Send + Sync + 'static> ListWatch<K> for Collection<K> {
    async fn list_into(
        &self,
        options: &ListOptions,
        sink: &mut dyn ListSink<K>,
    ) -> Result<String, ListWatchError> {
        let list = list::list(&self.api, &self.params, options.resource_version.as_deref(), sink).await;
        list.map_err(list_watch_error)
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ListWatchError> {
        let events = watch::watch(&self.api, &self.params, options, Bookmarks::Allowed).await;
        Ok(events.map_err(list_watch_error)?.map_err(list_watch_error).boxed())
    }
}

/// Converts the error of a list or watch request to that of the informer.
fn list_watch_error(error: ApiError) -> ListWatchError {
    let retry_after = Duration::from_secs(error.retry_after_seconds().unwrap_or(0).into());
    ListWatchError::new(error_kind(&error), error).with_retry_after(retry_after)
}

fn error_kind(error: &ApiError) -> ListWatchErrorKind {
    match error {
        ApiError::NotSent(_) | ApiError::Transport(_) => ListWatchErrorKind::Connection,
        ApiError::Timeout(_) => ListWatchErrorKind::Timeout,
        _ if error.is_expired() => ListWatchErrorKind::Expired,
        _ if error.has_cause("ResourceVersionTooLarge") => ListWatchErrorKind::ResourceVersionTooLarge,
        _ if error.is_too_many_requests() => ListWatchErrorKind::TooManyRequests,
        _ if error.is_invalid() || matches!(error.code(), Some(400 | 405 | 406 | 415 | 501)) => {
            ListWatchErrorKind::Unsupported
        }
        ApiError::Status(_) | ApiError::InvalidRequest(_) | ApiError::Decode(_) | ApiError::NotLeading(_) => {
            ListWatchErrorKind::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::{ErrorCause, Status, StatusCause, StatusDetails};

    use super::*;

    fn too_large() -> ApiError {
        let cause = StatusCause { reason: "ResourceVersionTooLarge".to_owned(), ..StatusCause::default() };
        let details =
            StatusDetails { causes: vec![cause], retry_after_seconds: Some(1), ..StatusDetails::default() };
        ApiError::Status(Box::new(Status {
            code: 504,
            reason: "Timeout".to_owned(),
            details: Some(details),
            ..Status::default()
        }))
    }

    #[test]
    fn errors_have_the_kind_that_determines_the_next_request() {
        struct Case {
            errors: Vec<ApiError>,
            kind: ListWatchErrorKind,
        }
        let status = |code, reason| ApiError::status(code, reason, "no");
        let cases = [
            Case {
                errors: vec![status(410, "Expired"), status(410, "Gone"), status(410, "")],
                kind: ListWatchErrorKind::Expired,
            },
            Case { errors: vec![too_large()], kind: ListWatchErrorKind::ResourceVersionTooLarge },
            Case {
                errors: vec![status(429, "TooManyRequests"), status(429, "")],
                kind: ListWatchErrorKind::TooManyRequests,
            },
            Case {
                errors: vec![
                    status(422, "Invalid"),
                    status(422, ""),
                    status(400, "BadRequest"),
                    status(405, "MethodNotAllowed"),
                    status(406, "NotAcceptable"),
                    status(415, "UnsupportedMediaType"),
                    status(501, "NotImplemented"),
                ],
                kind: ListWatchErrorKind::Unsupported,
            },
            Case { errors: vec![ApiError::Timeout(String::new())], kind: ListWatchErrorKind::Timeout },
            Case {
                errors: vec![
                    ApiError::NotSent(ErrorCause::default()),
                    ApiError::Transport(ErrorCause::default()),
                ],
                kind: ListWatchErrorKind::Connection,
            },
            Case {
                errors: vec![
                    status(403, "Forbidden"),
                    status(500, "InternalError"),
                    status(504, "Timeout"),
                    ApiError::Decode(ErrorCause::default()),
                ],
                kind: ListWatchErrorKind::Other,
            },
        ];
        for Case { errors, kind } in cases {
            for error in errors {
                assert_eq!(list_watch_error(error.clone()).kind(), kind, "{error:?}");
            }
        }
    }

    #[test]
    fn delay_requested_by_the_server_is_kept() {
        assert_eq!(list_watch_error(too_large()).retry_after(), Duration::from_secs(1));
        let error = ApiError::status(429, "TooManyRequests", "no");
        assert_eq!(list_watch_error(error).retry_after(), Duration::ZERO);
    }
}
