//! Names of the controllers in `--controllers`.
//!
//! Upstream counterpart: `cmd/kube-controller-manager/names`.

pub(crate) const DEPLOYMENT: &str = "deployment-controller";
pub(crate) const REPLICA_SET: &str = "replicaset-controller";
pub(crate) const REPLICATION_CONTROLLER: &str = "replicationcontroller-controller";

/// Controller of upstream's manager.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ControllerName {
    pub(crate) name: &'static str,
    /// Name before v1.28.
    pub(crate) alias: Option<&'static str>,
    pub(crate) availability: Availability,
}

/// Availability of a controller in this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    /// Included in `*`.
    OnByDefault,
    /// Must be selected by name.
    OffByDefault,
    /// Not part of this binary.
    Unavailable,
}

impl ControllerName {
    pub(crate) fn is_available(&self) -> bool {
        self.availability != Availability::Unavailable
    }
}

const fn available(name: &'static str, alias: &'static str, availability: Availability) -> ControllerName {
    ControllerName { name, alias: Some(alias), availability }
}

const fn known(name: &'static str, alias: &'static str) -> ControllerName {
    let alias = if alias.is_empty() { None } else { Some(alias) };
    ControllerName { name, alias, availability: Availability::Unavailable }
}

/// Controllers of upstream v1.36, sorted by name.
pub(crate) static KNOWN: &[ControllerName] = &[
    known("bootstrap-signer-controller", "bootstrapsigner"),
    known("certificatesigningrequest-approving-controller", "csrapproving"),
    known("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    known("certificatesigningrequest-signing-controller", "csrsigning"),
    known("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
    known("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    known("cronjob-controller", "cronjob"),
    known("daemonset-controller", "daemonset"),
    available(DEPLOYMENT, "deployment", Availability::OnByDefault),
    known("device-taint-eviction-controller", ""),
    known("disruption-controller", "disruption"),
    known("endpoints-controller", "endpoint"),
    known("endpointslice-controller", "endpointslice"),
    known("endpointslice-mirroring-controller", "endpointslicemirroring"),
    known("ephemeral-volume-controller", "ephemeral-volume"),
    known("garbage-collector-controller", "garbagecollector"),
    known("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"),
    known("job-controller", "job"),
    known("kube-apiserver-serving-clustertrustbundle-publisher-controller", ""),
    known("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    known("namespace-controller", "namespace"),
    known("node-ipam-controller", "nodeipam"),
    known("node-lifecycle-controller", "nodelifecycle"),
    known("node-route-controller", "route"),
    known("persistentvolume-attach-detach-controller", "attachdetach"),
    known("persistentvolume-binder-controller", "persistentvolume-binder"),
    known("persistentvolume-expander-controller", "persistentvolume-expander"),
    known("persistentvolume-protection-controller", "pv-protection"),
    known("persistentvolumeclaim-protection-controller", "pvc-protection"),
    known("pod-garbage-collector-controller", "podgc"),
    known("podcertificaterequest-cleaner-controller", ""),
    known("podgroup-protection-controller", ""),
    available(REPLICA_SET, "replicaset", Availability::OnByDefault),
    // DEVIATION: upstream enables it by default. A manager started with `*` takes over the two controllers above from
    // another manager that still runs this one. Under separate leases, both would create pods.
    available(REPLICATION_CONTROLLER, "replicationcontroller", Availability::OffByDefault),
    known("resourceclaim-controller", "resource-claim-controller"),
    known("resourcepoolstatusrequest-controller", ""),
    known("resourcequota-controller", "resourcequota"),
    known("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    known("selinux-warning-controller", ""),
    known("service-cidr-controller", ""),
    known("service-lb-controller", "service"),
    known("serviceaccount-controller", "serviceaccount"),
    known("serviceaccount-token-controller", "serviceaccount-token"),
    known("statefulset-controller", "statefulset"),
    known("storage-version-migrator-controller", "svm"),
    known("storageversion-garbage-collector-controller", "storage-version-gc"),
    known("taint-eviction-controller", ""),
    known("token-cleaner-controller", "tokencleaner"),
    known("ttl-after-finished-controller", "ttl-after-finished"),
    known("ttl-controller", "ttl"),
    known("validatingadmissionpolicy-status-controller", ""),
    known("volumeattributesclass-protection-controller", ""),
];
