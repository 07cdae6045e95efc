//! The configuration that flags add up to, checked.
//!
//! | what | file |
//! |---|---|
//! | what the controllers do, and which lease they need | here |
//! | the versions to behave as | `config/versions.rs` |
//! | the secure port, and who may ask there | `config/serving.rs` |
//! | metrics | `config/metrics.rs` |
//! | logging | `config/logging.rs` |
//! | flags of controllers that are not built in | `config/foreign.rs` |

use std::time::Duration;

use kcm_client::{RateLimit, Server};
use kcm_leader_election::JITTER_FACTOR;
use thiserror::Error;

use crate::{
    feature_gates::{ControllerFeatures, FeatureGates},
    flags::Flags,
    selection::Selection,
};

mod foreign;
mod logging;
mod metrics;
mod serving;
mod versions;

pub(crate) use foreign::check as check_foreign;
pub(crate) use logging::logging;
pub(crate) use metrics::metrics;
pub(crate) use serving::{authentication, authorization, serving};
pub(crate) use versions::check as check_versions;

/// What a manager does. The defaults are upstream's (US-1.5).
#[derive(Debug, Clone, PartialEq)]
pub struct ManagerConfig {
    /// Which controllers run.
    pub controllers: Selection,
    /// How many Deployments are worked on at once.
    pub concurrent_deployment_syncs: usize,
    /// How many ReplicaSets are worked on at once.
    pub concurrent_replica_set_syncs: usize,
    /// How many ReplicationControllers are worked on at once.
    pub concurrent_replication_controller_syncs: usize,
    /// How often each controller may ask the API server.
    pub rate_limit: RateLimit,
    /// After how long each object is looked at again; up to twice that, drawn at random. Zero: never.
    pub min_resync_period: Duration,
    /// How long each controller waits before it starts; likewise.
    pub controller_start_interval: Duration,
    /// How long controllers may take to stop. Zero: for ever.
    pub controller_shutdown_timeout: Duration,
    /// Feature gates that change the controllers.
    pub features: ControllerFeatures,
    /// The lease to run under. `None`: there is no election, and no other manager may run the same controllers.
    ///
    /// The default for whoever embeds a manager; a command line that does not say `--leader-elect=false` elects.
    pub leader_election: Option<LeaderElectionSettings>,
}

/// Which lease to hold while the controllers run, and how: `--leader-elect-*`. The defaults are upstream's (US-1.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionSettings {
    /// How long others wait after they last saw the leader renew.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// How long to wait between two tries.
    pub retry_period: Duration,
    /// The Lease's name.
    pub resource_name: String,
    /// The Lease's namespace.
    pub resource_namespace: String,
    /// If `true`, the Lease is released when the manager stops.
    pub release_on_cancel: bool,
}

impl Default for LeaderElectionSettings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            resource_name: "kube-controller-manager".to_owned(),
            resource_namespace: "kube-system".to_owned(),
            // DEVIATION: upstream's default is the gate `ControllerManagerReleaseLeaderElectionLockOnExit`, which is
            // off in v1.36: the next leader waits until the lease has expired.
            release_on_cancel: true,
        }
    }
}

impl Default for ManagerConfig {
    fn default() -> Self {
        Self {
            controllers: Selection::default(),
            concurrent_deployment_syncs: 5,
            concurrent_replica_set_syncs: 5,
            concurrent_replication_controller_syncs: 5,
            rate_limit: RateLimit::DEFAULT,
            min_resync_period: Duration::from_secs(12 * 60 * 60),
            controller_start_interval: Duration::ZERO,
            controller_shutdown_timeout: Duration::from_secs(10),
            features: ControllerFeatures::default(),
            leader_election: None,
        }
    }
}

/// Flags that do not add up: all that is wrong with them, in upstream's words where upstream has any.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", in_one_line(.0))]
pub struct OptionsError(Vec<String>);

impl OptionsError {
    /// What is wrong, one by one.
    pub fn problems(&self) -> &[String] {
        &self.0
    }
}

/// As upstream joins errors: each once.
pub(crate) fn in_one_line(problems: &[String]) -> String {
    let mut each: Vec<&str> = Vec::new();
    for problem in problems {
        if !each.contains(&problem.as_str()) {
            each.push(problem);
        }
    }
    if let [one] = each[..] { one.to_owned() } else { format!("[{}]", each.join(", ")) }
}

/// What has been found wrong so far, and what whoever gave the flags should know.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    problems: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Diagnostics {
    pub(crate) fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    pub(crate) fn problems(&mut self, texts: impl IntoIterator<Item = String>) {
        self.problems.extend(texts);
    }

    pub(crate) fn warning(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Returns the diagnostics for further checks if there is no error so far.
    ///
    /// # Errors
    ///
    /// All errors so far.
    pub(crate) fn into_result(self) -> Result<Self, OptionsError> {
        if self.problems.is_empty() { Ok(self) } else { Err(OptionsError(self.problems)) }
    }

    /// The time that a flag names.
    ///
    /// DEVIATION: upstream takes times below zero, and means nothing by them.
    pub(crate) fn span(&mut self, flags: &Flags, name: &str) -> Duration {
        let duration = flags.duration(name);
        duration.span().unwrap_or_else(|| {
            self.problem(format!("--{name} must not be negative, got {duration}"));
            Duration::ZERO
        })
    }
}

impl ManagerConfig {
    pub(crate) fn from_flags(flags: &Flags, gates: &FeatureGates, diagnostics: &mut Diagnostics) -> Self {
        let leader_election = leader_election(flags, gates, diagnostics);
        let controllers = Selection::new(flags.list("controllers")).unwrap_or_else(|unknown| {
            diagnostics.problems(unknown.0);
            Selection::default()
        });
        let not_built_in = controllers.not_built_in();
        if !not_built_in.is_empty() {
            diagnostics.warning(format!(
                "--controllers asks for controllers that are not built in: {}",
                not_built_in.join(", ")
            ));
        }
        if flags.bool("enable-leader-migration") {
            diagnostics
                .warning("--enable-leader-migration has no effect: no controller that migrates is built in");
        }
        if flags.is_given("kube-api-content-type")
            && flags.text("kube-api-content-type") != "application/json"
        {
            diagnostics.warning("--kube-api-content-type has no effect: requests are written in JSON");
        }
        Self {
            controllers,
            concurrent_deployment_syncs: workers(flags, "concurrent-deployment-syncs", diagnostics),
            concurrent_replica_set_syncs: workers(flags, "concurrent-replicaset-syncs", diagnostics),
            concurrent_replication_controller_syncs: workers(flags, "concurrent-rc-syncs", diagnostics),
            rate_limit: rate_limit(flags, diagnostics),
            min_resync_period: diagnostics.span(flags, "min-resync-period"),
            controller_start_interval: diagnostics.span(flags, "controller-start-interval"),
            controller_shutdown_timeout: diagnostics.span(flags, "controller-shutdown-timeout"),
            features: ControllerFeatures::from(gates),
            leader_election,
        }
    }
}

/// Where the API server is.
pub(crate) fn server(flags: &Flags) -> Server {
    let (kubeconfig, master) = (flags.text("kubeconfig"), flags.text("master"));
    match (kubeconfig.is_empty(), master.is_empty()) {
        (false, no_master) => {
            Server::Kubeconfig { path: kubeconfig.into(), master: (!no_master).then(|| master.to_owned()) }
        }
        (true, false) => Server::Master(master.to_owned()),
        (true, true) => Server::InCluster,
    }
}

/// `None` if there is to be no election; then nothing of it is looked at, as upstream.
fn leader_election(
    flags: &Flags,
    gates: &FeatureGates,
    diagnostics: &mut Diagnostics,
) -> Option<LeaderElectionSettings> {
    use kcm_leader_election::ElectionConfigError as Wrong;
    if !flags.bool("leader-elect") {
        return None;
    }
    if flags.text("leader-elect-resource-lock") != "leases" {
        diagnostics.problem("resourceLock value must be \"leases\"");
    }
    let lease = flags.duration("leader-elect-lease-duration").nanos();
    let renew = flags.duration("leader-elect-renew-deadline").nanos();
    let retry = flags.duration("leader-elect-retry-period").nanos();
    // What client-go says, in its order, when it is too late to say it well.
    if lease <= renew {
        diagnostics.problem(Wrong::LeaseNotAboveDeadline.to_string());
    } else if renew as f64 <= retry as f64 * JITTER_FACTOR {
        diagnostics.problem(Wrong::DeadlineNotAboveRetry.to_string());
    } else if lease < 1_000_000_000 {
        diagnostics.problem(Wrong::LeaseUnderOneSecond.to_string());
    } else if retry < 1 {
        diagnostics.problem(Wrong::NoRetryPeriod.to_string());
    }
    for name in ["leader-elect-resource-name", "leader-elect-resource-namespace"] {
        if flags.text(name).is_empty() {
            diagnostics.problem(format!("--{name} must not be empty"));
        }
    }
    let span = |name| flags.duration(name).span().unwrap_or_default();
    Some(LeaderElectionSettings {
        lease_duration: span("leader-elect-lease-duration"),
        renew_deadline: span("leader-elect-renew-deadline"),
        retry_period: span("leader-elect-retry-period"),
        resource_name: flags.text("leader-elect-resource-name").to_owned(),
        resource_namespace: flags.text("leader-elect-resource-namespace").to_owned(),
        release_on_cancel: gates
            .setting("ControllerManagerReleaseLeaderElectionLockOnExit")
            .unwrap_or(LeaderElectionSettings::default().release_on_cancel),
    })
}

/// A controller without workers would do nothing, and look well.
///
/// DEVIATION: upstream starts it.
fn workers(flags: &Flags, name: &str, diagnostics: &mut Diagnostics) -> usize {
    let value = flags.int(name);
    usize::try_from(value).ok().filter(|workers| *workers > 0).unwrap_or_else(|| {
        diagnostics.problem(format!("{name} must be greater than 0, but got {value}"));
        1
    })
}

/// client-go's rules: no rate means its own default, a negative one means no limit.
fn rate_limit(flags: &Flags, diagnostics: &mut Diagnostics) -> RateLimit {
    const CLIENT_GO_QPS: f64 = 5.0;
    const CLIENT_GO_BURST: u32 = 10;
    let (qps, burst) = (flags.float("kube-api-qps"), flags.int("kube-api-burst"));
    if qps.is_nan() {
        // DEVIATION: upstream takes it for a rate.
        diagnostics.problem("--kube-api-qps must be a number");
        return RateLimit::DEFAULT;
    }
    if qps < 0.0 || qps.is_infinite() {
        return RateLimit::UNLIMITED;
    }
    match u32::try_from(burst).unwrap_or_default() {
        0 if qps == 0.0 => RateLimit { qps: CLIENT_GO_QPS, burst: CLIENT_GO_BURST },
        0 => {
            diagnostics.problem(
                "burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0",
            );
            RateLimit::DEFAULT
        }
        burst => RateLimit { qps: if qps == 0.0 { CLIENT_GO_QPS } else { qps }, burst },
    }
}

#[cfg(test)]
mod tests;
