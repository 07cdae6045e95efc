//! Command-line flags.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Command, error::ErrorKind, value_parser};
use kcm_api::GoDuration;
use kcm_client::ConfigOverrides;

use crate::{
    preview::{self, flags::PreviewFlags},
    why::{self, flags::WhyFlags},
};

/// Heading of the flags that all subcommands have.
const CONNECTION: &str = "Connection, as for kubectl";

/// Parsed command line.
#[derive(Debug)]
pub(crate) struct Flags {
    pub(crate) connection: ConnectionFlags,
    pub(crate) task: Task,
}

/// Flags that select the cluster, the user and the namespace, as those of `kubectl`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionFlags {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) namespace: Option<String>,
    pub(crate) overrides: ConfigOverrides,
    pub(crate) request_timeout: Option<Duration>,
}

/// Subcommand.
#[derive(Debug)]
pub(crate) enum Task {
    Why(WhyFlags),
    Preview(PreviewFlags),
}

impl Task {
    /// Name of the subcommand.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Why(_) => "why",
            Self::Preview(_) => "preview",
        }
    }
}

impl Flags {
    /// Parses the arguments of the process, including the program name.
    pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        let task = match matches.subcommand() {
            Some(("why", matches)) => {
                let flags = WhyFlags::try_from(matches);
                Task::Why(flags.map_err(|error| command.error(ErrorKind::ValueValidation, error))?)
            }
            Some(("preview", matches)) => Task::Preview(PreviewFlags::from(matches)),
            _ => {
                return Err(command.error(ErrorKind::MissingSubcommand, "a subcommand is required"));
            }
        };
        Ok(Self { connection: ConnectionFlags::from(&matches), task })
    }
}

impl From<&ArgMatches> for ConnectionFlags {
    fn from(matches: &ArgMatches) -> Self {
        let text = |name: &str| matches.get_one::<String>(name).filter(|text| !text.is_empty()).cloned();
        let overrides = ConfigOverrides {
            context: text("context"),
            cluster: text("cluster"),
            user: text("user"),
            server: text("server"),
            token: text("token"),
            impersonate: text("as"),
            impersonate_uid: text("as-uid"),
            impersonate_groups: matches.get_many("as-group").into_iter().flatten().cloned().collect(),
            certificate_authority: matches.get_one("certificate-authority").cloned(),
            insecure_skip_tls_verify: matches.get_flag("insecure-skip-tls-verify"),
            tls_server_name: text("tls-server-name"),
        };
        Self {
            kubeconfig: matches.get_one("kubeconfig").cloned(),
            namespace: text("namespace"),
            overrides,
            request_timeout: matches
                .get_one("request-timeout")
                .copied()
                .filter(|time: &Duration| !time.is_zero()),
        }
    }
}

/// The program.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        let flag = Arg::new(name).long(name).value_name(value).help(help);
        flag.global(true).help_heading(CONNECTION)
    };
    let path = || value_parser!(PathBuf);
    Command::new("kubectl-rollouts")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Explains rollouts of Deployments. Reads only.")
        .subcommand_required(true)
        .subcommand(why::flags::command())
        .subcommand(preview::flags::command())
        .arg(flag("namespace", "NAME", "Namespace [default: that of the context]").short('n'))
        .arg(
            flag("kubeconfig", "FILE", "Kubeconfig file [default: $KUBECONFIG, ~/.kube/config]")
                .value_parser(path()),
        )
        .arg(flag("context", "NAME", "Context of the kubeconfig [default: the current context]"))
        .arg(flag("cluster", "NAME", "Cluster of the kubeconfig [default: that of the context]"))
        .arg(flag("user", "NAME", "User of the kubeconfig [default: that of the context]"))
        .arg(flag("server", "URL", "Address of the API server [default: that of the cluster]").short('s'))
        .arg(flag("token", "TOKEN", "Bearer token"))
        .arg(flag("as", "USER", "User to impersonate"))
        .arg(flag("as-group", "GROUP", "Group to impersonate; can be repeated").action(ArgAction::Append))
        .arg(flag("as-uid", "UID", "UID to impersonate"))
        .arg(
            flag(
                "request-timeout",
                "DURATION",
                "Timeout of a single request, such as 5s; 0 is none [default: 0]",
            )
            .value_parser(timeout),
        )
        .arg(
            flag("certificate-authority", "FILE", "Certificates that verify the API server")
                .value_parser(path()),
        )
        .arg(
            Arg::new("insecure-skip-tls-verify")
                .long("insecure-skip-tls-verify")
                .help("Do not verify the certificate of the API server")
                .action(ArgAction::SetTrue)
                .global(true)
                .help_heading(CONNECTION),
        )
        .arg(flag("tls-server-name", "NAME", "Name in the certificate of the API server"))
}

/// Parses a duration with units. Negative durations are errors.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = GoDuration::parse(text).map_err(|error| error.to_string())?;
    parsed.to_std().ok_or_else(|| "must not be negative".to_owned())
}

/// Parses a duration, or a number of seconds.
fn timeout(text: &str) -> Result<Duration, String> {
    text.parse().map_or_else(|_| duration(text), |seconds| Ok(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, clap::Error> {
        Flags::parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn name_and_flags_of_kubectl() {
        let flags = parse("kubectl-rollouts why deployment/web -n shop --context=c -o json --watch").unwrap();
        assert_eq!(flags.connection.namespace.as_deref(), Some("shop"));
        assert_eq!(flags.connection.overrides.context.as_deref(), Some("c"));
        assert_eq!(flags.task.name(), "why");
    }

    #[test]
    fn users_and_timeouts_of_kubectl() {
        let flags =
            parse("kubectl-rollouts why --as=a --as-group=g --as-group h --as-uid 7 --token=t").unwrap();
        let overrides = ConfigOverrides {
            impersonate: Some("a".to_owned()),
            impersonate_groups: vec!["g".to_owned(), "h".to_owned()],
            impersonate_uid: Some("7".to_owned()),
            token: Some("t".to_owned()),
            ..ConfigOverrides::default()
        };
        assert_eq!(flags.connection.overrides, overrides);
        for (text, seconds) in [("0", None), ("0s", None), ("5", Some(5)), ("1m30s", Some(90))] {
            let flags = parse(&format!("kubectl-rollouts preview web --restart --request-timeout={text}"));
            let timeout = flags.unwrap().connection.request_timeout;
            assert_eq!(timeout, seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn invalid_command_lines() {
        for line in [
            "kubectl-rollouts",
            "kubectl-rollouts why --request-timeout=x",
            "kubectl-rollouts why --request-timeout=-1s",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
