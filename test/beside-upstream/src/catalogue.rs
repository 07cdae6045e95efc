//! The catalogue of faults: data in `catalogue.yaml`. `inject` implements the effects.

use std::{sync::LazyLock, time::Duration};

use serde::{Deserialize, Deserializer};

use crate::proxy::{http::Http, tcp::Tcp};

/// Fault of the catalogue.
#[derive(Debug, Deserialize)]
pub(crate) struct Fault {
    /// Name for `--faults`.
    pub(crate) name: String,
    /// Description on the result page.
    pub(crate) what: String,
    pub(crate) effect: Effect,
    pub(crate) lasts: Lasts,
    /// Unit of the counter that shows that the fault reached the manager.
    pub(crate) reached: String,
    /// Bounds of this manager, if upstream's is not given.
    pub(crate) bounds: Bounds,
    /// Decision record of a safety rule that costs something under this fault.
    pub(crate) rule: Option<Rule>,
}

/// Decision record of a deliberate safety rule.
#[derive(Debug, Deserialize)]
pub(crate) struct Rule {
    /// Path in `docs`.
    pub(crate) adr: String,
    /// The rule.
    pub(crate) text: String,
    /// Names of the quantities that it costs.
    pub(crate) costs: Vec<String>,
}

/// Time between the start and the end of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Lasts {
    /// Seconds after the start. The effects that are single events have zero.
    Seconds(u64),
    /// From before the start of the manager to the end of the run. Convergence is measured from the start of the rollout.
    Throughout,
}

/// Limits of the measurements.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Bounds {
    /// Seconds without a leader.
    pub(crate) without_leader: f64,
    /// Seconds from the end of the fault to convergence.
    pub(crate) convergence: f64,
    /// Pods created in excess.
    pub(crate) excess: i64,
    /// Exits of the process.
    pub(crate) exits: u64,
}

/// Effect of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Effect {
    /// Behaviour of the TCP proxy.
    Tcp(Tcp),
    /// Behaviour of the HTTP proxy.
    Http(Http),
    /// The name of the API server has two addresses, of which the first answers no dial.
    DeadAddress,
    /// The DNS server does not answer, and the connections are closed.
    Dns,
    /// The API server has another certificate of the same CA, and the connections are closed.
    Certificate,
    /// The API server and the CA file have another CA, and the connections are closed.
    Authority,
    /// The exec plugin of the kubeconfig does not return. Its tokens are valid for this number of seconds.
    ExecPlugin {
        /// Validity of a token.
        seconds: i64,
    },
    /// The API server is killed and started again.
    Restart,
    /// etcd is stopped by SIGSTOP.
    EtcdStopped,
    /// The manager is disconnected, etcd is compacted, and the API server is restarted, so that its watch cache is empty.
    Compaction,
    /// etcd and the API server are killed and started with the data of five seconds ago.
    Restore,
    /// The API server has no streaming lists.
    WithoutWatchList,
    /// The requests of the manager have a priority level with two seats.
    TwoSeats,
    /// Rules and webhooks of the API server.
    Admission(Admission),
    /// SIGSTOP, and SIGCONT at the end.
    Stop,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// Control group with a percentage of one processor.
    CpuQuota(u64),
    /// Control group with this number of MiB.
    Memory(u64),
    /// Number of file descriptors.
    Descriptors(u64),
    /// `--cert-dir` cannot be created.
    CertificateDirectory,
    /// Two managers; the connections of the leader forward nothing.
    Partition,
    /// Hostile client of the secure port.
    Client(Client),
}

/// Rules and webhooks of the API server for the namespace of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Admission {
    /// A ValidatingAdmissionPolicy refuses pods whose names end in 2 to 9.
    NamesRefused,
    /// A webhook removes the owner references of new pods.
    OwnersStripped,
    /// A webhook changes the label of new pods that their ReplicaSet selects by.
    LabelsChanged,
    /// A webhook adds a finalizer to new pods. It is removed from terminating pods.
    FinalizersAdded,
    /// A webhook answers the creation of a pod after 25 s.
    Slow,
    /// A webhook with `failurePolicy: Fail` has no server.
    Absent,
    /// A quota admits no further pods.
    Quota,
    /// A LimitRange adds limits to new pods.
    LimitRange,
    /// A webhook sets the replicas of ReplicaSets to at most 30.
    ReplicasMutated,
    /// A second namespace with a Deployment is being deleted.
    NamespaceTerminating,
}

/// Client of the secure port. The functions are in the module `clients`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    ChainOfNames,
    DeepChain,
    Handshakes,
    Bytes,
    LargeHeaders,
    LargeStreams,
    RandomTokens,
    RapidReset,
    Continuation,
    Settings,
    Ping,
    ZeroWindows,
    UnreadScrapes,
}

/// Group of faults.
#[derive(Debug, Deserialize)]
pub(crate) struct Group {
    /// Heading on the result page.
    pub(crate) name: String,
    pub(crate) faults: Vec<Fault>,
}

/// All groups.
pub(crate) static CATALOGUE: LazyLock<Vec<Group>> = LazyLock::new(|| {
    #[derive(Default, Deserialize)]
    struct Catalogue {
        groups: Vec<Group>,
    }
    // A test parses the file.
    serde_saphyr::from_str::<Catalogue>(include_str!("catalogue.yaml")).unwrap_or_default().groups
});

/// Deserializes a number of seconds.
pub(crate) fn seconds<'de, D: Deserializer<'de>>(number: D) -> Result<Duration, D::Error> {
    f64::deserialize(number).map(Duration::from_secs_f64)
}

/// All faults in the order of the page.
pub(crate) fn all() -> impl Iterator<Item = &'static Fault> {
    CATALOGUE.iter().flat_map(|group| &group.faults)
}

/// Returns the fault with this name.
pub(crate) fn find(name: &str) -> Option<&'static Fault> {
    all().find(|fault| fault.name == name)
}

impl Effect {
    /// `true` if the HTTP proxy is between the TCP proxy and the API server.
    pub(crate) fn needs_http_proxy(&self) -> bool {
        matches!(self, Self::Http(_) | Self::Certificate | Self::Authority)
    }

    /// `true` if it consists of bursts with pauses.
    pub(crate) fn has_pauses(&self) -> bool {
        matches!(self, Self::Http(Http::Refuse { pause, .. }) if !pause.is_zero())
    }

    /// `true` if the embedded API server can produce it.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(
            self,
            Self::Tcp(_)
                | Self::Http(_)
                | Self::Certificate
                | Self::Stop
                | Self::Terminate
                | Self::Kill
                | Self::Partition
                | Self::Client(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;

    #[test]
    fn names_are_unique_and_rules_are_decision_records() {
        let mut names = BTreeSet::new();
        assert_eq!(all().count(), 65);
        for fault in all() {
            assert!(names.insert(&fault.name), "{}", fault.name);
            if let Some(rule) = &fault.rule {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
                assert!(folder.join(&rule.adr).exists(), "{}", rule.adr);
            }
        }
    }
}
