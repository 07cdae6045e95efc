//! Names of the steps of requests.

use http::{Method, request::Parts};

use super::surprises::StepKind;

/// `true` for a watch, streaming lists among them.
pub fn is_watch(parts: &Parts) -> bool {
    parts.method == Method::GET && parts.uri.query().is_some_and(|query| query.contains("watch=true"))
}

/// Verb of a request, and the plural name of its resource with its subresource, such as `update` and `pods/status`.
/// `None` if the path names no resource.
pub fn verb_and_resource(method: &Method, path: &str) -> Option<(&'static str, String)> {
    let mut words: Vec<&str> = path.split('/').skip(1).collect();
    // `api/v1` or `apis/GROUP/VERSION`, then `namespaces/NAME` or nothing, then the resource.
    words.drain(..words.len().min(if words.first() == Some(&"api") { 2 } else { 3 }));
    if words.len() > 2
        && words.first() == Some(&"namespaces")
        && !matches!(words[2..], ["status" | "finalize"])
    {
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
    let part = words.get(2).map(|part| format!("/{part}")).unwrap_or_default();
    Some((verb, format!("{resource}{part}")))
}

/// Plural resource name, namespace and name of the object that a path names. `None` for collections, subresources and objects
/// without a namespace.
pub fn namespaced_object(path: &str) -> Option<(&str, &str, &str)> {
    let (_, path) = path.split_once("/namespaces/")?;
    let mut words = path.split('/');
    let (namespace, resource, name) = (words.next()?, words.next()?, words.next()?);
    words.next().is_none().then_some((resource, namespace, name))
}

/// Name and kind of the step of a request. `None` if nothing depends on the request.
pub fn request_step(manager: usize, method: &Method, path: &str) -> Option<(String, StepKind)> {
    let (verb, resource) = verb_and_resource(method, path)?;
    let kind = match &*resource {
        "events" => return None,
        "leases" => StepKind::Lease,
        _ if method.is_safe() => StepKind::Read,
        _ => StepKind::Write,
    };
    Some((format!("m{manager} {verb} {resource}"), kind))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (Method::PUT, "/api/v1/namespaces/n/status", "m0 update namespaces/status", StepKind::Write),
            (Method::PUT, "/api/v1/namespaces/n/finalize", "m0 update namespaces/finalize", StepKind::Write),
            (Method::GET, "/api/v1/namespaces/n", "m0 get namespaces", StepKind::Read),
        ] {
            assert_eq!(request_step(0, &method, path), Some((name.to_owned(), kind)), "{path}");
        }
        assert_eq!(request_step(0, &Method::POST, "/api/v1/namespaces/n/events"), None);
    }

    #[test]
    fn only_objects_have_a_name() {
        let of = namespaced_object;
        assert_eq!(of("/apis/apps/v1/namespaces/n/replicasets/r"), Some(("replicasets", "n", "r")));
        assert_eq!(of("/api/v1/namespaces/n/pods/p"), Some(("pods", "n", "p")));
        for path in [
            "/apis/apps/v1/namespaces/n/replicasets",
            "/apis/apps/v1/namespaces/n/replicasets/r/status",
            "/apis/apps/v1/replicasets",
            "/api/v1/namespaces/n",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
