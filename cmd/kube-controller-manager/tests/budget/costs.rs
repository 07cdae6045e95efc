//! Requests of the manager, and the bytes of their bodies.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use kcm_apiserver::{ApiService, BrokenConnection};
use kcm_client::{Body, ClientMetrics, RequestInfo};
use parking_lot::Mutex;
use tower::Service;

use crate::scope::{Uncounted, UncountedFuture, uncounted, uncounted_future};

/// Requests of one kind, and the bytes of their bodies and of those of their responses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    pub requests: usize,
    pub sent: usize,
    pub received: usize,
}

/// Costs by method and resource.
pub type Costs = BTreeMap<String, Cost>;

/// Record of the costs.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Costs>);

impl Meter {
    fn add(&self, kind: impl FnOnce() -> String, add: impl FnOnce(&mut Cost)) {
        uncounted(|| add(self.0.lock().entry(kind()).or_default()));
    }

    pub fn take(&self) -> Costs {
        mem::take(&mut self.0.lock())
    }
}

impl ClientMetrics for Meter {
    fn sent(&self, request: RequestInfo<'_>, bytes: usize) {
        self.add(
            || kind(request),
            |cost| {
                cost.requests += 1;
                cost.sent += bytes;
            },
        );
    }

    fn received(&self, request: RequestInfo<'_>, bytes: usize) {
        self.add(|| kind(request), |cost| cost.received += bytes);
    }
}

/// Method and resource, such as `PUT deployments/status`.
fn kind(request: RequestInfo<'_>) -> String {
    if request.watch {
        return watch_kind(request.path);
    }
    let mut path = request.path.split('/').skip_while(|part| *part != "namespaces").skip(2);
    let (resource, subresource) = (path.next().unwrap_or("list"), path.nth(1));
    let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
    format!("{} {resource}{subresource}", request.method)
}

fn watch_kind(path: &str) -> String {
    format!("WATCH {}", path.rsplit('/').next().unwrap_or_default())
}

/// Connection to the API server that counts the bytes of watches, which do not end.
#[derive(Clone)]
pub struct Connection {
    pub server: ApiService,
    pub meter: Arc<Meter>,
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Uncounted<UnsyncBoxBody<Bytes, Infallible>>>;
    type Error = BrokenConnection;
    type Future = UncountedFuture<Result<Self::Response, BrokenConnection>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BrokenConnection>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { mut server, meter } = self.clone();
        uncounted_future(async move {
            let uri = request.uri();
            let is_watch = uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
            let kind = is_watch.then(|| watch_kind(uri.path()));
            let response = server.call(request).await?;
            Ok(response.map(|body| match kind {
                None => Uncounted(body),
                Some(kind) => Uncounted(
                    body.map_frame(move |frame| {
                        let bytes = frame.data_ref().map_or(0, Bytes::len);
                        meter.0.lock().entry(kind.clone()).or_default().received += bytes;
                        frame
                    })
                    .boxed_unsync(),
                ),
            }))
        })
    }
}
