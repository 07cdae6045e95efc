//! `pods/proxy` and `services/proxy`.
//!
//! Upstream counterpart: `registry/core/pod/rest.ProxyREST` and `registry/core/service.ProxyREST`. No connection is
//! opened: a [`PodServer`] answers for the pods.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use kcm_apiserver::{
    ApiServer, ApiStatus, LabelSelector, ListOptions, Object, Resource, StatusReason,
    http::response::{self, ApiResponse},
    json::{at, bool_at, list_at, str_at},
};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Server of the pods' ports: returns the response of a pod, or `None` if nothing listens on the port.
pub type PodServer = Arc<dyn Fn(&PodRequest<'_>) -> Option<PodResponse> + Send + Sync>;

/// Request to a port of a pod.
#[derive(Debug)]
pub struct PodRequest<'a> {
    /// Running pod.
    pub pod: &'a Object,
    /// Number of the port.
    pub port: u16,
    /// HTTP method.
    pub method: &'a str,
    /// Path as the pod receives it. Begins with `/`; not decoded.
    pub path: &'a str,
    /// Query without `?`; not decoded.
    pub query: &'a str,
    /// Body.
    pub body: &'a [u8],
}

/// Response of a pod, as plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodResponse {
    /// HTTP status code.
    pub code: u16,
    /// Body.
    pub body: String,
}

/// Number of segments before the path of the pod, including the empty one before the first slash.
const PREFIX: usize = 8;

/// Serves a request for the subresource `proxy`.
pub(crate) fn proxy(
    server: &ApiServer,
    pod_server: &PodServer,
    request: &Request<Bytes>,
) -> Result<ApiResponse, ApiStatus> {
    let (method, uri, body) = (request.method(), request.uri(), request.body());
    let decode = |part| percent_decode_str(part).decode_utf8_lossy();
    let parts: Vec<_> = uri.path().split('/').filter(|part| !part.is_empty()).map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let ["api", "v1", "namespaces", namespace, plural, target, "proxy", ..] = parts.as_slice() else {
        return Err(ApiStatus::unknown_path());
    };
    let resource = if *plural == "services" { Resource::SERVICES } else { Resource::PODS };
    let (name, port) = split_name(resource, target)?;
    let (pod, port) = if resource == Resource::SERVICES {
        endpoint(server, namespace, name, port)?
    } else {
        let pod = server.get(Resource::PODS, namespace, name)?;
        let port = pod_port(&pod, port).ok_or_else(|| ApiStatus::bad_request("invalid port"))?;
        (pod, port)
    };
    let Some(path) = uri.path().splitn(PREFIX + 1, '/').nth(PREFIX) else {
        return Ok(redirect(uri));
    };
    if str_at(pod.value(), &["status", "podIP"]).is_empty() {
        return Err(ApiStatus::bad_request("address not allowed"));
    }
    let (path, query) = (format!("/{path}"), uri.query().unwrap_or_default());
    let request = PodRequest { pod: &pod, port, method: method.as_str(), path: &path, query, body };
    let answer = Some(&pod).filter(|pod| is_running(pod)).and_then(|_| pod_server(&request));
    let Some(answer) = answer else {
        let address = str_at(pod.value(), &["status", "podIP"]);
        return Err(ApiStatus::new(
            StatusReason::ServiceUnavailable,
            format!("error trying to reach service: dial tcp {address}:{port}: connect: connection refused"),
        ));
    };
    let mut response = response::text(answer.body);
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::BAD_GATEWAY);
    Ok(response)
}

/// Splits `[scheme:]name[:port]`.
fn split_name(resource: Resource, text: &str) -> Result<(&str, &str), ApiStatus> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [name] => Ok((name, "")),
        [name, port] => Ok((name, port)),
        ["http" | "https" | "", name, port] => Ok((name, port)),
        _ => {
            let kind = resource.kind().to_lowercase();
            Err(ApiStatus::bad_request(format!("invalid {kind} request {text:?}")))
        }
    }
}

/// Redirects a request without a path to the root of the pod, so that relative links work.
fn redirect(uri: &Uri) -> ApiResponse {
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&format!("{}/{query}", uri.path())) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Port of a pod by number. Without a number, the first port of its containers, or 80.
fn pod_port(pod: &Object, port: &str) -> Option<u16> {
    if !port.is_empty() {
        return port.parse().ok();
    }
    let first = container_ports(pod).next().and_then(|port| number(port, "containerPort"));
    Some(first.unwrap_or(80))
}

fn container_ports(pod: &Object) -> impl Iterator<Item = &Value> {
    let containers = list_at(pod.value(), &["spec", "containers"]).iter();
    containers.flat_map(|container| list_at(container, &["ports"]))
}

fn number(value: &Value, name: &str) -> Option<u16> {
    value.get(name)?.as_u64()?.try_into().ok()
}

fn is_running(pod: &Object) -> bool {
    str_at(pod.value(), &["status", "phase"]) == "Running"
}

fn is_ready(pod: &Object) -> bool {
    let conditions = list_at(pod.value(), &["status", "conditions"]);
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns a ready pod behind a port of a Service, and the pod's port.
fn endpoint(
    server: &ApiServer,
    namespace: &str,
    name: &str,
    port: &str,
) -> Result<(Arc<Object>, u16), ApiStatus> {
    let unavailable = |message: String| ApiStatus::new(StatusReason::ServiceUnavailable, message);
    let service = server.get(Resource::SERVICES, namespace, name)?;
    let ports = list_at(service.value(), &["spec", "ports"]);
    let is_asked = |entry: &&Value| {
        let given = str_at(entry, &["name"]);
        (port.is_empty() && ports.len() == 1)
            || given == port
            || number(entry, "port").is_some_and(|number| number.to_string() == port)
    };
    let entry = ports
        .iter()
        .find(is_asked)
        .ok_or_else(|| unavailable(format!("no service port {port:?} found for service {name:?}")))?;
    let no_endpoints = || unavailable(format!("no endpoints available for service {name:?}"));
    let selector = at(service.value(), &["spec", "selector"])
        .filter(|selector| selector.as_object().is_some_and(|labels| !labels.is_empty()))
        .map(LabelSelector::from_labels)
        .ok_or_else(no_endpoints)?;
    let pods = server.list(Resource::PODS, Some(namespace), &ListOptions::default())?.items;
    let publishes_unready = bool_at(service.value(), &["spec", "publishNotReadyAddresses"]);
    pods.into_iter()
        .filter(|pod| is_running(pod) && !pod.is_deleting() && (publishes_unready || is_ready(pod)))
        .filter(|pod| selector.matches(pod.value()))
        .find_map(|pod| target_port(entry, &pod).map(|port| (pod, port)))
        .ok_or_else(no_endpoints)
}

/// Resolves `targetPort` of a Service's port.
fn target_port(entry: &Value, pod: &Object) -> Option<u16> {
    match entry.get("targetPort") {
        Some(Value::String(name)) => {
            let port = container_ports(pod).find(|port| port["name"] == name.as_str())?;
            number(port, "containerPort")
        }
        _ => number(entry, "targetPort").or_else(|| number(entry, "port")),
    }
}
