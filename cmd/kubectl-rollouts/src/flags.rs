//! Command-line flags.

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::preview::{self, flags::PreviewFlags};

/// Parsed command line.
#[derive(Debug)]
pub(crate) struct Flags {
    pub(crate) connection: ConnectionFlags,
    pub(crate) task: Task,
}

/// Flags that select the cluster and the namespace, as those of `kubectl`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionFlags {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) context: Option<String>,
    pub(crate) namespace: Option<String>,
    /// Address of an API server without authentication. Overrides the kubeconfig.
    pub(crate) server: Option<String>,
}

/// Subcommand.
#[derive(Debug)]
pub(crate) enum Task {
    Why(WhyFlags),
    Preview(PreviewFlags),
}

/// Flags of `why`.
#[derive(Debug, Clone)]
pub(crate) struct WhyFlags {
    /// Name of the Deployment. `None` selects a table.
    pub(crate) name: Option<String>,
    pub(crate) all_namespaces: bool,
    pub(crate) selector: Option<String>,
    pub(crate) output: Output,
    pub(crate) watch: bool,
    /// Context whose cluster is the secure port of the controller manager.
    pub(crate) manager_context: Option<String>,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Json,
    Yaml,
}

impl Flags {
    /// Parses the arguments of the process, including the program name.
    pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        let task = match matches.subcommand() {
            Some(("why", matches)) => Task::Why(WhyFlags::from(matches)),
            Some(("preview", matches)) => Task::Preview(PreviewFlags::from(matches)),
            _ => {
                return Err(
                    command.error(clap::error::ErrorKind::MissingSubcommand, "a subcommand is required")
                );
            }
        };
        let text = |name: &str| matches.get_one::<String>(name).filter(|text| !text.is_empty()).cloned();
        let connection = ConnectionFlags {
            kubeconfig: matches.get_one("kubeconfig").cloned(),
            context: text("context"),
            namespace: text("namespace"),
            server: text("server"),
        };
        Ok(Self { connection, task })
    }
}

impl From<&ArgMatches> for WhyFlags {
    fn from(matches: &ArgMatches) -> Self {
        let name = matches.get_one::<String>("name");
        Self {
            name: name.map(|name| deployment_name(name).to_owned()),
            all_namespaces: matches.get_flag("all-namespaces"),
            selector: matches.get_one("selector").cloned(),
            output: match matches.get_one::<String>("output").map(String::as_str) {
                Some("json") => Output::Json,
                Some("yaml") => Output::Yaml,
                _ => Output::Text,
            },
            watch: matches.get_flag("watch"),
            manager_context: matches.get_one("manager-context").cloned(),
        }
    }
}

/// Name without the prefix of its resource, as in `deployment/web`.
pub(crate) fn deployment_name(text: &str) -> &str {
    match text.split_once('/') {
        Some(("deployment" | "deployments" | "deploy" | "deployment.apps" | "deployments.apps", name)) => {
            name
        }
        _ => text,
    }
}

fn command() -> Command {
    let global = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).global(true)
    };
    Command::new("kubectl-rollouts")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Explains rollouts of Deployments. Reads only.")
        .subcommand_required(true)
        .subcommand(why())
        .subcommand(preview::flags::command())
        .arg(
            global("kubeconfig", "FILE", "Kubeconfig file [default: $KUBECONFIG, ~/.kube/config]")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(global("context", "NAME", "Context of the kubeconfig [default: the current context]"))
        .arg(global("namespace", "NAME", "Namespace [default: that of the context]").short('n'))
        .arg(global("server", "URL", "API server without authentication, instead of a kubeconfig").short('s'))
}

fn why() -> Command {
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    Command::new("why")
        .about("Explains the state of a rollout: what it waits for, the causes, and the next steps")
        .after_help(
            "Exit codes: 0 complete, 2 progressing, 3 stuck, 4 progress deadline exceeded, 1 error.\n\
             Without NAME, a table of all rollouts is printed; the exit code is that of the worst.",
        )
        .arg(Arg::new("name").value_name("NAME").help("Deployment, as NAME or deployment/NAME"))
        .arg(
            switch("all-namespaces", "Print the rollouts of all namespaces")
                .short('A')
                .conflicts_with("name"),
        )
        .arg(
            Arg::new("selector")
                .long("selector")
                .short('l')
                .value_name("LABELS")
                .help("Print the rollouts of Deployments with these labels")
                .conflicts_with("name"),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_name("FORMAT")
                .help("Output format")
                .value_parser(["json", "yaml"]),
        )
        .arg(
            Arg::new("manager-context")
                .long("manager-context")
                .value_name("NAME")
                .help(
                    "Context whose cluster is the secure port of the controller manager, for the state of its queues \
                     [default: the API server, which kube-sandbox serves it on]",
                )
                .conflicts_with_all(["all-namespaces", "selector"]),
        )
        .arg(switch("watch", "Print again on each change, until interrupted").short('w'))
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
        assert_eq!(flags.connection.context.as_deref(), Some("c"));
        let Task::Why(why) = flags.task else { panic!("{flags:?}") };
        assert_eq!((why.name.as_deref(), why.output, why.watch), (Some("web"), Output::Json, true));
    }

    #[test]
    fn invalid_command_lines() {
        for line in [
            "kubectl-rollouts",
            "kubectl-rollouts why web -A",
            "kubectl-rollouts why web -o xml",
            "kubectl-rollouts why -A --manager-context c",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
