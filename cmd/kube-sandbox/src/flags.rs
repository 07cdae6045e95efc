//! Command-line flags.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kcm_api::GoDuration;
use kcm_apiserver::Fault;
use kcm_sandbox_server::DEFAULT_MAX_CONCURRENT_STREAMS;

use crate::envtest::Arguments;

/// Subcommand.
#[derive(Debug)]
pub(crate) enum Task {
    /// Run the demo scenario and exit.
    Demo,
    /// Serve until SIGINT or SIGTERM.
    Serve,
    /// Make the folder of the programs that envtest starts, and exit.
    Envtest(Option<PathBuf>),
    /// Serve as kube-apiserver does.
    ApiServer(Arguments),
    /// Serve as etcd does.
    Etcd(Arguments),
}

/// Parsed command line.
#[derive(Debug)]
pub(crate) struct Flags {
    pub(crate) task: Task,
    pub(crate) listen: SocketAddr,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) nodes: usize,
    pub(crate) pod_ready_delay: Duration,
    pub(crate) pod_stop_delay: Duration,
    pub(crate) advertise_version: Option<String>,
    pub(crate) with_controllers: bool,
    /// Runs the API server without simulated components.
    pub(crate) bare: bool,
    pub(crate) missing_image_tags: Vec<String>,
    pub(crate) verbosity: u8,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) tls: bool,
    pub(crate) max_concurrent_streams: u32,
    pub(crate) token_auth_file: Option<PathBuf>,
    /// `true` if requests without credentials can be anonymous.
    pub(crate) anonymous_auth: bool,
    /// Issuer of the tokens of service accounts.
    pub(crate) service_account_issuer: Option<String>,
    /// `true` if roles and bindings authorize requests.
    pub(crate) rbac: bool,
    pub(crate) audit_log_path: Option<PathBuf>,
    pub(crate) audit_policy_file: Option<PathBuf>,
    pub(crate) faults: Vec<Fault>,
}

impl Flags {
    /// Parses the arguments of the process, including the program name.
    pub(crate) fn parse(arguments: impl Iterator<Item = std::ffi::OsString>) -> Result<Self, clap::Error> {
        command().try_get_matches_from(arguments).map(|matches| Self::from(&matches))
    }
}

/// Flags of a command line without arguments.
impl Default for Flags {
    fn default() -> Self {
        Self::from(&command().get_matches_from(["kube-sandbox"]))
    }
}

impl From<&ArgMatches> for Flags {
    fn from(matches: &ArgMatches) -> Self {
        let duration = |name: &str| matches.get_one::<Duration>(name).copied().unwrap_or_default();
        let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
        Self {
            task: match matches.subcommand() {
                Some(("demo", _)) => Task::Demo,
                Some(("envtest", matches)) => Task::Envtest(matches.get_one("dir").cloned()),
                _ => Task::Serve,
            },
            listen: matches.get_one("listen").copied().unwrap_or(DEFAULT_LISTEN),
            kubeconfig: path("kubeconfig"),
            nodes: matches.get_one("nodes").copied().unwrap_or(1),
            pod_ready_delay: duration("pod-ready-delay"),
            pod_stop_delay: duration("pod-stop-delay"),
            advertise_version: matches.get_one("advertise-version").cloned(),
            with_controllers: !matches.get_flag("without-controllers") && !matches.get_flag("bare"),
            bare: matches.get_flag("bare"),
            missing_image_tags: matches
                .get_many("missing-image-tag")
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            verbosity: matches.get_one("v").copied().unwrap_or(0),
            data_dir: path("data-dir"),
            tls: matches.get_flag("tls"),
            max_concurrent_streams: matches
                .get_one("max-concurrent-streams")
                .copied()
                .unwrap_or(DEFAULT_MAX_CONCURRENT_STREAMS),
            token_auth_file: path("token-auth-file"),
            anonymous_auth: true,
            service_account_issuer: None,
            rbac: false,
            audit_log_path: path("audit-log-path"),
            audit_policy_file: path("audit-policy-file"),
            faults: matches.get_many("fault").into_iter().flatten().cloned().collect(),
        }
    }
}

/// Server address that `kubectl` uses without a kubeconfig.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

fn command() -> Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).global(true)
    };
    Command::new("kube-sandbox")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Kubernetes API server in one process, with simulated nodes and the Deployment and ReplicaSet controllers.")
        .subcommand(Command::new("demo").about("Run a rollout scenario, print its progress, and exit"))
        .subcommand(
            Command::new("envtest")
                .about("Make a folder for KUBEBUILDER_ASSETS, in which kube-apiserver and etcd are this program, print its path, and exit")
                .arg(
                    Arg::new("dir")
                        .long("dir")
                        .value_name("DIRECTORY")
                        .help("Folder to make [default: kube-sandbox/envtest in the user's cache directory]")
                        .value_parser(value_parser!(PathBuf)),
                ),
        )
        .arg(
            flag(
                "listen",
                "ADDRESS:PORT",
                "Address and port to listen on; 0 selects a free port. Addresses other than loopback require --tls and \
                 --token-auth-file [default: 127.0.0.1:8080]",
            )
            .value_parser(value_parser!(SocketAddr)),
        )
        .arg(
            flag("data-dir", "DIRECTORY", "Directory that stores all objects across restarts [default: none, objects are kept in memory]")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("tls", "", "Serve TLS with a self-signed certificate that the kubeconfig trusts")
                .action(ArgAction::SetTrue),
        )
        .arg(
            flag(
                "max-concurrent-streams",
                "N",
                "Maximum number of concurrent streams per HTTP/2 connection [default: 100]",
            )
            .value_parser(value_parser!(u32).range(1..)),
        )
        .arg(
            flag(
                "token-auth-file",
                "FILE",
                "Require a bearer token from this file; lines have the form token,user,uid,\"group1,group2\"",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("audit-log-path", "FILE", "Append audit events to this file, one JSON object per line")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("audit-policy-file", "FILE", "audit.k8s.io/v1 Policy that selects the requests to audit [default: all requests]")
                .requires("audit-log-path")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag(
                "fault",
                "RULE",
                "Inject a fault into matching requests, for example 'POST /api/v1/namespaces/*/pods 429 retry-after=1 \
                 times=3'. Can be repeated; see docs/sandbox.md",
            )
            .action(ArgAction::Append)
            .value_parser(|rule: &str| rule.parse::<Fault>()),
        )
        .arg(
            flag(
                "kubeconfig",
                "FILE",
                "File to write the kubeconfig to [default: kube-sandbox/kubeconfig in the user's cache directory]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("nodes", "N", "Number of simulated nodes")
                .default_value("1")
                .value_parser(value_parser!(usize)),
        )
        .arg(
            flag("pod-ready-delay", "DURATION", "Time from binding to readiness of a pod, for example 500ms or 2s")
                .default_value("1s")
                .value_parser(duration),
        )
        .arg(
            flag(
                "pod-stop-delay",
                "DURATION",
                "Time from deletion to removal of a pod; a shorter grace period takes precedence",
            )
            .default_value("500ms")
            .value_parser(duration),
        )
        .arg(flag("advertise-version", "VERSION", "Version that /version reports, for example v1.35.0 [default: v1.36.0]"))
        .arg(
            flag("without-controllers", "", "Do not run controllers, for use with another controller manager")
                .action(ArgAction::SetTrue),
        )
        .arg(
            flag(
                "bare",
                "",
                "Run the API server alone: no controllers, nodes, scheduler, kubelets, garbage collector, namespace, \
                 service account, disruption and quota controllers, and no published Service and ConfigMaps",
            )
            .action(ArgAction::SetTrue)
            .conflicts_with_all(["nodes", "missing-image-tag"]),
        )
        .arg(
            flag(
                "missing-image-tag",
                "TAG",
                "Tag of images that cannot be pulled, in addition to broken, 404 and does-not-exist. Can be repeated",
            )
            .action(ArgAction::Append),
        )
        .arg(
            Arg::new("v")
                .short('v')
                .long("v")
                .value_name("LEVEL")
                .global(true)
                .help("Log verbosity: 0 warnings, 1 write requests, 2 all requests, 4 decisions of the controllers")
                .value_parser(value_parser!(u8)),
        )
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = GoDuration::parse(text).ok().and_then(GoDuration::to_std);
    duration.ok_or_else(|| format!("invalid duration {text:?}, expected for example 500ms, 2s or 1m"))
}
