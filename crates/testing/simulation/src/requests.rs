//! Kinds and names of requests.

use std::iter;

use http::{Method, request::Parts};

use crate::{choices::StepKind, scenario::Requests};

/// `true` for a watch, streaming lists among them.
pub(crate) fn is_watch(parts: &Parts) -> bool {
    parts.method == Method::GET && parts.uri.query().is_some_and(|query| query.contains("watch=true"))
}

/// The kinds of requests that a request belongs to.
pub(crate) fn kinds(parts: &Parts, is_watch: bool) -> Vec<Requests> {
    let path = parts.uri.path();
    if is_watch {
        let is_pods = path.ends_with("/pods");
        return iter::once(Requests::Watches).chain(is_pods.then_some(Requests::PodWatches)).collect();
    }
    let mut words = path.rsplit('/');
    let last = words.next().unwrap_or_default();
    let (before, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let resource = |name: &str| before == name;
    let own = match parts.method {
        Method::GET if path.contains("/leases") => Some(Requests::Lease),
        Method::GET if path.contains("/api") => Some(Requests::Lists),
        Method::POST if last == "pods" => Some(Requests::CreatePods),
        Method::POST if last == "replicasets" => Some(Requests::CreateReplicaSets),
        Method::DELETE if resource("pods") => Some(Requests::DeletePods),
        Method::DELETE if resource("replicasets") => Some(Requests::DeleteReplicaSets),
        Method::PATCH if resource("pods") => Some(Requests::PatchPods),
        _ if path.contains("/leases") => Some(Requests::Lease),
        _ if last == "status" && second == "deployments" => Some(Requests::DeploymentStatus),
        _ if last == "status" => Some(Requests::ReplicaSetStatus),
        _ if resource("replicasets") => Some(Requests::UpdateReplicaSets),
        _ if resource("deployments") => Some(Requests::UpdateDeployments),
        _ => None,
    };
    let mut kinds = vec![Requests::All];
    kinds.extend(own);
    kinds
}

/// Name and kind of the step of a request. `None` if nothing depends on the request.
pub(crate) fn request_step(manager: usize, method: &Method, path: &str) -> Option<(String, StepKind)> {
    let mut words: Vec<&str> = path.split('/').skip(1).collect();
    // `api/v1` or `apis/GROUP/VERSION`, then `namespaces/NAME` or nothing, then the resource.
    words.drain(..words.len().min(if words.first() == Some(&"api") { 2 } else { 3 }));
    if words.len() > 2 && words.first() == Some(&"namespaces") {
        words.drain(..2);
    }
    let resource = *words.first()?;
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ if words.len() > 1 => "get",
        _ => "list",
    };
    let kind = match resource {
        "events" => return None,
        "leases" => StepKind::Lease,
        _ if method.is_safe() => StepKind::Read,
        _ => StepKind::Write,
    };
    let part = words.get(2).map(|part| format!("/{part}")).unwrap_or_default();
    Some((format!("m{manager} {verb} {resource}{part}"), kind))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn kinds_of(method: Method, uri: &str) -> Vec<Requests> {
        let (parts, ()) = Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
        kinds(&parts, is_watch(&parts))
    }

    #[test]
    fn kind_follows_from_method_and_path() {
        let pods = "/api/v1/namespaces/n/pods";
        let sets = "/apis/apps/v1/namespaces/n/replicasets";
        let deployments = "/apis/apps/v1/namespaces/n/deployments";
        for (method, uri, expected) in [
            (Method::POST, pods.to_owned(), Requests::CreatePods),
            (Method::DELETE, format!("{pods}/p"), Requests::DeletePods),
            (Method::PATCH, format!("{pods}/p"), Requests::PatchPods),
            (Method::POST, sets.to_owned(), Requests::CreateReplicaSets),
            (Method::PUT, format!("{sets}/s"), Requests::UpdateReplicaSets),
            (Method::PUT, format!("{sets}/s/status"), Requests::ReplicaSetStatus),
            (Method::DELETE, format!("{sets}/s"), Requests::DeleteReplicaSets),
            (Method::PUT, format!("{deployments}/d"), Requests::UpdateDeployments),
            (Method::PUT, format!("{deployments}/d/status"), Requests::DeploymentStatus),
            (Method::GET, "/apis/apps/v1/deployments?resourceVersion=0".to_owned(), Requests::Lists),
        ] {
            assert_eq!(kinds_of(method, &uri), [Requests::All, expected], "{uri}");
        }
        let pods = kinds_of(Method::GET, "/api/v1/pods?watch=true&x=y");
        assert_eq!(pods, [Requests::Watches, Requests::PodWatches]);
        assert_eq!(kinds_of(Method::GET, "/apis/apps/v1/deployments?watch=true"), [Requests::Watches]);
    }

    #[test]
    fn requests_are_named_by_verb_and_resource() {
        for (method, path, name, kind) in [
            (Method::POST, "/api/v1/namespaces/n/pods", "m0 create pods", StepKind::Write),
            (
                Method::PUT,
                "/apis/apps/v1/namespaces/n/replicasets/r/status",
                "m0 update replicasets/status",
                StepKind::Write,
            ),
            (Method::GET, "/apis/apps/v1/replicasets", "m0 list replicasets", StepKind::Read),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
                "m0 update leases",
                StepKind::Lease,
            ),
        ] {
            assert_eq!(request_step(0, &method, path), Some((name.to_owned(), kind)), "{path}");
        }
        assert_eq!(request_step(0, &Method::POST, "/api/v1/namespaces/n/events"), None);
    }
}
