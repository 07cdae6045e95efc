//! The configuration that flags add up to, checked.

use std::time::Duration;

use kcm_client::{RateLimit, Server};
use thiserror::Error;

use crate::{
    descriptor::{Selection, UnknownControllers},
    flags::{FlagError, Flags},
    go_duration,
};

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
}

impl Default for LeaderElectionSettings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            resource_name: "kube-controller-manager".to_owned(),
            resource_namespace: "kube-system".to_owned(),
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
            leader_election: None,
        }
    }
}

/// Flags that do not add up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// One of them has no meaning.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// `--controllers` names what there is not.
    #[error(transparent)]
    Controllers(#[from] UnknownControllers),
    /// A controller without workers would do nothing, and look well.
    ///
    /// DEVIATION: upstream starts it.
    #[error("--{flag} must be greater than 0, got {value}")]
    NoWorkers {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: i32,
    },
    /// A rate without a burst lets nothing through.
    #[error(
        "--kube-api-burst is required to be greater than 0 when --kube-api-qps is set to greater than 0, got {0}"
    )]
    NoBurst(i32),
}

impl ManagerConfig {
    pub(crate) fn from_flags(flags: &Flags) -> Result<Self, ConfigError> {
        Ok(Self {
            controllers: Selection::new(&flags.list("controllers"))?,
            concurrent_deployment_syncs: workers(flags, "concurrent-deployment-syncs")?,
            concurrent_replica_set_syncs: workers(flags, "concurrent-replicaset-syncs")?,
            concurrent_replication_controller_syncs: workers(flags, "concurrent-rc-syncs")?,
            rate_limit: rate_limit(flags)?,
            min_resync_period: flags.parsed("min-resync-period", go_duration::parse)?,
            controller_start_interval: flags.parsed("controller-start-interval", go_duration::parse)?,
            controller_shutdown_timeout: flags.parsed("controller-shutdown-timeout", go_duration::parse)?,
            leader_election: leader_election(flags)?,
        })
    }
}

fn leader_election(flags: &Flags) -> Result<Option<LeaderElectionSettings>, FlagError> {
    if !flags.bool("leader-elect")? {
        return Ok(None);
    }
    Ok(Some(LeaderElectionSettings {
        lease_duration: flags.parsed("leader-elect-lease-duration", go_duration::parse)?,
        renew_deadline: flags.parsed("leader-elect-renew-deadline", go_duration::parse)?,
        retry_period: flags.parsed("leader-elect-retry-period", go_duration::parse)?,
        resource_name: flags.text("leader-elect-resource-name").to_owned(),
        resource_namespace: flags.text("leader-elect-resource-namespace").to_owned(),
    }))
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

/// The level of detail that klog calls verbosity.
pub(crate) fn verbosity(flags: &Flags) -> Result<u8, FlagError> {
    let level = int(flags, "v")?;
    Ok(u8::try_from(level.max(0)).unwrap_or(u8::MAX))
}

fn int(flags: &Flags, name: &'static str) -> Result<i32, FlagError> {
    flags.parsed(name, |text| text.parse().map_err(|_| "not a whole number of 32 bits"))
}

fn workers(flags: &Flags, flag: &'static str) -> Result<usize, ConfigError> {
    let value = int(flags, flag)?;
    usize::try_from(value).ok().filter(|workers| *workers > 0).ok_or(ConfigError::NoWorkers { flag, value })
}

/// client-go's rules: no rate means its own default, a negative one means no limit.
fn rate_limit(flags: &Flags) -> Result<RateLimit, ConfigError> {
    const CLIENT_GO_QPS: f64 = 5.0;
    const CLIENT_GO_BURST: u32 = 10;
    let qps = flags.parsed("kube-api-qps", |text| {
        text.parse::<f64>().ok().filter(|qps| qps.is_finite()).ok_or("not a number")
    })?;
    let burst = int(flags, "kube-api-burst")?;
    if qps < 0.0 {
        return Ok(RateLimit::UNLIMITED);
    }
    let qps = if qps == 0.0 { CLIENT_GO_QPS } else { qps };
    match u32::try_from(burst) {
        Ok(0) if flags.parsed("kube-api-qps", str::parse::<f64>)? == 0.0 => {
            Ok(RateLimit { qps, burst: CLIENT_GO_BURST })
        }
        Ok(burst) if burst > 0 => Ok(RateLimit { qps, burst }),
        _ => Err(ConfigError::NoBurst(burst)),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn flags(line: &str) -> Flags {
        Flags::parse(line.split_whitespace().map(OsString::from)).unwrap()
    }

    fn config(line: &str) -> Result<ManagerConfig, String> {
        ManagerConfig::from_flags(&flags(line)).map_err(|error| error.to_string())
    }

    #[test]
    fn config_without_flags_is_the_default() {
        assert_eq!(
            config(""),
            Ok(ManagerConfig {
                leader_election: Some(LeaderElectionSettings::default()),
                ..ManagerConfig::default()
            })
        );
        assert_eq!(config("--leader-elect=false"), Ok(ManagerConfig::default()));
    }

    #[test]
    fn config_takes_what_flags_say() {
        let line = "--controllers=deployment --concurrent-deployment-syncs=7 --concurrent_replicaset_syncs 8 \
                    --kube-api-qps=1.5 --kube-api-burst=3 --min-resync-period=1h30m \
                    --controller-start-interval=2s --controller-shutdown-timeout=0 --concurrent-rc-syncs=9 \
                    --leader-elect=true --leader-elect-resource-name=ours --leader-elect-resource-namespace=ns \
                    --leader-elect-lease-duration=60s --leader-elect-renew-deadline=40s \
                    --leader-elect-retry-period=5s";
        let expected = ManagerConfig {
            controllers: Selection::new(&["deployment".to_owned()]).unwrap(),
            concurrent_deployment_syncs: 7,
            concurrent_replica_set_syncs: 8,
            concurrent_replication_controller_syncs: 9,
            rate_limit: RateLimit { qps: 1.5, burst: 3 },
            min_resync_period: Duration::from_secs(5400),
            controller_start_interval: Duration::from_secs(2),
            controller_shutdown_timeout: Duration::ZERO,
            leader_election: Some(LeaderElectionSettings {
                lease_duration: Duration::from_secs(60),
                renew_deadline: Duration::from_secs(40),
                retry_period: Duration::from_secs(5),
                resource_name: "ours".to_owned(),
                resource_namespace: "ns".to_owned(),
            }),
        };
        assert_eq!(config(line), Ok(expected));
    }

    #[test]
    fn config_with_flags_that_do_not_add_up_is_refused() {
        let cases = [
            (
                "--concurrent-deployment-syncs=many",
                "invalid argument \"many\" for \"--concurrent-deployment-syncs\" flag: not a whole number of 32 bits",
            ),
            (
                "--concurrent-replicaset-syncs=0",
                "--concurrent-replicaset-syncs must be greater than 0, got 0",
            ),
            (
                "--concurrent-deployment-syncs=-3",
                "--concurrent-deployment-syncs must be greater than 0, got -3",
            ),
            ("--kube-api-qps=fast", "invalid argument \"fast\" for \"--kube-api-qps\" flag: not a number"),
            ("--kube-api-qps=NaN", "invalid argument \"NaN\" for \"--kube-api-qps\" flag: not a number"),
            (
                "--kube-api-burst=0",
                "--kube-api-burst is required to be greater than 0 when --kube-api-qps is set to greater than 0, got 0",
            ),
            (
                "--min-resync-period=12",
                "invalid argument \"12\" for \"--min-resync-period\" flag: \
                 not a duration such as 300ms, 1.5h or 2h45m",
            ),
            ("--controllers=*,-foo", "\"foo\" is not in the list of known controllers"),
        ];
        for (line, expected) in cases {
            assert_eq!(config(line), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn rate_limit_follows_client_go() {
        let limit = |line: &str| config(line).unwrap().rate_limit;
        assert_eq!(limit("--kube-api-qps=-1"), RateLimit::UNLIMITED);
        assert_eq!(limit("--kube-api-qps=0"), RateLimit { qps: 5.0, burst: 30 });
        assert_eq!(limit("--kube-api-qps=0 --kube-api-burst=0"), RateLimit { qps: 5.0, burst: 10 });
    }

    #[test]
    fn server_is_in_the_cluster_unless_told_otherwise() {
        assert_eq!(server(&flags("")), Server::InCluster);
        assert_eq!(server(&flags("--master=m")), Server::Master("m".to_owned()));
        let path = "k".into();
        assert_eq!(server(&flags("--kubeconfig=k")), Server::Kubeconfig { path, master: None });
        let (path, master) = ("k".into(), Some("m".to_owned()));
        assert_eq!(server(&flags("--kubeconfig=k --master=m")), Server::Kubeconfig { path, master });
    }

    #[test]
    fn verbosity_is_a_number() {
        assert_eq!(verbosity(&flags("")), Ok(0));
        assert_eq!(verbosity(&flags("-v4")), Ok(4));
        assert_eq!(verbosity(&flags("--v=-1")), Ok(0));
        assert!(verbosity(&flags("--v=loud")).is_err());
    }
}
