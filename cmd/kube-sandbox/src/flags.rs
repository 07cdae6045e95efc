//! What the command line says.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kcm_apiserver::{DEFAULT_MAX_CONCURRENT_STREAMS, Fault};

/// What to do.
#[derive(Debug)]
pub(crate) enum Task {
    /// Play the story and end.
    Demo,
    /// Serve until told to stop.
    Serve,
}

/// The command line, understood.
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
    pub(crate) verbosity: u8,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) tls: bool,
    pub(crate) max_concurrent_streams: u32,
    pub(crate) token_auth_file: Option<PathBuf>,
    pub(crate) audit_log_path: Option<PathBuf>,
    pub(crate) audit_policy_file: Option<PathBuf>,
    pub(crate) faults: Vec<Fault>,
}

impl Flags {
    /// Understands the arguments of the process; the first is the program's name.
    pub(crate) fn parse(arguments: impl Iterator<Item = std::ffi::OsString>) -> Result<Self, clap::Error> {
        command().try_get_matches_from(arguments).map(|matches| Self::from(&matches))
    }
}

impl From<&ArgMatches> for Flags {
    fn from(matches: &ArgMatches) -> Self {
        let duration = |name: &str| matches.get_one::<Duration>(name).copied().unwrap_or_default();
        let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
        Self {
            task: if matches.subcommand_matches("demo").is_some() { Task::Demo } else { Task::Serve },
            listen: matches.get_one("listen").copied().unwrap_or(DEFAULT_LISTEN),
            kubeconfig: path("kubeconfig"),
            nodes: matches.get_one("nodes").copied().unwrap_or(1),
            pod_ready_delay: duration("pod-ready-delay"),
            pod_stop_delay: duration("pod-stop-delay"),
            advertise_version: matches.get_one("advertise-version").cloned(),
            with_controllers: !matches.get_flag("without-controllers"),
            verbosity: matches.get_one("v").copied().unwrap_or(0),
            data_dir: path("data-dir"),
            tls: matches.get_flag("tls"),
            max_concurrent_streams: matches
                .get_one("max-concurrent-streams")
                .copied()
                .unwrap_or(DEFAULT_MAX_CONCURRENT_STREAMS),
            token_auth_file: path("token-auth-file"),
            audit_log_path: path("audit-log-path"),
            audit_policy_file: path("audit-policy-file"),
            faults: matches.get_many("fault").into_iter().flatten().cloned().collect(),
        }
    }
}

/// Where `kubectl` looks when nobody tells it.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

fn command() -> Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).global(true)
    };
    Command::new("kube-sandbox")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A Kubernetes API server in one process, with simulated nodes and working Deployments.")
        .subcommand(Command::new("demo").about("Play a rollout story and end"))
        .arg(
            flag(
                "listen",
                "ADDRESS:PORT",
                "Where to serve, loopback only without --tls and --token-auth-file; port 0 takes a free one [default: \
                 127.0.0.1:8080]",
            )
            .value_parser(value_parser!(SocketAddr)),
        )
        .arg(
            flag("data-dir", "DIRECTORY", "Where to keep everything across restarts [default: nowhere]")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("tls", "", "Serve TLS, with a certificate of its own; the kubeconfig trusts it")
                .action(ArgAction::SetTrue),
        )
        .arg(
            flag(
                "max-concurrent-streams",
                "N",
                "Maximum number of concurrent streams on an HTTP/2 connection [default: 100]",
            )
            .value_parser(value_parser!(u32).range(1..)),
        )
        .arg(
            flag(
                "token-auth-file",
                "FILE",
                "Let in only who shows a token of this file, with lines token,user,uid,\"group1,group2\"",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("audit-log-path", "FILE", "Append each request to this file, a line of JSON each")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("audit-policy-file", "FILE", "Which requests to append, as an audit.k8s.io/v1 Policy [default: all]")
                .requires("audit-log-path")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag(
                "fault",
                "RULE",
                "Harm requests, such as 'POST /api/v1/namespaces/*/pods 429 retry-after=1 times=3'; may be repeated, \
                 see docs/sandbox.md",
            )
            .action(ArgAction::Append)
            .value_parser(|rule: &str| rule.parse::<Fault>()),
        )
        .arg(
            flag(
                "kubeconfig",
                "FILE",
                "Where to write the kubeconfig [default: in the user's cache directory]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("nodes", "N", "How many simulated nodes there are")
                .default_value("1")
                .value_parser(value_parser!(usize)),
        )
        .arg(
            flag("pod-ready-delay", "DURATION", "From being scheduled to being ready, such as 500ms or 2s")
                .default_value("1s")
                .value_parser(duration),
        )
        .arg(
            flag(
                "pod-stop-delay",
                "DURATION",
                "From being deleted to being gone, unless the grace period is shorter",
            )
            .default_value("500ms")
            .value_parser(duration),
        )
        .arg(flag("advertise-version", "VERSION", "The version that /version tells, such as v1.32.0"))
        .arg(
            flag("without-controllers", "", "Run neither controller, so that another manager can")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("v")
                .short('v')
                .long("v")
                .value_name("LEVEL")
                .global(true)
                .help("How much to log: 0 warnings, 1 requests that write, 2 all requests, 4 decisions")
                .value_parser(value_parser!(u8)),
        )
}

/// Seconds, milliseconds or minutes.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration such as 500ms, 2s or 1m");
    let (number, unit) = if let Some(number) = text.strip_suffix("ms") {
        (number, 0.001)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60.0)
    } else {
        return Err(bad());
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| bad())
}
