//! Selection of controllers: `--controllers`.

use thiserror::Error;

use crate::{
    aggregate::aggregate,
    descriptor::{CONTROLLERS, ControllerDescriptor},
};

/// Controller of upstream's manager.
#[derive(Debug, Clone, Copy)]
struct Known {
    name: &'static str,
    /// Name before v1.28.
    alias: Option<&'static str>,
}

const fn known(name: &'static str, alias: &'static str) -> Known {
    Known { name, alias: if alias.is_empty() { None } else { Some(alias) } }
}

/// Controllers of upstream v1.36, sorted by name.
static KNOWN: &[Known] = &[
    known("bootstrap-signer-controller", "bootstrapsigner"),
    known("certificatesigningrequest-approving-controller", "csrapproving"),
    known("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    known("certificatesigningrequest-signing-controller", "csrsigning"),
    known("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
    known("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    known("cronjob-controller", "cronjob"),
    known("daemonset-controller", "daemonset"),
    known("deployment-controller", "deployment"),
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
    known("replicaset-controller", "replicaset"),
    known("replicationcontroller-controller", "replicationcontroller"),
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

/// Value of `--controllers`, with canonical names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Vec<String>);

/// Unknown controllers in `--controllers`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", aggregate(.0))]
pub struct UnknownControllers(pub(crate) Vec<String>);

impl Selection {
    /// Parses `elements`: `*`, names and aliases, with a leading `-` to exclude. All of upstream's controllers are
    /// accepted; see [`unavailable`](Self::unavailable).
    ///
    /// # Errors
    ///
    /// Upstream's message for each unknown controller (US-1.4).
    pub fn new(elements: &[String]) -> Result<Self, UnknownControllers> {
        let mut canonical = Vec::with_capacity(elements.len());
        let mut unknown = Vec::new();
        for element in elements {
            let (minus, name) = match element.strip_prefix('-') {
                Some(name) => ("-", name),
                None => ("", element.as_str()),
            };
            if element == "*" {
                canonical.push(element.clone());
            } else if let Some(name) = canonical_name(name) {
                canonical.push(format!("{minus}{name}"));
            } else {
                unknown.push(format!("{name:?} is not in the list of known controllers"));
            }
        }
        if unknown.is_empty() { Ok(Self(canonical)) } else { Err(UnknownControllers(unknown)) }
    }

    /// Selects all controllers of this binary, including those that are off by default.
    pub fn all() -> Self {
        Self(CONTROLLERS.iter().map(|descriptor| descriptor.name.to_owned()).collect())
    }

    /// Returns `true` if a controller is enabled: by the first element with its name, or else by `*`.
    pub fn includes(&self, descriptor: &ControllerDescriptor) -> bool {
        self.setting(descriptor.name)
            .unwrap_or_else(|| descriptor.on_by_default && self.0.iter().any(|element| element == "*"))
    }

    /// Controllers that are enabled by name and are not part of this binary.
    pub fn unavailable(&self) -> Vec<&'static str> {
        let is_built_in = |name| CONTROLLERS.iter().any(|descriptor| descriptor.name == name);
        let names = KNOWN.iter().map(|known| known.name);
        names.filter(|name| !is_built_in(*name) && self.setting(name) == Some(true)).collect()
    }

    /// Elements with canonical names.
    pub(crate) fn elements(&self) -> &[String] {
        &self.0
    }

    fn setting(&self, name: &str) -> Option<bool> {
        self.0.iter().find_map(|element| match element.strip_prefix('-') {
            Some(not) => (not == name).then_some(false),
            None => (element == name).then_some(true),
        })
    }
}

impl Default for Selection {
    /// Selects all controllers that are on by default.
    fn default() -> Self {
        Self(vec!["*".to_owned()])
    }
}

fn canonical_name(name: &str) -> Option<&'static str> {
    let built_in = CONTROLLERS.iter().find(|one| one.name == name || one.aliases.contains(&name));
    let known = || KNOWN.iter().find(|one| one.name == name || one.alias == Some(name));
    built_in.map(|one| one.name).or_else(|| known().map(|one| one.name))
}

/// Help for `--controllers`.
pub(crate) fn help() -> String {
    let joined = |names: Vec<&str>| names.join(", ");
    let is_built_in = |name| CONTROLLERS.iter().any(|descriptor| descriptor.name == name);
    format!(
        "\nAll controllers: {}\nDisabled-by-default controllers: {}\nAccepted, but not part of this binary: {}",
        joined(CONTROLLERS.iter().map(|one| one.name).collect()),
        joined(CONTROLLERS.iter().filter(|one| !one.on_by_default).map(|one| one.name).collect()),
        joined(KNOWN.iter().map(|one| one.name).filter(|name| !is_built_in(*name)).collect()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(elements: &[&str]) -> Result<Selection, String> {
        let elements: Vec<_> = elements.iter().map(|element| (*element).to_owned()).collect();
        Selection::new(&elements).map_err(|error| error.to_string())
    }

    fn selected(elements: &[&str]) -> Vec<&'static str> {
        let selection = selection(elements).unwrap();
        CONTROLLERS.iter().filter(|one| selection.includes(one)).map(|one| one.name).collect()
    }

    #[test]
    fn follows_upstreams_rules() {
        let (deployment, replica_set) = ("deployment-controller", "replicaset-controller");
        let replication_controller = "replicationcontroller-controller";
        assert_eq!(selected(&["*"]), [deployment, replica_set]);
        assert_eq!(selected(&["*", "-deployment-controller"]), [replica_set]);
        assert_eq!(selected(&["-replicaset", "*"]), [deployment], "alias before the star");
        assert_eq!(
            selected(&["*", "replicationcontroller"]),
            [deployment, replica_set, replication_controller],
            "off by default"
        );
        assert!(CONTROLLERS.iter().all(|one| Selection::all().includes(one)));
        assert_eq!(selected(&["deployment"]), [deployment]);
        assert_eq!(selected(&["deployment", "-deployment"]), [deployment], "the first element decides");
        assert_eq!(selected(&["-deployment"]), Vec::<&str>::new());
        assert_eq!(selected(&[]), Vec::<&str>::new());
    }

    #[test]
    fn rejects_unknown_controllers() {
        let error = |elements: &[&str]| selection(elements).unwrap_err();
        assert_eq!(error(&["*", "-foo"]), "\"foo\" is not in the list of known controllers");
        assert_eq!(
            error(&["foo", "Deployment"]),
            "[\"foo\" is not in the list of known controllers, \"Deployment\" is not in the list of known controllers]"
        );
        assert_eq!(error(&["-*"]), "\"*\" is not in the list of known controllers");
    }

    #[test]
    fn lists_unavailable_controllers() {
        let unavailable = |elements: &[&str]| selection(elements).unwrap().unavailable();
        assert_eq!(
            unavailable(&["*", "bootstrap-signer-controller", "tokencleaner", "-job"]),
            ["bootstrap-signer-controller", "token-cleaner-controller"]
        );
        assert!(unavailable(&["*", "-attachdetach", "-route"]).is_empty());
        assert_eq!(
            selection(&["*", "-csrcleaner"]).unwrap().elements(),
            ["*", "-certificatesigningrequest-cleaner-controller"]
        );
    }

    #[test]
    fn known_controllers_are_sorted_and_complete() {
        assert!(KNOWN.is_sorted_by_key(|one| one.name));
        for one in CONTROLLERS {
            let known = KNOWN.iter().find(|known| known.name == one.name).unwrap();
            assert_eq!(known.alias.as_slice(), one.aliases);
        }
    }
}
