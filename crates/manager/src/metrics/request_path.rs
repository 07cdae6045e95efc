//! Resource and subresource of a request path.

/// Resource and subresource that a request path addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestPath<'a> {
    /// Resource, such as `pods`. `other` for other paths.
    pub(super) resource: &'a str,
    /// Subresource, such as `status`. Empty if none.
    pub(super) subresource: &'a str,
}

impl<'a> RequestPath<'a> {
    /// Parses `path`. The result contains no object names, which bounds the number of time series.
    pub(super) fn parse(path: &'a str) -> Self {
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
    fn parses_resource_and_subresource() {
        struct Case {
            path: &'static str,
            resource: &'static str,
            subresource: &'static str,
        }

        for Case { path, resource, subresource } in [
            Case { path: "/api/v1/namespaces/default/pods", resource: "pods", subresource: "" },
            Case { path: "/api/v1/namespaces/default/pods/web-1", resource: "pods", subresource: "" },
            Case { path: "/api/v1/pods", resource: "pods", subresource: "" },
            Case {
                path: "/apis/apps/v1/namespaces/default/replicasets/web/status",
                resource: "replicasets",
                subresource: "status",
            },
            Case { path: "/apis/apps/v1/deployments", resource: "deployments", subresource: "" },
            Case { path: "/api/v1/namespaces/default", resource: "namespaces", subresource: "" },
            Case { path: "/api/v1/namespaces", resource: "namespaces", subresource: "" },
            Case { path: "/api/v1/nodes/n1/status", resource: "nodes", subresource: "status" },
            Case {
                path: "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x",
                resource: "leases",
                subresource: "",
            },
            Case { path: "/healthz", resource: "other", subresource: "" },
            Case { path: "/apis/apps", resource: "other", subresource: "" },
            Case { path: "/api", resource: "other", subresource: "" },
            Case { path: "", resource: "other", subresource: "" },
        ] {
            assert_eq!(RequestPath::parse(path), RequestPath { resource, subresource }, "{path}");
        }
    }
}
