//! Calls of webhooks. The program sends them: the server has no sockets.
//!
//! Upstream counterpart: `apiserver/pkg/util/webhook`.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use kcm_clock::{Clock, Random};
use serde_json::{Value, json};

use crate::{
    BoxFuture, Resource,
    json::{at, i64_at, list_at, str_at, type_name},
    registry::new_uid,
    store::{self, Store},
};

/// Maximum size of a response in bytes, as that of a request of etcd's clients.
const MAX_RESPONSE: usize = 64 << 20;

/// Maximum length in bytes of the part of an unexpected response that an error contains.
const MAX_MESSAGE: usize = 2048;

/// Client of webhooks over HTTPS. Programs implement it; a test can return responses without a connection.
pub trait WebhookClient: Send + Sync {
    /// Sends a POST request with a JSON body and returns the response. The future is dropped when the time of the call is over.
    ///
    /// # Errors
    ///
    /// The request was not answered, or the response exceeds [`WebhookRequest::max_response`].
    fn post(&self, request: WebhookRequest) -> BoxFuture<Result<WebhookResponse, WebhookError>>;
}

/// Request to a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRequest {
    /// URL with the scheme `https`.
    pub url: String,
    /// CA certificates in PEM that the certificate of the webhook is verified with.
    pub ca_bundle: Bytes,
    /// `AdmissionReview` or `ConversionReview`.
    pub body: Bytes,
    /// Maximum size of the response in bytes.
    pub max_response: usize,
}

/// Response of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookResponse {
    /// HTTP status code.
    pub code: u16,
    /// Header `Content-Type`, or empty.
    pub content_type: String,
    /// Body.
    pub body: Bytes,
}

/// A webhook did not answer. The text is that of Go's HTTP client, such as
/// `dial tcp 127.0.0.1:443: connect: connection refused`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WebhookError(pub String);

/// Calls of the webhooks of a server.
#[derive(Clone)]
pub(crate) struct Webhooks {
    pub(crate) client: Arc<dyn WebhookClient>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// Services that webhooks may refer to.
    pub(crate) store: Store,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").finish_non_exhaustive()
    }
}

impl Webhooks {
    /// Returns a UID for a review.
    pub(crate) fn new_uid(&self) -> String {
        new_uid(&*self.random)
    }

    /// Sends `review` to the webhook of a `WebhookClientConfig` and returns the object in the response.
    ///
    /// # Errors
    ///
    /// As upstream's client, in its words.
    pub(crate) async fn call(
        &self,
        config: &Value,
        timeout: Duration,
        review: &Value,
    ) -> Result<Value, WebhookError> {
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let url = format!("{}?timeout={seconds}s", url_of(config));
        let failed = |cause: WebhookError| WebhookError(format!("Post {url:?}: {cause}"));
        self.resolve(config).map_err(failed)?;
        let request = WebhookRequest {
            url: url.clone(),
            ca_bundle: ca_bundle(config)?,
            body: review.to_string().into(),
            max_response: MAX_RESPONSE,
        };
        let response = tokio::select! {
            biased;
            response = self.client.post(request) => response.map_err(failed)?,
            () = self.clock.sleep(timeout) => {
                return Err(failed(WebhookError("context deadline exceeded".to_owned())));
            }
        };
        decode(&response)
    }

    /// Resolves the Service of a webhook.
    ///
    /// DEVIATION: no Service is reached, as no traffic is routed.
    fn resolve(&self, config: &Value) -> Result<(), WebhookError> {
        let Some(reference) = config.get("service") else { return Ok(()) };
        let (namespace, name) = (str_at(reference, &["namespace"]), str_at(reference, &["name"]));
        let Some(service) = self.store.get(Resource::SERVICES, &store::key(namespace, name)) else {
            return Err(WebhookError(format!("service {name:?} not found")));
        };
        let (service, port) = (service.value(), port_of(reference));
        let is_served =
            list_at(service, &["spec", "ports"]).iter().any(|entry| i64_at(entry, &["port"]) == Some(port));
        Err(WebhookError(match str_at(service, &["spec", "type"]) {
            "ExternalName" => "unsupported service type \"ExternalName\"".to_owned(),
            _ if !is_served => format!("no service port {port} found for service {name:?}"),
            _ => format!("no endpoints available for service {name:?}"),
        }))
    }
}

fn port_of(service: &Value) -> i64 {
    i64_at(service, &["port"]).unwrap_or(443)
}

/// URL of a webhook. Its path is cleaned as by Go's `path.Join`, because envtest's URLs contain `//`.
fn url_of(config: &Value) -> String {
    let (address, path) = match config.get("service") {
        Some(service) => {
            let text = |field: &str| str_at(service, &[field]);
            let host = format!("https://{}.{}.svc:{}", text("name"), text("namespace"), port_of(service));
            (host, text("path"))
        }
        None => {
            let url = str_at(config, &["url"]);
            let start = url.find("://").map_or(0, |position| position + 3);
            let end = url[start..].find('/').map_or(url.len(), |position| start + position);
            (url[..end].to_owned(), &url[end..])
        }
    };
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("{address}/{}", segments.join("/"))
}

/// Returns the decoded `caBundle`.
fn ca_bundle(config: &Value) -> Result<Bytes, WebhookError> {
    use base64::Engine as _;
    let text = at(config, &["caBundle"]).and_then(Value::as_str).unwrap_or_default();
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    decoded.map(Bytes::from).map_err(|error| WebhookError(format!("caBundle: {error}")))
}

/// Returns the object in a response.
///
/// Upstream counterpart: `rest.Request.transformResponse` and `Result.Into`.
fn decode(response: &WebhookResponse) -> Result<Value, WebhookError> {
    let WebhookResponse { code, content_type, body } = response;
    if !(200..=206).contains(code) {
        let is_text = content_type.is_empty() || content_type.starts_with("text/");
        let text = String::from_utf8_lossy(body.get(..MAX_MESSAGE).unwrap_or(body));
        return Err(WebhookError(refusal(*code, if is_text { text.trim() } else { "unknown" })));
    }
    if body.is_empty() {
        let content_type = if content_type.is_empty() { "application/json" } else { content_type };
        return Err(WebhookError(format!(
            "0-length response with status code: {code} and content type: {content_type}"
        )));
    }
    // Text that is not JSON is a string in YAML.
    match serde_json::from_slice(body).unwrap_or_else(|_| Value::from("")) {
        review @ Value::Object(_) => Ok(review),
        other => Err(WebhookError(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
             \"json:\\\"kind,omitempty\\\"\" }}",
            type_name(&other)
        ))),
    }
}

/// Upstream counterpart: `errors.NewGenericServerResponse`.
fn refusal(code: u16, text: &str) -> String {
    let fixed = match code {
        409 => "the server reported a conflict",
        404 => "the server could not find the requested resource",
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        406 if text.is_empty() || text == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
        }
        403 | 406 | 415 => text,
        405 => "the server does not allow this method on the requested resource",
        422 => "the server rejected our request due to an error in our request",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        429 => "the server has received too many requests and has asked us to try again later",
        500.. => {
            return format!("an error on the server ({text:?}) has prevented the request from succeeding");
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    fixed.to_owned()
}

/// First of the versions of a review that the server and the webhook support, of the versions that the webhook prefers.
pub(crate) fn review_version<'a>(versions: impl IntoIterator<Item = &'a Value>) -> Option<&'static str> {
    versions.into_iter().find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| version == known))
}

/// Checks the version and kind of a review in a response.
pub(crate) fn check_review_type(review: &Value, group: &str, kind: &str) -> Result<(), String> {
    let (found_version, found_kind) = (str_at(review, &["apiVersion"]), str_at(review, &["kind"]));
    if (found_version, found_kind) == (format!("{group}/v1").as_str(), kind) {
        return Ok(());
    }
    let found = crate::kind::group_version_kind(found_version, found_kind);
    Err(format!("expected webhook response of {group}/v1, Kind={kind}, got {found}"))
}

/// Returns a review with this request.
pub(crate) fn review(api_version: &str, kind: &str, request: &Value) -> Value {
    json!({"kind": kind, "apiVersion": api_version, "request": request})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        let url = |url: &str| url_of(&json!({"url": url}));
        assert_eq!(url("https://localhost:1//mutate"), "https://localhost:1/mutate");
        assert_eq!(url("https://localhost/a/./b/../c/"), "https://localhost/a/c");
        assert_eq!(url("https://[::1]:1"), "https://[::1]:1/");
        let service = json!({"service": {"namespace": "b", "name": "a", "path": "/c"}});
        assert_eq!(url_of(&service), "https://a.b.svc:443/c");
    }
}
