//! Configuration of the manager: derived from flags and validated.
//!
//! | Configuration | File |
//! |---|---|
//! | controllers and leader election | `config.rs` |
//! | emulated version | `config/versions.rs` |
//! | secure port, authentication and authorization | `config/serving.rs` |
//! | metrics | `config/metrics.rs` |
//! | logging | `config/logging.rs` |
//! | flags of controllers that are not part of this binary | `config/foreign.rs` |

use std::time::Duration;

use kcm_client::{ContentType, RateLimit, Server};
use kcm_leader_election::{ElectionConfigError, JITTER_FACTOR};
use kcm_manager::LeaderElectionSettings;
use thiserror::Error;

use crate::{
    aggregate::aggregate,
    feature_gates::{self, ControllerFeatures, FeatureGates},
    flags::Flags,
    selection::ControllerSelection,
    version::BINARY,
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

/// Configuration of the manager. The defaults are upstream's (US-1.5).
///
/// Upstream counterpart: `KubeControllerManagerConfiguration`.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagerConfig {
    /// Controllers to run.
    pub controllers: ControllerSelection,
    /// Number of Deployments that are synced concurrently.
    pub concurrent_deployment_syncs: usize,
    /// Number of ReplicaSets that are synced concurrently.
    pub concurrent_replica_set_syncs: usize,
    /// Number of ReplicationControllers that are synced concurrently.
    pub concurrent_replication_controller_syncs: usize,
    /// Rate limit of each controller's requests to the API server.
    pub rate_limit: RateLimit,
    /// Minimum resync period. Each informer uses a random period of up to twice this time. Zero disables resyncs.
    pub min_resync_period: Duration,
    /// Minimum delay before a controller is started; up to twice this time, chosen at random.
    pub controller_start_interval: Duration,
    /// Time for controllers to stop. Zero means no limit.
    pub controller_shutdown_timeout: Duration,
    /// Feature gates that change the controllers.
    pub features: ControllerFeatures,
    /// Leader election. `None` disables it; then no other manager may run the same controllers.
    ///
    /// Disabled by default. The command line enables it unless it contains `--leader-elect=false`.
    pub leader_election: Option<LeaderElectionSettings>,
}

/// Returns `true` if the Lease is that of upstream's manager with default flags.
fn is_upstreams_lease(settings: &LeaderElectionSettings) -> bool {
    settings.resource_name == BINARY && settings.resource_namespace == LEASE_NAMESPACE
}

/// Namespace of upstream's Lease.
const LEASE_NAMESPACE: &str = "kube-system";

/// Error if the name of the Lease is missing.
///
/// DEVIATION: upstream has a default name. A manager that competes for upstream's Lease by default would stop the
/// controllers that are not part of it.
const NO_LEASE_NAME: &str = "--leader-elect-resource-name must be set: either to kube-controller-manager-rs, to run beside \
    upstream's manager, whose flag --controllers=*,-deployment-controller,-replicaset-controller then disables these \
    controllers there; or to kube-controller-manager, to lead in place of upstream's manager, so that no process runs the \
    controllers that are not part of this binary. --leader-elect=false disables leader election";

impl Default for ManagerConfig {
    fn default() -> Self {
        Self {
            controllers: ControllerSelection::default(),
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

/// Invalid options. The messages are upstream's where upstream rejects the same options.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", aggregate(.0))]
pub struct OptionsError(Vec<String>);

impl OptionsError {
    /// One message for each invalid option.
    pub fn errors(&self) -> &[String] {
        &self.0
    }
}

/// Errors and warnings about options.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Diagnostics {
    pub(crate) fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    pub(crate) fn errors(&mut self, texts: impl IntoIterator<Item = String>) {
        self.errors.extend(texts);
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
        if self.errors.is_empty() { Ok(self) } else { Err(OptionsError(self.errors)) }
    }

    /// Value of a duration flag. A negative value is an error.
    ///
    /// DEVIATION: upstream accepts negative durations.
    pub(crate) fn duration(&mut self, flags: &Flags, name: &str) -> Duration {
        let duration = flags.duration(name);
        duration.to_std().unwrap_or_else(|| {
            self.error(format!("--{name} must not be negative, got {duration}"));
            Duration::ZERO
        })
    }
}

impl ManagerConfig {
    /// Controllers of upstream's manager that no process runs while this one leads. Empty unless the Lease is that of
    /// upstream's manager.
    pub fn unserved_controllers(&self) -> Vec<&'static str> {
        match &self.leader_election {
            Some(settings) if is_upstreams_lease(settings) => self.controllers.unserved(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn from_flags(flags: &Flags, gates: &FeatureGates, diagnostics: &mut Diagnostics) -> Self {
        let leader_election = leader_election(flags, gates, diagnostics);
        let controllers = ControllerSelection::new(flags.list("controllers")).unwrap_or_else(|unknown| {
            diagnostics.errors(unknown.0);
            ControllerSelection::default()
        });
        let unavailable = controllers.unavailable();
        if !unavailable.is_empty() {
            diagnostics.warning(format!(
                "--controllers selects controllers that are not part of this binary: {}",
                unavailable.join(", ")
            ));
        }
        if flags.bool("enable-leader-migration") {
            diagnostics
                .warning("--enable-leader-migration has no effect: no controller of this binary supports it");
        }
        Self {
            controllers,
            concurrent_deployment_syncs: workers(flags, "concurrent-deployment-syncs", diagnostics),
            concurrent_replica_set_syncs: workers(flags, "concurrent-replicaset-syncs", diagnostics),
            concurrent_replication_controller_syncs: workers(flags, "concurrent-rc-syncs", diagnostics),
            rate_limit: rate_limit(flags, diagnostics),
            min_resync_period: diagnostics.duration(flags, "min-resync-period"),
            controller_start_interval: diagnostics.duration(flags, "controller-start-interval"),
            controller_shutdown_timeout: diagnostics.duration(flags, "controller-shutdown-timeout"),
            features: ControllerFeatures::from(gates),
            leader_election,
        }
    }
}

/// Encoding of requests to the API server. As upstream, an empty value is JSON.
///
/// DEVIATION: with an unknown value, upstream starts, and its writes fail.
pub(crate) fn content_type(flags: &Flags, diagnostics: &mut Diagnostics) -> ContentType {
    match flags.text("kube-api-content-type") {
        "application/vnd.kubernetes.protobuf" => ContentType::Protobuf,
        "" | "application/json" => ContentType::Json,
        other => {
            diagnostics
                .warning(format!("--kube-api-content-type={other} is not supported, using application/json"));
            ContentType::Json
        }
    }
}

/// API server that the flags select.
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

/// Settings of leader election. If it is disabled, its flags are not validated, as upstream.
fn leader_election(
    flags: &Flags,
    gates: &FeatureGates,
    diagnostics: &mut Diagnostics,
) -> Option<LeaderElectionSettings> {
    if !flags.bool("leader-elect") {
        return None;
    }
    if flags.text("leader-elect-resource-lock") != "leases" {
        diagnostics.error("resourceLock value must be \"leases\"");
    }
    let lease = flags.duration("leader-elect-lease-duration").nanos();
    let renew = flags.duration("leader-elect-renew-deadline").nanos();
    let retry = flags.duration("leader-elect-retry-period").nanos();
    // The checks of client-go's `NewLeaderElector`, in its order.
    if lease <= renew {
        diagnostics.error(ElectionConfigError::LeaseNotAboveDeadline.to_string());
    } else if renew as f64 <= retry as f64 * JITTER_FACTOR {
        diagnostics.error(ElectionConfigError::DeadlineNotAboveRetry.to_string());
    } else if lease < 1_000_000_000 {
        diagnostics.error(ElectionConfigError::LeaseUnderOneSecond.to_string());
    } else if retry < 1 {
        diagnostics.error(ElectionConfigError::NoRetryPeriod.to_string());
    }
    let resource_name = flags.text("leader-elect-resource-name");
    if resource_name.is_empty() {
        diagnostics.error(NO_LEASE_NAME);
    }
    if flags.text("leader-elect-resource-namespace").is_empty() {
        diagnostics.error("--leader-elect-resource-namespace must not be empty");
    }
    let defaults = LeaderElectionSettings::new(LEASE_NAMESPACE, resource_name);
    let duration = |name| flags.duration(name).to_std().unwrap_or_default();
    Some(LeaderElectionSettings {
        lease_duration: duration("leader-elect-lease-duration"),
        renew_deadline: duration("leader-elect-renew-deadline"),
        retry_period: duration("leader-elect-retry-period"),
        resource_namespace: flags.text("leader-elect-resource-namespace").to_owned(),
        release_on_cancel: gates
            .setting(feature_gates::RELEASE_ON_EXIT)
            .unwrap_or(defaults.release_on_cancel),
        ..defaults
    })
}

/// Number of workers of a controller, at least 1.
///
/// DEVIATION: upstream starts a controller without workers, which does nothing.
fn workers(flags: &Flags, name: &str, diagnostics: &mut Diagnostics) -> usize {
    let value = flags.int(name);
    usize::try_from(value).ok().filter(|workers| *workers > 0).unwrap_or_else(|| {
        diagnostics.error(format!("{name} must be greater than 0, but got {value}"));
        1
    })
}

/// Rate limit by client-go's rules: zero selects client-go's defaults, a negative rate means no limit.
fn rate_limit(flags: &Flags, diagnostics: &mut Diagnostics) -> RateLimit {
    const CLIENT_GO_QPS: f64 = 5.0;
    const CLIENT_GO_BURST: u32 = 10;
    let (qps, burst) = (flags.float("kube-api-qps"), flags.int("kube-api-burst"));
    if qps.is_nan() {
        // DEVIATION: upstream accepts it.
        diagnostics.error("--kube-api-qps must be a number");
        return RateLimit::DEFAULT;
    }
    if qps < 0.0 || qps.is_infinite() {
        return RateLimit::UNLIMITED;
    }
    match u32::try_from(burst).unwrap_or_default() {
        0 if qps == 0.0 => RateLimit { qps: CLIENT_GO_QPS, burst: CLIENT_GO_BURST },
        0 => {
            diagnostics.error(
                "burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0",
            );
            RateLimit::DEFAULT
        }
        burst => RateLimit { qps: if qps == 0.0 { CLIENT_GO_QPS } else { qps }, burst },
    }
}

#[cfg(test)]
mod tests;
