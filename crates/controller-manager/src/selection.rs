//! Which controllers there are upstream, and which of them are wanted.

use thiserror::Error;

use crate::{
    config::in_one_line,
    descriptor::{CONTROLLERS, ControllerDescriptor},
};

/// A controller of upstream's v1.36 manager.
#[derive(Debug, Clone, Copy)]
struct Known {
    name: &'static str,
    /// What it was called before v1.28. One at most.
    alias: Option<&'static str>,
}

const fn known(name: &'static str, alias: &'static str) -> Known {
    Known { name, alias: if alias.is_empty() { None } else { Some(alias) } }
}

/// All of them, by name.
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

/// Which controllers are wanted, as `--controllers` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Vec<String>);

/// `--controllers` names what there is not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", in_one_line(.0))]
pub struct UnknownControllers(pub(crate) Vec<String>);

impl Selection {
    /// What `elements` mean: `*`, names and aliases, with a `-` in front for "not". Upstream's controllers are known,
    /// whether they are built in or not; see [`not_built_in`](Self::not_built_in).
    ///
    /// # Errors
    ///
    /// When one names no controller. Upstream's words (US-1.4).
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

    /// All that there are, those that are not on by default too: for a cluster in which nobody else runs any.
    pub fn all() -> Self {
        Self(CONTROLLERS.iter().map(|descriptor| descriptor.name.to_owned()).collect())
    }

    /// Whether a controller is wanted: the first element that names it decides, and then `*`.
    pub fn includes(&self, descriptor: &ControllerDescriptor) -> bool {
        self.says(descriptor.name)
            .unwrap_or_else(|| descriptor.on_by_default && self.0.iter().any(|element| element == "*"))
    }

    /// The controllers that are asked for by name, and that are not built in. `*` asks for none of them.
    pub fn not_built_in(&self) -> Vec<&'static str> {
        let is_built_in = |name| CONTROLLERS.iter().any(|descriptor| descriptor.name == name);
        let names = KNOWN.iter().map(|known| known.name);
        names.filter(|name| !is_built_in(*name) && self.says(name) == Some(true)).collect()
    }

    /// The elements, with each controller by its one name.
    pub(crate) fn elements(&self) -> &[String] {
        &self.0
    }

    fn says(&self, name: &str) -> Option<bool> {
        self.0.iter().find_map(|element| match element.strip_prefix('-') {
            Some(not) => (not == name).then_some(false),
            None => (element == name).then_some(true),
        })
    }
}

impl Default for Selection {
    /// All that are on by default.
    fn default() -> Self {
        Self(vec!["*".to_owned()])
    }
}

fn canonical_name(name: &str) -> Option<&'static str> {
    let built_in = CONTROLLERS.iter().find(|one| one.name == name || one.aliases.contains(&name));
    let known = || KNOWN.iter().find(|one| one.name == name || one.alias == Some(name));
    built_in.map(|one| one.name).or_else(|| known().map(|one| one.name))
}

/// What the help says of `--controllers`.
pub(crate) fn listing() -> String {
    let joined = |names: Vec<&str>| names.join(", ");
    let is_built_in = |name| CONTROLLERS.iter().any(|descriptor| descriptor.name == name);
    format!(
        "\nBuilt in: {}.\nOf these, off by default: {}.\nKnown, and not built in: {}.",
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
    fn selection_follows_upstreams_rules() {
        let (deployment, replica_set) = ("deployment-controller", "replicaset-controller");
        let replication_controller = "replicationcontroller-controller";
        assert_eq!(selected(&["*"]), [deployment, replica_set]);
        assert_eq!(selected(&["*", "-deployment-controller"]), [replica_set]);
        assert_eq!(selected(&["-replicaset", "*"]), [deployment], "by its alias, and before the star");
        assert_eq!(
            selected(&["*", "replicationcontroller"]),
            [deployment, replica_set, replication_controller],
            "the star does not mean it"
        );
        assert!(CONTROLLERS.iter().all(|one| Selection::all().includes(one)));
        assert_eq!(selected(&["deployment"]), [deployment]);
        assert_eq!(selected(&["deployment", "-deployment"]), [deployment], "the first that names it decides");
        assert_eq!(selected(&["-deployment"]), Vec::<&str>::new(), "a star must be given");
        assert_eq!(selected(&[]), Vec::<&str>::new());
    }

    #[test]
    fn selection_of_unknown_controllers_names_them_without_the_dash() {
        let error = |elements: &[&str]| selection(elements).unwrap_err();
        assert_eq!(error(&["*", "-foo"]), "\"foo\" is not in the list of known controllers");
        assert_eq!(
            error(&["foo", "Deployment"]),
            "[\"foo\" is not in the list of known controllers, \"Deployment\" is not in the list of known controllers]"
        );
        assert_eq!(error(&["-*"]), "\"*\" is not in the list of known controllers");
    }

    #[test]
    fn selection_of_controllers_that_are_not_built_in_is_told_if_they_are_asked_for() {
        let not_built_in = |elements: &[&str]| selection(elements).unwrap().not_built_in();
        assert_eq!(
            not_built_in(&["*", "bootstrap-signer-controller", "tokencleaner", "-job"]),
            ["bootstrap-signer-controller", "token-cleaner-controller"]
        );
        assert!(not_built_in(&["*", "-attachdetach", "-route"]).is_empty());
        assert_eq!(
            selection(&["*", "-csrcleaner"]).unwrap().elements(),
            ["*", "-certificatesigningrequest-cleaner-controller"]
        );
    }

    #[test]
    fn known_controllers_are_sorted_and_hold_those_built_in_with_their_aliases() {
        assert!(KNOWN.is_sorted_by_key(|one| one.name));
        for one in CONTROLLERS {
            let known = KNOWN.iter().find(|known| known.name == one.name).unwrap();
            assert_eq!(known.alias.as_slice(), one.aliases);
        }
    }
}
