//! The way of the requests of a client.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService};

use super::{
    pool::PooledBody,
    service::{Lane, Transport},
};
use crate::Body;

type LocalBody = UnsyncBoxBody<Bytes, BoxError>;

/// Connections of one purpose, or a service in this process. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Channel {
    Server(Arc<Transport>, Lane),
    InProcess(BoxCloneSyncService<Request<Body>, Response<LocalBody>, BoxError>),
}

impl Channel {
    /// Sends a request with a relative URI and returns the head of the answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request, which may take effect nevertheless.
    pub(crate) async fn send(&self, request: Box<Request<Body>>) -> Result<Response<ResponseBody>, BoxError> {
        // Boxed, because the futures are large.
        match self {
            Self::Server(transport, lane) => {
                Ok(Box::pin(transport.send(*lane, request)).await?.map(ResponseBody::Server))
            }
            Self::InProcess(service) => {
                // Other tasks run in between, as with a server in another process.
                tokio::task::yield_now().await;
                Ok(service.clone().oneshot(*request).await?.map(ResponseBody::InProcess))
            }
        }
    }
}

/// Body of an answer.
pub(crate) enum ResponseBody {
    Server(PooledBody),
    InProcess(LocalBody),
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Server(body) => Pin::new(body).poll_frame(cx).map_err(BoxError::from),
            Self::InProcess(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Server(body) => body.is_end_stream(),
            Self::InProcess(body) => body.is_end_stream(),
        }
    }
}
