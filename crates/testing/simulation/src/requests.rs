//! Kinds of requests.

use std::iter;

use http::{Method, request::Parts};

use kcm_simulation::engine::faults::RequestSelector;

use crate::scenario::Requests;

impl RequestSelector for Requests {
    fn selects(&self, request: &Parts, is_watch: bool) -> bool {
        kinds(request, is_watch).contains(self)
    }
}

/// The kinds of requests that a request belongs to.
fn kinds(parts: &Parts, is_watch: bool) -> Vec<Requests> {
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

#[cfg(test)]
mod tests {
    use http::Request;
    use kcm_simulation::engine::step::is_watch;

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
}
