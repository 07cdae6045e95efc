//! API server with scripted responses.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::{self, Debug, Display},
    future::pending,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use kcm_clock::{Clock, SimulatedClock, Timestamp};
use serde_json::{Value, json};
use tower::Service;

type ResponseBody = BoxBody<Bytes, Infallible>;
type Handler = Box<dyn FnMut(&RecordedRequest) -> FakeResponse + Send>;

/// API server in this process. It records the requests and responds as a function or a script determines.
///
/// Clones share the requests and the function.
#[derive(Clone)]
pub struct FakeApiServer {
    handler: Arc<Mutex<Handler>>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    clock: Arc<dyn Clock>,
}

impl FakeApiServer {
    /// Creates a server that sends the given responses in their order, and then 599. Its clock is a
    /// [`SimulatedClock`] at the Unix epoch.
    pub fn scripted(responses: impl IntoIterator<Item = FakeResponse>) -> Self {
        let mut responses: VecDeque<_> = responses.into_iter().collect();
        Self::new(move |_| responses.pop_front().unwrap_or_else(|| FakeResponse::new(599, "")))
    }

    /// Creates a server whose responses `handler` returns. Its clock is a [`SimulatedClock`] at the Unix epoch.
    pub fn new(handler: impl FnMut(&RecordedRequest) -> FakeResponse + Send + 'static) -> Self {
        Self::with_clock(Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH)), handler)
    }

    /// Creates a server with the given clock.
    pub fn with_clock(
        clock: Arc<dyn Clock>,
        handler: impl FnMut(&RecordedRequest) -> FakeResponse + Send + 'static,
    ) -> Self {
        Self { handler: Arc::new(Mutex::new(Box::new(handler))), requests: Arc::default(), clock }
    }

    /// Replaces the function that returns the responses.
    pub fn set_handler(&self, handler: impl FnMut(&RecordedRequest) -> FakeResponse + Send + 'static) {
        *self.handler.lock().unwrap() = Box::new(handler);
    }

    /// Clock of the requests' times and the responses' delays.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Requests so far, in the order in which they were received.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Requests so far, as text such as `GET /api/v1/pods?limit=500`.
    #[must_use]
    pub fn request_lines(&self) -> Vec<String> {
        self.requests().iter().map(ToString::to_string).collect()
    }

    /// The server as a service, for a client of services in this process.
    pub fn service<B>(
        &self,
    ) -> impl Service<Request<B>, Response = Response<ResponseBody>, Error = io::Error, Future: Send>
    + Clone
    + Send
    + 'static
    where
        B: Body<Data: Send, Error: Debug> + Send + 'static,
    {
        let this = self.clone();
        tower::service_fn(move |request| this.clone().respond(request))
    }

    async fn respond<B: Body<Error: Debug>>(self, request: Request<B>) -> io::Result<Response<ResponseBody>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let request = RecordedRequest {
            method: head.method,
            uri: head.uri.to_string(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
            at: self.clock.monotonic(),
        };
        self.requests.lock().unwrap().push(request.clone());
        let FakeResponse { code, headers, content, delay } = (self.handler.lock().unwrap())(&request);
        self.clock.sleep(delay).await;
        let body = match content {
            Content::Complete(body) => Full::from(body).boxed(),
            Content::Stream(chunks) => BoxBody::new(StreamBody::new(frames(chunks))),
            Content::Endless(chunks) => {
                BoxBody::new(StreamBody::new(frames(chunks).chain(stream::pending())))
            }
            Content::Pending => pending().await,
            Content::Reset => return Err(io::Error::other("connection reset by the script")),
        };
        let builder = Response::builder().status(code);
        let builder = headers.into_iter().fold(builder, |builder, (name, value)| builder.header(name, value));
        Ok(builder.body(body).unwrap())
    }
}

fn frames(chunks: Vec<Bytes>) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> {
    stream::iter(chunks.into_iter().map(|chunk| Ok(Frame::data(chunk))))
}

/// Request that a [`FakeApiServer`] received. Its text is the method and the URI.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub uri: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, if it is text.
    pub body: String,
    /// Time at which it was received, on the server's clock.
    pub at: Duration,
}

impl RecordedRequest {
    /// Path without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.uri.split('?').next().unwrap_or_default()
    }

    /// Body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// Value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Display for RecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.uri)
    }
}

/// Response of a [`FakeApiServer`].
#[derive(Debug, Clone)]
#[must_use]
pub struct FakeResponse {
    code: u16,
    headers: Vec<(&'static str, &'static str)>,
    content: Content,
    delay: Duration,
}

#[derive(Debug, Clone)]
enum Content {
    Complete(Bytes),
    Stream(Vec<Bytes>),
    Endless(Vec<Bytes>),
    Pending,
    Reset,
}

impl FakeResponse {
    fn with(code: u16, content: Content) -> Self {
        Self { code, headers: Vec::new(), content, delay: Duration::ZERO }
    }

    /// Response with a complete body.
    #[expect(clippy::needless_pass_by_value, reason = "callers pass literals and values alike")]
    pub fn new(code: u16, body: impl ToString) -> Self {
        Self::with(code, Content::Complete(body.to_string().into()))
    }

    /// Response 200 with a complete body.
    pub fn ok(body: impl ToString) -> Self {
        Self::new(200, body)
    }

    /// Failure with a `Status` object.
    pub fn failure(code: u16, reason: &str, message: &str) -> Self {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": reason, "message": message, "code": code,
        });
        Self::new(code, status)
    }

    /// Response with a complete body in protobuf.
    pub fn protobuf(code: u16, body: impl Into<Bytes>) -> Self {
        let response = Self::with(code, Content::Complete(body.into()));
        response.header("content-type", "application/vnd.kubernetes.protobuf")
    }

    /// Response 200 whose body arrives in chunks.
    pub fn stream(chunks: impl IntoIterator<Item = String>) -> Self {
        Self::with(200, Content::Stream(chunks.into_iter().map(Into::into).collect()))
    }

    /// Response 200 to a watch in protobuf. The body arrives in chunks.
    pub fn protobuf_stream(chunks: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let response = Self::with(200, Content::Stream(chunks.into_iter().map(Into::into).collect()));
        response.header("content-type", "application/vnd.kubernetes.protobuf;stream=watch")
    }

    /// Response 200 whose body arrives in chunks and does not end.
    pub fn endless(chunks: impl IntoIterator<Item = String>) -> Self {
        Self::with(200, Content::Endless(chunks.into_iter().map(Into::into).collect()))
    }

    /// No response; the request waits until the client cancels it.
    pub fn pending() -> Self {
        Self::with(0, Content::Pending)
    }

    /// No response; the connection breaks.
    pub fn reset() -> Self {
        Self::with(0, Content::Reset)
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sends the response `delay` after the request, on the server's clock.
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}
