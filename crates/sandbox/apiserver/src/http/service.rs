//! HTTP service of an API server.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request::Parts};
use jiff::Timestamp;
use kcm_api::GoDuration;
use kcm_clock::Clock;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use super::{
    admission,
    audit_event::{AuditEvent, ObjectReference},
    authorization,
    body::{self, Content},
    component_status,
    fault::{self, FaultAction, FaultDecision, Read},
    freshness,
    media::{negotiate_object, prefers_yaml},
    program::{Connection, Program, WriteGate},
    protobuf,
    query::Query,
    response::{self, ApiBody, ApiResponse},
    reviews::{self, Caller},
    route::{self, Route, Target},
    seat::Seat,
    user::{self, User},
    verbs, yaml,
};
use crate::{
    ApiServer, ApiStatus, Subresource, WatchCacheLag, json::str_at, rbac::Attributes, store::WatchCache,
};

/// An [`ApiServer`] as a `tower` service of HTTP requests. Clones share the server.
///
/// The service accepts any body type, for example that of `kube_client`. Failures are responses. The only error is
/// [`BrokenConnection`], caused by a [fault](crate::Fault).
///
/// # Panics
///
/// A fault of the form `late:TIME` panics outside a tokio runtime.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<ApiServer>,
    program: Program,
    /// Watch cache that lags behind the store. `None` if lists and watches are served from the store.
    cache: Option<Arc<WatchCache>>,
}

impl ApiService {
    pub(crate) fn new(server: Arc<ApiServer>, cache: Option<Arc<WatchCache>>) -> Self {
        Self { server, program: Program::default(), cache }
    }

    /// Adds parts of a program. Other services of the same server are not affected.
    #[must_use]
    pub fn with_program(self, program: Program) -> Self {
        Self { program, ..self }
    }
}

impl ApiServer {
    /// Returns the server as a service of HTTP requests, without a socket.
    pub fn service(self: &Arc<Self>) -> ApiService {
        ApiService::new(Arc::clone(self), None)
    }

    /// Returns an independent front end over the same objects, whose watch cache lags behind by `lag`.
    ///
    /// As several kube-apiservers over one etcd:
    ///
    /// * Watch events and bookmarks are sent once the write is as old as the lag.
    /// * A list or watch with `resourceVersion=0` shows the state of the cache.
    /// * A list or streaming list with a minimum version waits until the cache has reached it. After 3 s the answer is
    ///   504 with the cause `ResourceVersionTooLarge`.
    /// * A consistent list (no version) waits until the cache has reached the store's revision at the time of the
    ///   request. After 3 s the store answers it.
    /// * A streaming list with an empty version waits the same way. After 3 s it fails as with a minimum version.
    /// * Reads of single objects, lists of an exact version, continued lists and writes go to the store.
    ///
    /// Clones of the service share the cache. Each call creates another cache.
    pub fn service_lagging(self: &Arc<Self>, lag: WatchCacheLag) -> ApiService {
        let cache = WatchCache::new(self.registry.store.clone(), Arc::clone(&self.config.clock), lag);
        ApiService::new(Arc::clone(self), Some(Arc::new(cache)))
    }
}

impl fmt::Debug for ApiService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiService").finish_non_exhaustive()
    }
}

/// The connection broke before the response because of a [fault](crate::Fault).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("connection broken by a fault")]
pub struct BrokenConnection;

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<ApiBody>;
    type Error = BrokenConnection;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BrokenConnection>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BrokenConnection>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(handle(service, request))
    }
}

/// Reads and serves a request, subject to faults.
async fn handle<B>(service: ApiService, request: Request<B>) -> Result<ApiResponse, BrokenConnection>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let exchange = Exchange::read(service, request).await;
    let FaultDecision { delay, action } = exchange.evaluate();
    if !delay.is_zero() {
        exchange.clock().sleep(delay).await;
    }
    // After the body was read: a slow client takes no seat.
    exchange.seat.take().await;
    match action {
        FaultAction::Break { served_after: None } => Err(BrokenConnection),
        FaultAction::Break { served_after: Some(Duration::ZERO) } => {
            exchange.serve(FaultAction::None).await;
            Err(BrokenConnection)
        }
        FaultAction::Break { served_after: Some(time) } => {
            exchange.seat.leave();
            tokio::spawn(async move {
                exchange.clock().sleep(time).await;
                exchange.serve(FaultAction::None).await;
            });
            Err(BrokenConnection)
        }
        action => Ok(exchange.serve(action).await),
    }
}

/// A complete request and its user.
struct Exchange {
    service: ApiService,
    parts: Parts,
    query: Query,
    route: Result<Route, ApiStatus>,
    content: Result<Content, ApiStatus>,
    user: Result<User, ApiStatus>,
    received: Timestamp,
    /// Time at which the request was received, on the monotonic clock.
    began: Duration,
    seat: Seat,
}

impl Exchange {
    async fn read<B>(service: ApiService, request: Request<B>) -> Self
    where
        B: http_body::Body,
        B::Error: Into<BoxError>,
    {
        let clock = &service.server.config.clock;
        let (received, began) = (clock.now(), clock.monotonic());
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let route = Route::parse(parts.uri.path(), || service.server.registry.custom());
        let content =
            if may_have_body(&parts.method) { body::read(body).await } else { Ok(Default::default()) };
        let content = content
            .map(|bytes| Content { content_type: text_header(&parts.headers, header::CONTENT_TYPE), bytes });
        let users = service.program.users.as_ref();
        let user = user::authenticate(&service.server, users, &parts, route.as_ref());
        let user = user.and_then(|user| {
            let Some(impersonated) = user::impersonated(&parts.headers)? else { return Ok(user) };
            let server = &service.server;
            if server.config.rbac && impersonated != user {
                authorization::authorize_impersonation(server, &user, &impersonated, &parts.headers)?;
            }
            Ok(impersonated)
        });
        let gate = parts.extensions.get::<WriteGate>().filter(|_| is_write(&parts.method, &route));
        let seat = Seat::new(gate.cloned());
        Self { service, parts, query, route, content, user, received, began, seat }
    }

    fn server(&self) -> &Arc<ApiServer> {
        &self.service.server
    }

    fn clock(&self) -> &dyn Clock {
        &**self.server().clock()
    }

    fn user_agent(&self) -> String {
        text_header(&self.parts.headers, header::USER_AGENT)
    }

    fn is_watch(&self) -> bool {
        matches!(&self.route, Ok(Route::Object(target))
            if verb(&self.parts.method, Some(target), true, &self.query) == "watch")
    }

    /// Evaluates the faults. A request that is rejected anyway is not affected.
    fn evaluate(&self) -> FaultDecision {
        if self.user.is_err() || self.route.is_err() || self.content.is_err() {
            return FaultDecision { delay: Duration::ZERO, action: FaultAction::None };
        }
        let Parts { method, uri, .. } = &self.parts;
        let read = match self.query.get("continue") {
            _ if self.is_watch() => Read::Watch,
            Some(_) if method == Method::GET => Read::Continued,
            _ => Read::Other,
        };
        self.server().config.faults.evaluate(method, read, uri.path(), || self.user_agent())
    }

    /// Serves the request, logs it and reports it to the audit sink.
    async fn serve(&self, action: FaultAction) -> ApiResponse {
        let cache = match &action {
            FaultAction::Refuse(_) => Ok(None),
            _ => self.cache().await,
        };
        let revision_before = self.server().revision();
        let result = match cache {
            Ok(cache) => self.dispatch_with_fault(action, cache).await,
            Err(status) => Err(status),
        };
        let revision_after = self.server().revision();
        let (mut response, failure) = match result {
            Ok(response) => (response, None),
            Err(status) => (response::failure(&status), Some(status)),
        };
        response::warn(&mut response, &self.seat.take_warnings());
        self.report(response.status().as_u16(), failure, revision_before, revision_after);
        let accept = accepted(&self.parts.headers);
        match &self.route {
            // The response of a pod, or text which may have no end yet.
            Ok(Route::Object(target))
                if target.is_connection()
                    || (target.subresource == Some(Subresource::Log) && response.status().is_success()) =>
            {
                response
            }
            Ok(Route::Object(target)) if protobuf::is_requested(&accept, target) => {
                protobuf::convert(response, self.is_watch()).await
            }
            Ok(Route::Object(_)) if prefers_yaml(&accept) && !self.is_watch() => {
                yaml::convert(response).await
            }
            _ => response,
        }
    }

    /// Waits until the watch cache is fresh enough for the request. `None` if the store serves it.
    async fn cache(&self) -> Result<Option<Arc<WatchCache>>, ApiStatus> {
        match (&self.service.cache, &self.route, &self.user, &self.content) {
            (Some(cache), Ok(Route::Object(target)), Ok(_), Ok(_)) => {
                let current = self.server().revision();
                freshness::cache_for(cache, current, &self.parts.method, target, &self.query).await
            }
            _ => Ok(None),
        }
    }

    /// Serves the request subject to the fault.
    async fn dispatch_with_fault(
        &self,
        action: FaultAction,
        cache: Option<Arc<WatchCache>>,
    ) -> Result<ApiResponse, ApiStatus> {
        match action {
            FaultAction::None | FaultAction::Break { .. } => self.dispatch(cache).await,
            FaultAction::Refuse(status) if self.is_watch() && status.code() == 410 => {
                Ok(fault::error_event(&status))
            }
            FaultAction::Refuse(status) => Err(status),
            FaultAction::RefuseAfter(status) => self.dispatch(cache).await.and(Err(status)),
            FaultAction::Cut { events } => {
                self.dispatch(cache).await.map(|response| fault::cut(response, events))
            }
            FaultAction::Lag(time) => {
                let clock = Arc::clone(&self.server().config.clock);
                self.dispatch(cache).await.map(|response| fault::lag(response, time, clock))
            }
        }
    }

    async fn dispatch(&self, cache: Option<Arc<WatchCache>>) -> Result<ApiResponse, ApiStatus> {
        let Self { parts, query, user, route, content, .. } = self;
        let (user, route) = (user.as_ref(), route.as_ref());
        let user = user.map_err(ApiStatus::clone)?;
        let attributes = self.server().config.rbac.then(|| authorization::attributes(parts, query));
        if let Some(attributes) = &attributes {
            authorization::authorize(self.server(), user, attributes)?;
        }
        let route = route.map_err(ApiStatus::clone)?;
        // Cloning shares the bytes.
        let content = content.clone()?;
        let creation_refused = attributes
            .as_ref()
            .filter(|_| verbs::may_create(&parts.method, route, &content))
            .and_then(|attributes| {
                let attributes = Attributes { verb: "create".to_owned(), ..attributes.clone() };
                authorization::authorize(self.server(), user, &attributes).err()
            });
        let caller = Caller {
            user,
            program: &self.service.program,
            seat: Some(&self.seat),
            creation_refused: creation_refused.as_ref(),
        };
        if let Some(attributes) =
            attributes.filter(|attributes| authorization::may_grant(&parts.method, user, attributes))
        {
            let query = query.clone().with("dryRun", "All");
            let mut parts = parts.clone();
            parts.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
            let caller = Caller { seat: None, ..caller };
            let preview =
                dispatch(self.server(), None, &parts, route, &query, content.clone(), caller).await?;
            authorization::check_grant(self.server(), user, &attributes, preview).await?;
        }
        dispatch(self.server(), cache, parts, route, query, content, caller).await
    }

    fn report(&self, code: u16, failure: Option<ApiStatus>, revision_before: u64, revision_after: u64) {
        let Self { parts, received, .. } = self;
        let latency = self.clock().monotonic().saturating_sub(self.began);
        let user_agent = self.user_agent();
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str());
        tracing::info!(
            target: "kcm_apiserver::request",
            method = %parts.method,
            uri,
            code,
            latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX),
            user_agent,
            error = failure.as_ref().map(tracing::field::display),
        );
        let Some(audit) = &self.server().config.audit else { return };
        let (target, mut object) = match &self.route {
            Ok(Route::Object(target)) => (Some(target), Some(ObjectReference::from(target))),
            Ok(Route::Review(review)) => (None, Some(ObjectReference::from(review))),
            _ => (None, None),
        };
        let request_object = self.content.as_ref().ok().and_then(verbs::audited_object);
        if let (Some(object), Some(body)) = (&mut object, &request_object) {
            str_at(body, &["metadata", "uid"]).clone_into(&mut object.uid);
            str_at(body, &["metadata", "resourceVersion"]).clone_into(&mut object.resource_version);
        }
        // Requests without a valid token have no user.
        let user = self.user.clone().unwrap_or_default();
        audit(&AuditEvent {
            id: audit_id(self.server(), *received),
            received: *received,
            latency,
            uri: uri.to_owned(),
            verb: verb(&parts.method, target, object.is_some(), &self.query),
            user: user.name,
            user_uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            user_agent,
            object,
            request_object,
            code,
            failure,
            revision_before,
            revision_after,
        });
    }
}

/// `true` for a write of one object. A deletion of a collection waits for no seat, and yields between batches instead.
fn is_write(method: &Method, route: &Result<Route, ApiStatus>) -> bool {
    let is_collection = matches!(route, Ok(Route::Object(target)) if target.name.is_none());
    match *method {
        Method::POST | Method::PUT | Method::PATCH => true,
        Method::DELETE => !is_collection,
        _ => false,
    }
}

/// Returns an ID for an audit event. It consumes no random numbers, so that a seeded server creates the same objects
/// with and without audit.
fn audit_id(server: &ApiServer, received: Timestamp) -> String {
    let number = server.audited.fetch_add(1, Ordering::Relaxed);
    let time = received.as_microsecond().unsigned_abs();
    uuid::Builder::from_custom_bytes(((u128::from(time) << 64) | u128::from(number)).to_be_bytes())
        .into_uuid()
        .to_string()
}

fn may_have_body(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}

fn accepted(headers: &HeaderMap) -> String {
    text_header(headers, header::ACCEPT)
}

fn text_header(headers: &HeaderMap, name: header::HeaderName) -> String {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn verb(method: &Method, target: Option<&Target>, is_resource: bool, query: &Query) -> &'static str {
    let one = target.is_none_or(|target| target.name.is_some());
    match method.as_str() {
        "GET" if target.is_some() && query.flag("watch").unwrap_or_default() => "watch",
        "GET" if one => "get",
        "GET" => "list",
        "POST" if is_resource => "create",
        "POST" => "post",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if one => "delete",
        "DELETE" => "deletecollection",
        "HEAD" => "head",
        _ => "options",
    }
}

async fn dispatch(
    server: &Arc<ApiServer>,
    cache: Option<Arc<WatchCache>>,
    parts: &Parts,
    route: &Route,
    query: &Query,
    content: Content,
    caller: Caller<'_>,
) -> Result<ApiResponse, ApiStatus> {
    let Parts { method, headers, extensions, .. } = parts;
    if let Some(Err(error)) = query.get("timeout").map(GoDuration::parse) {
        return Err(ApiStatus::bad_request(format!(
            "invalid timeout specified in the request URL - {error}"
        )));
    }
    let connection = match route {
        Route::Object(target) if target.is_connection() => {
            connect(server, target, parts, query, caller).await?
        }
        _ => None,
    };
    if route.is_of_program()
        && let Some(pages) = &caller.program.pages
    {
        let mut request = Request::from_parts(parts.clone(), content.bytes.clone());
        connection.map(|connection| request.extensions_mut().insert(connection));
        if let Some(response) = pages(request) {
            return response.await;
        }
    }
    let mut accept = accepted(headers);
    match route {
        Route::Object(target) if target.is_connection() => {
            let part = target.subresource.map_or("", Subresource::name);
            return Err(ApiStatus::not_implemented(&format!("{}/{part}", target.resource().plural())));
        }
        Route::Object(target) => {
            if protobuf::is_requested(&accept, target) {
                accept = protobuf::as_json(&accept);
            }
            // Set by a server on a socket. Otherwise there is no shutdown.
            let shutdown = extensions.get::<CancellationToken>().cloned().unwrap_or_default();
            let request = verbs::ResourceRequest {
                server,
                cache,
                method,
                target,
                query,
                accept: &accept,
                user_agent: &text_header(headers, header::USER_AGENT),
                path: parts.uri.path(),
                content,
                shutdown,
                caller,
            };
            return request.serve().await;
        }
        Route::Review(review) => {
            // Reviews have no metadata and no table.
            negotiate_object(&protobuf::as_json(&accept))?;
            return reviews::review(server, method, review, query, &content, caller);
        }
        Route::ComponentStatus(name) => {
            let name = name.as_deref();
            return component_status::serve(server, method, name, query, &accept, caller.program);
        }
        Route::Page | Route::Extension | Route::Unknown => return Ok(response::page_not_found()),
        Route::Health(name, checks) => return Ok(response::text(health(name, checks, query))),
        Route::HealthCheck => return Ok(response::text("ok")),
        _ if method != Method::GET => return Err(ApiStatus::method_not_allowed()),
        _ => {}
    }
    let documents = server.documents();
    match route {
        Route::Root => Ok(documents.root(headers)),
        Route::Version => Ok(documents.version(headers)),
        Route::CoreVersions => documents.discovery(true, &accept, headers),
        Route::Groups => documents.discovery(false, &accept, headers),
        Route::Group(group) => Ok(documents.group(group, headers).unwrap_or_else(response::page_not_found)),
        Route::GroupVersion(api_version) => match documents.resources(api_version, headers) {
            Some(resources) => Ok(resources),
            None if route::is_built_in(api_version.split_once('/').map_or("", |(group, _)| group)) => {
                Err(ApiStatus::unknown_path())
            }
            None => Ok(response::page_not_found()),
        },
        _ => Ok(response::page_not_found()),
    }
}

/// Admits a connection to a pod or a Service. Returns the connection if its request is upgraded to streams.
async fn connect(
    server: &ApiServer,
    target: &Target,
    parts: &Parts,
    query: &Query,
    caller: Caller<'_>,
) -> Result<Option<Connection>, ApiStatus> {
    if target.is_stream() && !matches!(parts.method, Method::GET | Method::POST) {
        return Err(ApiStatus::method_not_allowed());
    }
    let options = admission::options_of_connection(target, query, parts.uri.path())?;
    let options = admission::admit_connection(server, target, caller, options).await?;
    let Some(subresource) = target.subresource.filter(|_| target.is_stream()) else { return Ok(None) };
    if caller.creation_refused.is_some() {
        return Err(authorization::forbidden("", target.resource().plural(), target.name(), ""));
    }
    let (namespace, name) = (target.namespace.clone(), target.name().to_owned());
    Ok(Some(Connection { namespace, name, subresource, options }))
}

/// Result of the health checks `checks`. All succeed.
fn health(name: &str, checks: &[&str], query: &Query) -> String {
    if query.all("verbose").next().is_none() {
        return "ok".to_owned();
    }
    let mut text = String::new();
    for check in checks {
        let excluded =
            if query.all("exclude").any(|excluded| excluded == *check) { "excluded: " } else { "" };
        text += &format!("[+]{check} {excluded}ok\n");
    }
    text + name + " check passed\n"
}
