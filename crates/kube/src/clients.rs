use std::sync::Arc;

use http::{
    HeaderValue, Request,
    header::{ACCEPT_ENCODING, USER_AGENT},
};
use http_body_util::{BodyExt, Collected};
use kcm_api::ApiError;
use kcm_client::{ApiClient, Body, ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::RealClock;
use kube_client::Client;
use tower::service_fn;

use crate::api_error;

/// Returns clients of `kcm-client` whose requests `client` sends, with its configuration and its middleware.
///
/// A manager of `kcm-manager` runs over them: `Manager::with_clients`.
///
/// They do not repeat requests: that is decided by the middleware. The user agent is that of `client`.
pub fn clients(client: Client) -> ClientFactory {
    let service = service_fn(move |mut request: Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let headers = request.headers_mut();
        headers.remove(USER_AGENT);
        if is_watch {
            // A compressed stream is one gzip member per event since Kubernetes v1.37, and kube-client decodes only the first.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let client = client.clone();
        async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await.map(Collected::to_bytes);
            let response = client.send(Request::from_parts(head, body.into())).await.map_err(api_error)?;
            Ok::<_, ApiError>(response.map(|body| body.map_err(api_error)))
        }
    });
    let options = ClientOptions::new(UserAgent::new("", "", ""), Arc::new(RealClock::new()));
    ClientFactory::in_process(service, options).without_retries()
}

/// Returns a client of `kcm-client` without a rate limit, as those of kube-rs. Its requests are sent by `client`.
///
/// For a [`LeaseClient`](crate::LeaseClient), pass a separate `client`: requests for other objects must not delay a renewal. Its
/// timeouts are [`request_timeout`](kcm_leader_election::LeaderElectionConfig::request_timeout).
pub fn api_client(client: Client) -> ApiClient {
    clients(client).client("", RateLimit::UNLIMITED)
}
