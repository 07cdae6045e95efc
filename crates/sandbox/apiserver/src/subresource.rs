/// Subresource of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subresource {
    /// `/status`: writes change only the status and some metadata.
    Status,
    /// `/scale`: the replica count as an `autoscaling/v1` Scale.
    Scale,
    /// `/approval`: the conditions of a certificate signing request, as its status.
    Approval,
    /// `/binding`: assigns a pod to a node.
    Binding,
    /// `/ephemeralcontainers`: adds containers to a running pod.
    EphemeralContainers,
    /// `/eviction`: deletes a pod if its disruption budgets permit.
    Eviction,
    /// `/finalize`: finalizers of a namespace.
    Finalize,
    /// `/log`: log of a container.
    Log,
    /// `/proxy` and paths below it: requests to a pod, or to a pod of a Service.
    Proxy,
    /// `/resize`: CPU and memory of a pod's containers.
    Resize,
    /// `/token`: a token of a service account.
    Token,
}

impl Subresource {
    pub(crate) const ALL: [Self; 11] = [
        Self::Approval,
        Self::Status,
        Self::Scale,
        Self::Binding,
        Self::EphemeralContainers,
        Self::Eviction,
        Self::Finalize,
        Self::Log,
        Self::Proxy,
        Self::Resize,
        Self::Token,
    ];

    /// Last segment of its path.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Approval => "approval",
            Self::Binding => "binding",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Eviction => "eviction",
            Self::Finalize => "finalize",
            Self::Log => "log",
            Self::Proxy => "proxy",
            Self::Resize => "resize",
            Self::Token => "token",
        }
    }
}
