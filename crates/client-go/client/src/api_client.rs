//! Sending requests.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Limited};
use kcm_api::ApiError;
use kcm_clock::Clock;
use kube_client::{Client, client::Body};

use crate::{
    failure,
    limiter::TokenBucket,
    metrics::{Call, ClientMetrics},
    request::{JSON, Request},
    retry::{self, Ending},
    service_account::ServiceAccount,
    throttle::ThrottleLog,
    write_gate::{Closed, WriteGate},
};

/// More than this of a refusal is not read.
const REFUSAL_LIMIT: usize = 1 << 20;

/// One controller's way to the API server: its name, its rate limit. Cheap to clone.
///
/// Made by a [`ClientFactory`](crate::ClientFactory). All requests but watches take a token from the client's
/// bucket, those that are sent again too.
///
/// Upstream counterpart: a clientset.
#[derive(Clone)]
pub struct ApiClient(Arc<Parts>);

/// What an [`ApiClient`] is made of.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) agent: HeaderValue,
    pub(crate) server: Arc<str>,
    pub(crate) requests: Client,
    pub(crate) watches: Client,
    pub(crate) bucket: TokenBucket,
    pub(crate) throttle_log: Arc<ThrottleLog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeout: Duration,
    pub(crate) metrics: Arc<dyn ClientMetrics>,
    pub(crate) gate: WriteGate,
    pub(crate) repeats: bool,
    /// As whom it asks, if not as the connections say.
    pub(crate) account: Option<Arc<ServiceAccount>>,
}

/// What is wrong, and how it came to be.
struct Failure {
    error: ApiError,
    ending: Ending,
}

impl ApiClient {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// The client's name, such as `deployment-controller`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Where requests go, such as `https://10.0.0.1:6443`.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Sends `request` and answers with the body of the answer.
    ///
    /// Waits for the rate limit first. Repeats a request where upstream does, and a [create with a
    /// name](Request::create) after a broken connection. A request that is not idempotent is repeated after 429 only.
    ///
    /// # Errors
    ///
    /// What the server or the transport says. [`ApiError::Timeout`] when the whole answer was not there in
    /// time; waiting for the rate limit does not count. [`ApiError::NotLeading`] for a write of a
    /// [gated](crate::ClientFactory::gated) client whose process does not lead: such a one is not sent, and if it
    /// was sent while the process led, its answer is not waited for any longer than that.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops waiting; a request that is under way may take effect all the same.
    pub async fn send(&self, request: &Request) -> Result<Bytes, ApiError> {
        let start = self.0.clock.monotonic();
        let mut sent = 0;
        let mut first_sent = None;
        let outcome = loop {
            self.throttle(request, sent + 1).await;
            sent += 1;
            let first_sent = *first_sent.get_or_insert_with(|| self.0.clock.monotonic());
            let attempt = self.0.gate.pass(&request.method, &*self.0.clock, self.attempt(request, sent));
            let failure = match attempt.await {
                Ok(Ok(body)) => break Ok(body),
                Ok(Err(failure)) => failure,
                Err(Closed) => break Err(ApiError::NotLeading(self.describe(request))),
            };
            if let Err(error) = self.wait_or_give_up(request, sent, first_sent, failure).await {
                break Err(error);
            }
        };
        let took = self.0.clock.monotonic().saturating_sub(start);
        self.0.metrics.finished(self.call(request, sent), took);
        outcome
    }

    /// Whether the API server says that it is well.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn health(&self) -> Result<(), ApiError> {
        self.send(&Request::get("/healthz")).await.map(drop)
    }

    /// Opens a stream at `request`. The time-out is for the head of the answer. No token is taken.
    pub(crate) async fn open(&self, request: &Request) -> Result<Response<Body>, ApiError> {
        let first_sent = self.0.clock.monotonic();
        let mut sent = 0;
        loop {
            sent += 1;
            let within = async {
                let answer = self.head(&self.0.watches, request, sent).await?;
                self.expect_success(request, sent, answer).await
            };
            let failure = match self.in_time(request, within).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            self.wait_or_give_up(request, sent, first_sent, failure).await?;
        }
    }

    /// What a request to `path` is called in errors.
    pub(crate) fn describe(&self, request: &Request) -> String {
        format!("{} {}{}", request.method, self.0.server, request.bare_path())
    }

    async fn throttle(&self, request: &Request, attempt: u32) {
        let waited = self.0.bucket.acquire().await;
        self.0.metrics.throttled(self.call(request, attempt), waited);
        let url = || format!("{}{}", self.0.server, request.bare_path());
        self.0.throttle_log.delayed(waited, request.method.as_str(), url, &*self.0.clock);
    }

    async fn attempt(&self, request: &Request, attempt: u32) -> Result<Bytes, Failure> {
        let within = async {
            let answer = self.head(&self.0.requests, request, attempt).await?;
            let answer = self.expect_success(request, attempt, answer).await?;
            match answer.into_body().collect().await {
                Ok(body) => {
                    let body = body.to_bytes();
                    self.0.metrics.received(self.call(request, attempt), body.len());
                    Ok(body)
                }
                Err(error) => Err(self.broken(request, &error)),
            }
        };
        self.in_time(request, within).await
    }

    async fn in_time<T>(
        &self,
        request: &Request,
        what: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            outcome = what => outcome,
            () = self.0.clock.sleep(self.0.timeout) => Err(Failure {
                error: ApiError::Timeout(self.describe(request)),
                ending: Ending::TimedOut,
            }),
        }
    }

    async fn head(
        &self,
        client: &Client,
        request: &Request,
        attempt: u32,
    ) -> Result<Response<Body>, Failure> {
        let mut wire = self.on_the_wire(request)?;
        let authorization = match &self.0.account {
            None => None,
            Some(account) => {
                let authorization = account.authorization().await;
                // Nothing was sent.
                let failure = |error| Failure { error, ending: Ending::NotConnected };
                Some((account, authorization.map_err(failure)?))
            }
        };
        if let Some((_, header)) = &authorization {
            wire.headers_mut().insert(AUTHORIZATION, header.clone());
        }
        if self.0.gate.applies_to(&request.method) {
            wire.extensions_mut().insert(self.0.gate.clone());
        }
        let waiting = Waiting { client: self, request, attempt, start: self.0.clock.monotonic() };
        self.0.metrics.sent(self.call(request, attempt), request.body.len());
        let outcome = client.send(wire).await;
        let code = outcome.as_ref().ok().map(Response::status);
        waiting.over(code);
        if let (Some((account, header)), Some(StatusCode::UNAUTHORIZED)) = (&authorization, code) {
            account.refused(header).await;
        }
        outcome.map_err(|error| self.broken(request, &error))
    }

    fn on_the_wire(&self, request: &Request) -> Result<http::Request<Body>, Failure> {
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            .uri(&request.path)
            .header(ACCEPT, JSON)
            .header(USER_AGENT, self.0.agent.clone());
        if !request.body.is_empty() {
            builder = builder.header(CONTENT_TYPE, request.content_type);
        }
        builder.body(Body::from(request.body.clone())).map_err(|error| Failure {
            error: ApiError::NotSent(format!("{}: {error}", self.describe(request))),
            ending: Ending::NotConnected,
        })
    }

    async fn expect_success(
        &self,
        request: &Request,
        attempt: u32,
        answer: Response<Body>,
    ) -> Result<Response<Body>, Failure> {
        let code = answer.status();
        if code.is_success() {
            return Ok(answer);
        }
        let retry_after = retry::retry_after(answer.headers());
        // What is missing of an explanation changes nothing about the refusal.
        let body = Limited::new(answer.into_body(), REFUSAL_LIMIT).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        self.0.metrics.received(self.call(request, attempt), body.len());
        let seconds = retry_after.map(|wait| wait.as_secs());
        let error = failure::refusal(code, &body, &self.describe(request), seconds);
        if error.is_access_denied() {
            self.0.metrics.denied(self.call(request, attempt));
        }
        Err(Failure { error, ending: Ending::Refused { code, retry_after } })
    }

    fn broken(&self, request: &Request, error: &kube_client::Error) -> Failure {
        let what = format!("{}: {}", self.describe(request), failure::describe(error));
        if failure::is_not_sent(error) {
            Failure { error: ApiError::NotSent(what), ending: Ending::NotConnected }
        } else {
            Failure { error: ApiError::Transport(what), ending: Ending::Broken }
        }
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
        let elapsed = self.0.clock.monotonic().saturating_sub(first_sent);
        let wait = retry::wait_before_retry(request.repetition(), sent, elapsed, failure.ending);
        let Some(wait) = wait.filter(|_| self.0.repeats) else {
            return Err(failure.error);
        };
        let code = match failure.ending {
            Ending::Refused { code, .. } => Some(code),
            _ => None,
        };
        self.0.metrics.retried(self.call(request, sent), code.as_ref().map(StatusCode::as_u16));
        tracing::debug!(
            client = self.0.name,
            method = %request.method,
            path = request.bare_path(),
            delay = ?wait,
            attempt = sent,
            err = %failure.error,
            "Sending the request again"
        );
        self.0.clock.sleep(wait).await;
        Ok(())
    }

    fn call<'a>(&'a self, request: &'a Request, attempt: u32) -> Call<'a> {
        Call {
            client: &self.0.name,
            server: &self.0.server,
            method: &request.method,
            path: request.bare_path(),
            attempt,
            watch: request.is_watch(),
        }
    }
}

/// A request that is under way. Whoever gives up waiting for it drops this, and the observer is told of that, too.
struct Waiting<'a> {
    client: &'a ApiClient,
    request: &'a Request,
    attempt: u32,
    start: Duration,
}

impl Waiting<'_> {
    fn over(self, code: Option<StatusCode>) {
        self.tell(code);
        std::mem::forget(self);
    }

    fn tell(&self, code: Option<StatusCode>) {
        let Self { client, request, attempt, start } = *self;
        let took = client.0.clock.monotonic().saturating_sub(start);
        let code = code.map(|code| code.as_u16());
        client.0.metrics.answered(client.call(request, attempt), code, took);
        tracing::trace!(client = client.0.name, method = %request.method, path = request.bare_path(), code, ?took, "Request");
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.tell(None);
    }
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient")
            .field("name", &self.0.name)
            .field("server", &self.0.server)
            .finish_non_exhaustive()
    }
}
