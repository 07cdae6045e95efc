//! Client of a controller: rate limit, retries, timeouts.

use std::{
    fmt,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Limited};
use kcm_api::{ApiError, ErrorCause};
use kcm_clock::Clock;
use tower::BoxError;

use crate::{
    Body,
    authenticator::Authenticator,
    failure,
    limiter::{PriorityLevel, RateLimiter},
    metrics::{ClientMetrics, RequestInfo},
    permit::Permit,
    request::{ContentType, Idempotency, Request},
    retry::{self, FailureKind},
    throttle::ThrottleLog,
    transport::{Channel, ResponseBody},
    write_gate::{Closed, WriteGate},
};

/// Maximum length of an error response that is read.
const MAX_ERROR_BODY: usize = 1 << 20;

/// Client of the API server with a name and a rate limit. Cheap to clone; clones share the rate limit.
///
/// Created by a [`ClientFactory`](crate::ClientFactory). All requests except watches take a token from the client's
/// bucket, also when they are sent again.
///
/// Requests have the priority [`PriorityLevel::Rollout`] at the rate limit, unless the client has
/// [another](Self::with_priority_level).
///
/// Upstream counterpart: a clientset.
#[derive(Clone)]
pub struct ApiClient {
    parts: Arc<Parts>,
    priority_level: PriorityLevel,
    permit: Option<Arc<Permit>>,
}

/// Parts of an [`ApiClient`].
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) agent: HeaderValue,
    pub(crate) server: Arc<str>,
    pub(crate) requests: Channel,
    pub(crate) watches: Channel,
    pub(crate) rate_limiter: RateLimiter,
    pub(crate) throttle_log: Arc<ThrottleLog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) metrics: Arc<dyn ClientMetrics>,
    pub(crate) gate: WriteGate,
    pub(crate) retries: bool,
    pub(crate) content_type: ContentType,
    /// Authenticates the requests. `None` uses the credentials of the connections.
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
}

/// Reads the body of a successful response, of each attempt anew.
pub(crate) trait ReadBody: Send {
    type Output: Send;

    /// Takes the headers of the response, before its body is read.
    fn headers(&mut self, _headers: HeaderMap) {}

    /// Reads `body` and adds its length to `received`. An error is one of the connection.
    fn read(
        &mut self,
        body: ResponseBody,
        received: &mut usize,
    ) -> impl Future<Output = Result<Self::Output, BoxError>> + Send;
}

/// Reads the body as a whole.
struct Whole;

impl ReadBody for Whole {
    type Output = Bytes;

    async fn read(&mut self, body: ResponseBody, received: &mut usize) -> Result<Bytes, BoxError> {
        let body = body.collect().await?.to_bytes();
        *received += body.len();
        Ok(body)
    }
}

/// Reads the body as a whole, and keeps the headers.
#[derive(Default)]
struct WithHeaders(HeaderMap);

impl ReadBody for WithHeaders {
    type Output = Bytes;

    fn headers(&mut self, headers: HeaderMap) {
        self.0 = headers;
    }

    async fn read(&mut self, body: ResponseBody, received: &mut usize) -> Result<Bytes, BoxError> {
        Whole.read(body, received).await
    }
}

/// Failed attempt.
struct Failure {
    error: ApiError,
    kind: FailureKind,
}

impl ApiClient {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts: Arc::new(parts), priority_level: PriorityLevel::default(), permit: None }
    }

    /// Returns the client's name, such as `deployment-controller`.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Returns the address of the API server, such as `https://10.0.0.1:6443`.
    pub fn server(&self) -> &str {
        &self.parts.server
    }

    /// Returns the encoding of objects.
    pub fn content_type(&self) -> ContentType {
        self.parts.content_type
    }

    /// Returns the number of requests that the rate limit would not delay; `u32::MAX` without a rate limit.
    pub fn available_requests(&self) -> u32 {
        self.parts.rate_limiter.available()
    }

    /// Returns a client whose requests have another priority. It shares the rate limit.
    #[must_use]
    pub fn with_priority_level(&self, priority_level: PriorityLevel) -> Self {
        Self { priority_level, ..self.clone() }
    }

    /// Returns a client whose next request takes the token of `permit`. Further requests take their own.
    #[must_use]
    pub fn with_permit(&self, permit: Permit) -> Self {
        Self { permit: Some(Arc::new(permit)), ..self.clone() }
    }

    /// Waits until the rate limit permits a request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future returns the token.
    pub async fn acquire(&self) -> Permit {
        let waited = self.rate_limiter().acquire(self.priority_level).await;
        Permit::new(self, waited)
    }

    /// Returns a permit if the rate limit permits a request now.
    pub fn try_acquire(&self) -> Option<Permit> {
        self.rate_limiter().try_acquire(self.priority_level).then(|| Permit::new(self, Duration::ZERO))
    }

    /// Returns the number of requests that wait for the rate limit.
    pub fn waiting_requests(&self) -> usize {
        self.rate_limiter().waiting()
    }

    /// Returns `true` if the client has a rate limit.
    pub fn is_rate_limited(&self) -> bool {
        self.rate_limiter().is_limited()
    }

    pub(crate) fn rate_limiter(&self) -> &RateLimiter {
        &self.parts.rate_limiter
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.parts.clock
    }

    /// Sends `request` and returns the body of the response.
    ///
    /// Waits for the rate limit first. Retries as upstream, and additionally retries idempotent writes after a broken
    /// connection, see [`Api`](crate::Api#requests-that-are-sent-again). A request that is not idempotent is retried after
    /// 429 only.
    ///
    /// For requests that [`Api`](crate::Api) does not have.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use kcm_client::Request;
    ///
    /// # run(async |client| {
    /// let version: serde_json::Value = serde_json::from_slice(&client.send(&Request::get("/version")).await?)?;
    /// assert_eq!(version["major"], "1");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the API server or the transport. [`ApiError::Timeout`] if the client has a timeout and the response is
    /// not complete in time, which does not include the wait for the rate limit. [`ApiError::NotLeading`] for a write of a
    /// [gated](crate::ClientFactory::gated) client whose process does not lead: it is not sent, or its response is not
    /// awaited any longer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops waiting. A request in flight may take effect nevertheless.
    pub async fn send(&self, request: &Request) -> Result<Bytes, ApiError> {
        self.send_and_read(request, &mut Whole).await
    }

    /// Same as [`send`](Self::send), and also returns the headers of the response, such as `Date` and `Warning`. They are
    /// those of the last attempt.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use kcm_client::Request;
    ///
    /// # run(async |client| {
    /// let (headers, _) = client.send_with_headers(&Request::get("/version")).await?;
    /// assert_eq!(headers["content-type"], "application/json");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send). The headers of an error response are not returned.
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn send_with_headers(&self, request: &Request) -> Result<(HeaderMap, Bytes), ApiError> {
        let mut reader = WithHeaders::default();
        let body = self.send_and_read(request, &mut reader).await?;
        Ok((reader.0, body))
    }

    /// Same as [`send`](Self::send), for a response that is read while it arrives.
    pub(crate) async fn send_and_read<R: ReadBody>(
        &self,
        request: &Request,
        reader: &mut R,
    ) -> Result<R::Output, ApiError> {
        let start = self.parts.clock.monotonic();
        let mut sent = 0;
        let mut first_sent = None;
        let mut lost_attempt = false;
        let outcome = loop {
            self.throttle(request, sent + 1).await;
            sent += 1;
            let first_sent = *first_sent.get_or_insert_with(|| self.parts.clock.monotonic());
            let result = {
                let attempt = pin!(self.attempt(request, sent, reader));
                self.parts.gate.pass(&request.method, &*self.parts.clock, attempt).await
            };
            let failure = match result {
                Ok(Ok(body)) => break Ok(body),
                Ok(Err(failure)) => failure,
                Err(Closed) => break Err(ApiError::NotLeading(self.describe(request))),
            };
            let is_lost = request.idempotency() != Idempotency::Read && failure.error.may_have_taken_effect();
            if let Err(error) = self.wait_or_give_up(request, sent, first_sent, failure).await {
                // The last response does not show whether an earlier attempt is executed.
                break Err(if lost_attempt { error.after_lost_attempt() } else { error });
            }
            lost_attempt |= is_lost;
        };
        let took = self.parts.clock.monotonic().saturating_sub(start);
        self.parts.metrics.finished(self.request_info(request, sent), took);
        outcome
    }

    /// Checks that the API server is healthy (`/healthz`).
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// # run(async |client| {
    /// client.health().await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send).
    pub async fn health(&self) -> Result<(), ApiError> {
        self.send(&Request::get("/healthz")).await.map(drop)
    }

    /// Opens a watch. `timeout`, or that of the client if it is shorter, applies to the head of the response. The rate limit
    /// does not apply.
    pub(crate) async fn open(
        &self,
        request: &Request,
        timeout: Duration,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let timeout = self.parts.timeout.map_or(timeout, |own| own.min(timeout));
        let first_sent = self.parts.clock.monotonic();
        let mut sent = 0;
        loop {
            sent += 1;
            let result = {
                let within = pin!(async {
                    let answer = self.head(&self.parts.watches, request, sent).await?;
                    self.expect_success(request, sent, answer).await
                });
                self.in_time(request, Some(timeout), within).await
            };
            let failure = match result {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            self.wait_or_give_up(request, sent, first_sent, failure).await?;
        }
    }

    /// Returns method and URL of a request, without its query, for errors.
    pub(crate) fn describe(&self, request: &Request) -> String {
        format!("{} {}{}", request.method, self.parts.server, request.bare_path())
    }

    async fn throttle(&self, request: &Request, attempt: u32) {
        let permitted = self.permit.as_ref().and_then(|permit| permit.take());
        let waited = match permitted {
            Some(waited) => waited,
            None => self.rate_limiter().acquire(self.priority_level).await,
        };
        self.parts.metrics.throttled(self.request_info(request, attempt), waited);
        let url = || format!("{}{}", self.parts.server, request.bare_path());
        self.parts.throttle_log.delayed(waited, request.method.as_str(), url, &*self.parts.clock);
    }

    async fn attempt<R: ReadBody>(
        &self,
        request: &Request,
        attempt: u32,
        reader: &mut R,
    ) -> Result<R::Output, Failure> {
        let within = pin!(async {
            let answer = self.head(&self.parts.requests, request, attempt).await?;
            let answer = self.expect_success(request, attempt, answer).await?;
            let mut received = 0;
            let (head, body) = answer.into_parts();
            reader.headers(head.headers);
            let output = reader.read(body, &mut received).await;
            let output = output.map_err(|error| self.broken(request, error))?;
            self.parts.metrics.received(self.request_info(request, attempt), received);
            Ok(output)
        });
        self.in_time(request, self.parts.timeout, within).await
    }

    /// Awaits `what` until the timeout. It is pinned by the caller, because an argument takes its size twice.
    async fn in_time<T>(
        &self,
        request: &Request,
        timeout: Option<Duration>,
        what: Pin<&mut impl Future<Output = Result<T, Failure>>>,
    ) -> Result<T, Failure> {
        let Some(timeout) = timeout else { return what.await };
        tokio::select! {
            biased;
            outcome = what => outcome,
            () = self.parts.clock.sleep(timeout) => Err(Failure {
                error: ApiError::Timeout(self.describe(request)),
                kind: FailureKind::TimedOut,
            }),
        }
    }

    async fn head(
        &self,
        channel: &Channel,
        request: &Request,
        attempt: u32,
    ) -> Result<Response<ResponseBody>, Failure> {
        let mut wire = self.on_the_wire(request)?;
        let authorization = match &self.parts.authenticator {
            None => None,
            Some(authenticator) => {
                let authorization = authenticator.authorization().await;
                // Nothing was sent.
                let failure = |error| Failure { error, kind: FailureKind::NotConnected };
                Some((authenticator, authorization.map_err(failure)?))
            }
        };
        if let Some((_, header)) = &authorization {
            wire.headers_mut().insert(AUTHORIZATION, header.clone());
        }
        if self.parts.gate.applies_to(&request.method) {
            wire.extensions_mut().insert(self.parts.gate.clone());
        }
        let in_flight =
            InFlightRequest { client: self, request, attempt, start: self.parts.clock.monotonic() };
        self.parts.metrics.sent(self.request_info(request, attempt), request.body.len());
        let outcome = channel.send(wire).await;
        let code = outcome.as_ref().ok().map(Response::status);
        in_flight.end(code);
        if let (Some((authenticator, header)), Some(StatusCode::UNAUTHORIZED)) = (&authorization, code) {
            authenticator.refused(header).await;
        }
        outcome.map_err(|error| self.broken(request, error))
    }

    /// Boxed, because futures that pass it on contain it several times.
    fn on_the_wire(&self, request: &Request) -> Result<Box<http::Request<Body>>, Failure> {
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            .uri(&request.path)
            .header(ACCEPT, request.accept)
            .header(USER_AGENT, self.parts.agent.clone());
        if !request.body.is_empty() {
            builder = builder.header(CONTENT_TYPE, request.content_type);
        }
        builder.body(Body::from(request.body.clone())).map(Box::new).map_err(|error| Failure {
            error: ApiError::NotSent(ErrorCause::new(format!("{}: {error}", self.describe(request)), error)),
            kind: FailureKind::NotConnected,
        })
    }

    async fn expect_success(
        &self,
        request: &Request,
        attempt: u32,
        answer: Response<ResponseBody>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let code = answer.status();
        if code.is_success() {
            return Ok(answer);
        }
        let retry_after = retry::retry_after(answer.headers());
        // A truncated body only loses details.
        let body = Limited::new(answer.into_body(), MAX_ERROR_BODY).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        self.parts.metrics.received(self.request_info(request, attempt), body.len());
        let seconds = retry_after.map(|wait| wait.as_secs());
        let error = failure::error_response(code, &body, &self.describe(request), seconds);
        if error.is_access_denied() {
            self.parts.metrics.denied(self.request_info(request, attempt));
        }
        Err(Failure { error, kind: FailureKind::Refused { code, retry_after } })
    }

    fn broken(&self, request: &Request, error: BoxError) -> Failure {
        let error = failure::connection_error(&self.describe(request), error);
        let kind = match error {
            ApiError::Transport(_) => FailureKind::Broken,
            ApiError::Timeout(_) => FailureKind::TimedOut,
            _ => FailureKind::NotConnected,
        };
        Failure { error, kind }
    }

    /// Waits before the next attempt, or returns the error if there is none. `first_sent` is the time of the first
    /// attempt on the monotonic clock.
    async fn wait_or_give_up(
        &self,
        request: &Request,
        sent: u32,
        first_sent: Duration,
        failure: Failure,
    ) -> Result<(), ApiError> {
        let elapsed = self.parts.clock.monotonic().saturating_sub(first_sent);
        let wait = retry::wait_before_retry(request.idempotency(), sent, elapsed, failure.kind);
        let Some(wait) = wait.filter(|_| self.parts.retries) else {
            return Err(failure.error);
        };
        let code = match failure.kind {
            FailureKind::Refused { code, .. } => Some(code),
            _ => None,
        };
        self.parts.metrics.retried(self.request_info(request, sent), code.as_ref().map(StatusCode::as_u16));
        tracing::debug!(
            client = self.parts.name,
            method = %request.method,
            path = request.bare_path(),
            delay = ?wait,
            attempt = sent,
            err = %failure.error,
            "Sending the request again"
        );
        self.parts.clock.sleep(wait).await;
        Ok(())
    }

    fn request_info<'a>(&'a self, request: &'a Request, attempt: u32) -> RequestInfo<'a> {
        RequestInfo {
            client: &self.parts.name,
            server: &self.parts.server,
            method: &request.method,
            path: request.bare_path(),
            attempt,
            watch: request.is_watch(),
            priority_level: self.priority_level,
        }
    }
}

/// Request in flight. If its future is dropped, the metrics report it without a code.
struct InFlightRequest<'a> {
    client: &'a ApiClient,
    request: &'a Request,
    attempt: u32,
    start: Duration,
}

impl InFlightRequest<'_> {
    fn end(self, code: Option<StatusCode>) {
        self.record(code);
        std::mem::forget(self);
    }

    fn record(&self, code: Option<StatusCode>) {
        let Self { client, request, attempt, start } = *self;
        let took = client.parts.clock.monotonic().saturating_sub(start);
        let code = code.map(|code| code.as_u16());
        client.parts.metrics.answered(client.request_info(request, attempt), code, took);
        tracing::trace!(client = client.parts.name, method = %request.method, path = request.bare_path(), code, ?took, "Request");
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.record(None);
    }
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient")
            .field("name", &self.parts.name)
            .field("server", &self.parts.server)
            .finish_non_exhaustive()
    }
}
