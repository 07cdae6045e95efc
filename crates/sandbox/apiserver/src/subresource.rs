/// Subresource of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subresource {
    /// `/status`: writes change only the status and some metadata.
    Status,
    /// `/scale`: the replica count as an `autoscaling/v1` Scale.
    Scale,
    /// `/attach`: streams of a container's program.
    Attach,
    /// `/approval`: the conditions of a certificate signing request, as its status.
    Approval,
    /// `/binding`: assigns a pod to a node.
    Binding,
    /// `/ephemeralcontainers`: adds containers to a running pod.
    EphemeralContainers,
    /// `/eviction`: deletes a pod if its disruption budgets permit.
    Eviction,
    /// `/exec`: streams of a command in a container.
    Exec,
    /// `/finalize`: finalizers of a namespace.
    Finalize,
    /// `/log`: log of a container.
    Log,
    /// `/portforward`: streams to ports of a pod.
    PortForward,
    /// `/proxy` and paths below it: requests to a pod, or to a pod of a Service.
    Proxy,
    /// `/resize`: CPU and memory of a pod's containers.
    Resize,
    /// `/token`: a token of a service account.
    Token,
}

impl Subresource {
    pub(crate) const ALL: [Self; 14] = [
        Self::Approval,
        Self::Attach,
        Self::Status,
        Self::Scale,
        Self::Binding,
        Self::EphemeralContainers,
        Self::Eviction,
        Self::Exec,
        Self::Finalize,
        Self::Log,
        Self::PortForward,
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
            Self::Attach => "attach",
            Self::Binding => "binding",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Eviction => "eviction",
            Self::Exec => "exec",
            Self::Finalize => "finalize",
            Self::Log => "log",
            Self::PortForward => "portforward",
            Self::Proxy => "proxy",
            Self::Resize => "resize",
            Self::Token => "token",
        }
    }

    /// `true` if a request upgrades its connection to streams.
    pub(crate) const fn is_stream(self) -> bool {
        matches!(self, Self::Attach | Self::Exec | Self::PortForward)
    }

    /// Kind of the options of a connection to an object of the kind `kind`. `None` if requests are no connections.
    pub(crate) fn connect_options(self, kind: &str) -> Option<&'static str> {
        match self {
            Self::Attach => Some("PodAttachOptions"),
            Self::Exec => Some("PodExecOptions"),
            Self::PortForward => Some("PodPortForwardOptions"),
            Self::Proxy if kind == "Service" => Some("ServiceProxyOptions"),
            Self::Proxy => Some("PodProxyOptions"),
            _ => None,
        }
    }
}
