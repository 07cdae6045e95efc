//! The network between a process and the API server, which applies faults to requests.

mod watch_stream;

use std::{
    fmt::{self, Display},
    future::pending,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, header, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kcm_apiserver::{ApiBody, ApiServer, ApiService, WatchCacheLag};
use kcm_clock::Clock;
use serde_json::json;
use tokio::sync::oneshot;
use tower::{BoxError, Service};

use self::watch_stream::{WatchEnd, WatchStream};
use super::{
    choices::Choices,
    faults::{FaultEffect, Incident, RequestFault, RequestSelector},
    host::{PendingRequest, Process},
    managers::ManagerGroup,
    objects::ObjectVersion,
    observer::{Observer, RequestOrigin},
    step::{is_watch, request_step},
    surprises::{Alternative, StepKind},
};

/// Body of a response as it reaches a process.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// Result of a request, before it is delivered.
type RequestResult = Result<Response<ApiBody>, BoxError>;

/// Network that all processes share.
pub struct Network {
    pub clock: Arc<dyn Clock>,
    /// API servers, and the lags of their watch caches.
    front_ends: Vec<(ApiService, WatchCacheLag)>,
    pub observer: Arc<dyn Observer>,
    pub(super) choices: Arc<Choices>,
    faults: Vec<TrackedFault>,
    is_healed: AtomicBool,
}

/// A fault, and the record of its requests.
struct TrackedFault {
    fault: RequestFault<Arc<dyn RequestSelector>>,
    /// `true` if there was a request that it could affect, even if it was not drawn.
    had_request: AtomicBool,
}

/// Configuration of a [`Network`].
#[derive(Debug)]
pub struct NetworkSettings {
    /// API servers over one store.
    pub front_ends: usize,
    /// `true` if their watch caches may lag.
    pub lags: bool,
    pub faults: Vec<RequestFault<Arc<dyn RequestSelector>>>,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Network {
    pub fn new(
        clock: Arc<dyn Clock>,
        server: &Arc<ApiServer>,
        observer: Arc<dyn Observer>,
        choices: &Arc<Choices>,
        settings: NetworkSettings,
    ) -> Self {
        let NetworkSettings { front_ends, lags, faults } = settings;
        let front_end = |_| {
            let lag = WatchCacheLag::new(Duration::ZERO);
            (if lags { server.service_lagging(lag.clone()) } else { server.service() }, lag)
        };
        let front_ends = (0..front_ends.max(1)).map(front_end).collect();
        let faults =
            faults.into_iter().map(|fault| TrackedFault { fault, had_request: AtomicBool::new(false) });
        Self {
            clock,
            front_ends,
            observer,
            choices: Arc::clone(choices),
            faults: faults.collect(),
            is_healed: AtomicBool::new(false),
        }
    }

    pub fn set_lag(&self, front_end: usize, lag: Duration) {
        if let Some((_, of_front_end)) = self.front_ends.get(front_end) {
            of_front_end.set(lag);
        }
    }

    /// Draws the front end that serves a request.
    fn front_end(&self, process: &Process) -> Option<&(ApiService, WatchCacheLag)> {
        self.front_ends.get(process.random.index(self.front_ends.len()))
    }

    /// Ends all faults.
    pub fn end_faults(&self) {
        self.is_healed.store(true, Ordering::Relaxed);
        for (_, lag) in &self.front_ends {
            lag.set(Duration::ZERO);
        }
    }

    /// Positions of the faults that could affect no request.
    pub fn faults_without_requests(&self) -> Vec<usize> {
        let without =
            |(at, fault): (usize, &TrackedFault)| (!fault.had_request.load(Ordering::Relaxed)).then_some(at);
        self.faults.iter().enumerate().filter_map(without).collect()
    }

    fn draw(&self, process: &Process, request: &Parts, is_watch: bool) -> Option<FaultEffect> {
        if self.is_healed.load(Ordering::Relaxed) {
            return None;
        }
        let now = u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        let is_write = !request.method.is_safe();
        let mut drawn = None;
        for TrackedFault { fault, had_request } in &self.faults {
            let is_due = fault.effect.applies(is_watch, is_write)
                && fault.per_mille > 0
                && (fault.from..fault.until).contains(&now)
                && fault.requests.selects(request, is_watch);
            if is_due {
                had_request.store(true, Ordering::Relaxed);
                if drawn.is_none() && process.random.below(1000) < fault.per_mille.into() {
                    drawn = Some(fault.effect);
                }
            }
        }
        let effect = drawn?;
        if !is_watch {
            self.observer.note(&format!("{process:?} {} {}: {effect:?}", request.method, request.uri.path()));
        }
        Some(effect)
    }

    /// Returns the outcome of a step if it is not the default.
    pub fn choose(&self, step: &str, kind: StepKind) -> Option<Alternative> {
        if !self.choices.is_on() {
            return None;
        }
        self.observer.catch_up();
        let becomes = self.choices.choose(step, kind)?;
        self.observer.note(&format!("{step} becomes {becomes:?}"));
        Some(becomes)
    }

    /// `true` if a timer that is due expires later.
    pub(crate) fn is_late(&self, process: &Process, timer: &str) -> bool {
        self.choices.is_on()
            && self.choose(&format!("m{} timer {timer}", process.manager), StepKind::Timer).is_some()
    }

    async fn execute(&self, sender: RequestOrigin, request: Request<Full<Bytes>>) -> RequestResult {
        let Some((service, _)) = self.front_end(&sender.process) else { return Err(broken()) };
        // The server executes a write without waiting, so no other request comes between.
        if request.method().is_safe() {
            self.observer.begin_read(&sender, request.uri().path());
            return self.read(service, request).await;
        }
        self.observer.begin_write(sender);
        let response = service.clone().call(request).await;
        self.observer.finish_write();
        Ok(response?)
    }

    /// Reads from a front end. The cache of that may have to catch up first.
    async fn read(&self, service: &ApiService, request: Request<Full<Bytes>>) -> RequestResult {
        Ok(service.clone().call(request).await?)
    }
}

/// Connection of one process to the API server.
#[derive(Debug, Clone)]
pub struct ProcessConnection {
    #[doc(hidden)]
    pub process: Arc<Process>,
    #[doc(hidden)]
    pub network: Arc<Network>,
    #[doc(hidden)]
    pub managers_of_cluster: Arc<ManagerGroup>,
}

impl<B> Service<Request<B>> for ProcessConnection
where
    B: Body<Data: Send, Error: Display> + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let link = self.clone();
        Box::pin(link.send(request))
    }
}

impl ProcessConnection {
    async fn send<B: Body<Error: Display>>(
        self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let Self { process, network, .. } = &self;
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|error| BoxError::from(error.to_string()))?.to_bytes();
        process.running().await;
        network.observer.requested(process, &parts, &body);
        let is_watch = is_watch(&parts);
        let is_write = !parts.method.is_safe();
        let mut effect = network.draw(process, &parts, is_watch);
        let step = request_step(process.manager, &parts.method, parts.uri.path());
        let mut surprise = None;
        if let Some((step, kind)) = step.as_ref().filter(|_| !is_watch && effect.is_none()) {
            effect = network.choose(step, *kind).and_then(Alternative::effect);
            surprise = effect.map(|_| network.choices.last_surprise());
        }
        if let Some((step, kind)) = &step {
            network.choices.trace_request(process, *kind, step, parts.uri.path());
        }
        let trace_response = |result: &str| {
            if let Some((_, kind)) = &step {
                network.choices.trace_response(process, *kind, result);
            }
        };
        let _pending = step.as_ref().filter(|_| !is_watch).map(|_| PendingRequest::new(process));
        match effect.take_if(|effect| matches!(effect, FaultEffect::Stop { .. } | FaultEffect::Cut { .. })) {
            Some(FaultEffect::Stop { time }) => {
                let time = self.duration(time / 2, time);
                self.managers_of_cluster.stop(process, time);
                process.running().await;
            }
            Some(FaultEffect::Cut { time }) => {
                let incident = Incident::Cut { manager: process.manager, time };
                self.managers_of_cluster.apply_incident(&incident);
            }
            _ => {}
        }
        if is_write {
            network.observer.sent(process, &parts.method, parts.uri.path());
        }
        let mut sender = RequestOrigin {
            process: Arc::clone(process),
            basis: process.basis(network.clock.now()),
            is_abandoned: false,
        };
        process.host.connected().await;
        if is_watch {
            if matches!(effect, Some(FaultEffect::NoBookmarks)) {
                let query = parts.uri.query().unwrap_or_default();
                if query.contains("sendInitialEvents") {
                    return Ok(refusal(422, "Invalid", "sendInitialEvents is forbidden for watch", None));
                }
                let plain = query.replace("allowWatchBookmarks=true", "allowWatchBookmarks=false");
                let uri = format!("{}?{plain}", parts.uri.path());
                parts.uri = uri.parse().unwrap_or(parts.uri);
            }
            let path = parts.uri.path().to_owned();
            let Some((service, lag)) = network.front_end(process) else { return Err(broken()) };
            let fault = effect.map(|effect| format!(": {effect:?}")).unwrap_or_default();
            let behind = lag.get();
            let late = if behind.is_zero() { String::new() } else { format!(", {behind:?} late") };
            if !network.choices.is_over() {
                network.observer.note(&format!("{process:?} watches {path}{late}{fault}"));
            }
            let response = network.read(service, Request::from_parts(parts, Full::new(body))).await?;
            return Ok(self.watch(&path, response, effect, lag));
        }
        if let Some(surprise) = surprise {
            let is_late = matches!(effect, Some(FaultEffect::Late { .. }));
            let required = is_late.then(|| ObjectVersion::of_update(&parts, &body)).flatten();
            network.choices.begin_effect(surprise, required);
        }
        let path = parts.uri.path().to_owned();
        let request = Request::from_parts(parts, Full::new(body));
        let lost = || {
            trace_response("connection broken");
            broken()
        };
        if is_write && effect.is_some_and(|effect| effect.executes_without_response(surprise.is_some())) {
            network.observer.response_lost(&path);
        }
        let response = match effect {
            Some(FaultEffect::LoseRequest) => return Err(lost()),
            Some(FaultEffect::LoseResponse) => {
                network.execute(sender, request).await?;
                return Err(lost());
            }
            Some(FaultEffect::Late { time }) => {
                sender.is_abandoned = true;
                self.execute_later(self.duration(1, time), sender, request);
                return Err(lost());
            }
            Some(FaultEffect::Silence { executed }) => {
                if executed {
                    network.execute(sender, request).await?;
                }
                return pending().await;
            }
            Some(FaultEffect::Kill { executed }) => {
                if executed {
                    network.execute(sender, request).await?;
                }
                self.managers_of_cluster.kill(process);
                return pending().await;
            }
            Some(FaultEffect::Refuse { code, retry_after }) => {
                refusal(code, reason(code), "injected fault", retry_after)
            }
            Some(FaultEffect::Webhook { code: 403 }) => {
                refusal(403, "Forbidden", "admission webhook \"w.example.com\" denied the request: no", None)
            }
            Some(FaultEffect::Webhook { code }) => {
                let message = "Internal error occurred: failed calling webhook \"w.example.com\": timeout";
                refusal(code, "InternalError", message, None)
            }
            Some(FaultEffect::DelayRequest { time }) => {
                let time = self.duration(1, time);
                if !network.choices.is_on() && process.random.once_in(2) {
                    sender.is_abandoned = true;
                    let response = self.execute_later(time, sender, request);
                    let Ok(response) = response.await else { return pending().await };
                    whole(response?)
                } else {
                    // A client that gives up takes the request back.
                    network.clock.sleep(time).await;
                    whole(network.execute(sender, request).await?)
                }
            }
            Some(FaultEffect::DelayResponse { time }) => {
                let response = network.execute(sender, request).await?;
                network.clock.sleep(self.duration(1, time)).await;
                whole(response)
            }
            _ => whole(network.execute(sender, request).await?),
        };
        process.host.connected().await;
        process.running().await;
        trace_response(response.status().as_str());
        Ok(response)
    }

    /// Draws a duration. Surprises have the longest.
    fn duration(&self, least: u64, most: u64) -> Duration {
        let is_exact = self.network.choices.is_on();
        Duration::from_millis(if is_exact { most } else { self.process.random.between(least, most) })
    }

    /// Executes a request after `time`, even if the process has exited.
    fn execute_later(
        &self,
        time: Duration,
        sender: RequestOrigin,
        request: Request<Full<Bytes>>,
    ) -> oneshot::Receiver<RequestResult> {
        let (sent, response) = oneshot::channel();
        let network = Arc::clone(&self.network);
        tokio::spawn(async move {
            network.clock.sleep(time).await;
            // A client that has given up does not read the response.
            let _ = sent.send(network.execute(sender, request).await);
        });
        response
    }

    /// Response to a watch, with the effect of a fault.
    fn watch(
        &self,
        path: &str,
        response: Response<ApiBody>,
        effect: Option<FaultEffect>,
        cached: &WatchCacheLag,
    ) -> Response<ResponseBody> {
        if !response.status().is_success() {
            return whole(response);
        }
        let (parts, body) = response.into_parts();
        let number = self.process.begin_watch(path);
        let now = self.network.clock.now();
        let seen = self.process.seen(path, now).unwrap_or(now);
        let delay = match effect {
            Some(FaultEffect::DelayWatch { time }) => self.duration(1, time),
            _ => Duration::ZERO,
        };
        let cut = match effect {
            Some(FaultEffect::CutWatch { chunks, torn: true }) => Some((chunks, WatchEnd::Torn)),
            Some(FaultEffect::CutWatch { chunks, torn: false }) => Some((chunks, WatchEnd::Closed)),
            Some(FaultEffect::ExpireWatch { chunks, time }) => {
                Some((chunks, WatchEnd::Expired(self.duration(1, time))))
            }
            _ => None,
        };
        let stream = WatchStream {
            link: self.clone(),
            path: path.to_owned(),
            number,
            body,
            ahead: None,
            delay,
            cached: cached.clone(),
            seen,
            cut,
            is_over: false,
        };
        let frames = stream::unfold(stream, async |mut stream| {
            let frame = stream.next().await?;
            Some((frame, stream))
        });
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }
}

fn broken() -> BoxError {
    Box::new(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer"))
}

fn whole(response: Response<ApiBody>) -> Response<ResponseBody> {
    response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
}

fn reason(code: u16) -> &'static str {
    match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    }
}

fn status(code: u16, reason: &str, message: &str, retry_after: Option<u32>) -> serde_json::Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if let Some(seconds) = retry_after {
        status["details"] = json!({"retryAfterSeconds": seconds});
    }
    status
}

fn refusal(code: u16, reason: &str, message: &str, retry_after: Option<u32>) -> Response<ResponseBody> {
    let text = status(code, reason, message, retry_after).to_string();
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
