//! What a request's path is about.

/// A resource, and the part of it that a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// Such as `pods`; `other` for paths that name none.
    pub(crate) resource: &'a str,
    /// Such as `status`; empty for the whole.
    pub(crate) subresource: &'a str,
}

impl<'a> Target<'a> {
    /// What `path` is about. It holds no name of an object, so there are as many of them as kinds are written.
    pub(crate) fn of(path: &'a str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let other = Self { resource: "other", subresource: "" };
        match parts.next() {
            Some("api") => {}
            Some("apis") if parts.next().is_some() => {}
            _ => return other,
        }
        if parts.next().is_none() {
            return other;
        }
        let Some(mut resource) = parts.next() else { return other };
        let mut name = parts.next();
        if resource == "namespaces"
            && let Some(inner) = parts.next()
        {
            (resource, name) = (inner, parts.next());
        }
        let subresource = name.and_then(|_| parts.next()).unwrap_or_default();
        Self { resource, subresource }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_tells_resource_and_subresource() {
        for (path, resource, subresource) in [
            ("/api/v1/namespaces/default/pods", "pods", ""),
            ("/api/v1/namespaces/default/pods/web-1", "pods", ""),
            ("/api/v1/pods", "pods", ""),
            ("/apis/apps/v1/namespaces/default/replicasets/web/status", "replicasets", "status"),
            ("/apis/apps/v1/deployments", "deployments", ""),
            ("/api/v1/namespaces/default", "namespaces", ""),
            ("/api/v1/namespaces", "namespaces", ""),
            ("/api/v1/nodes/n1/status", "nodes", "status"),
            ("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", "leases", ""),
            ("/healthz", "other", ""),
            ("/apis/apps", "other", ""),
            ("/api", "other", ""),
            ("", "other", ""),
        ] {
            assert_eq!(Target::of(path), Target { resource, subresource }, "{path}");
        }
    }
}
