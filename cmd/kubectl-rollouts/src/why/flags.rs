//! Command-line flags of `why`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use kcm_rollouts::{State, Workload, render::Columns};

use crate::{
    flags::duration,
    name::{self, NameError},
};

/// Flags of `why`.
#[derive(Debug, Clone)]
pub(crate) struct WhyFlags {
    /// Name of the Deployment. `None` selects a table.
    pub(crate) name: Option<String>,
    /// Kind of the named workload. `None` is a Deployment.
    pub(crate) workload: Option<Workload>,
    pub(crate) all_namespaces: bool,
    pub(crate) selector: Option<String>,
    pub(crate) output: Output,
    pub(crate) watch: bool,
    /// Ends of the command. If empty, it ends at once, or never with `watch`.
    pub(crate) until: Vec<Until>,
    /// Maximum time until one of `until` is reached.
    pub(crate) timeout: Option<Duration>,
    /// Context whose cluster is the secure port of the controller manager.
    pub(crate) manager_context: Option<String>,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Text(Columns),
    Json,
    Yaml,
}

/// State at which the command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Complete,
    Stuck,
    Failed,
}

impl Until {
    /// Values of the flag.
    const NAMES: [(&'static str, Self); 3] =
        [("complete", Self::Complete), ("stuck", Self::Stuck), ("failed", Self::Failed)];

    /// `true` if rollouts of these states have reached it: all are complete, or one is stuck or has failed.
    pub(crate) fn is_reached(self, states: &[State]) -> bool {
        match self {
            Self::Complete => states.iter().all(|state| *state == State::Complete),
            // A rollout that fails its deadline is stuck, too.
            Self::Stuck => states.iter().any(|state| matches!(state, State::Stuck | State::DeadlineExceeded)),
            Self::Failed => states.contains(&State::DeadlineExceeded),
        }
    }
}

impl TryFrom<&ArgMatches> for WhyFlags {
    type Error = NameError;

    fn try_from(matches: &ArgMatches) -> Result<Self, NameError> {
        let words: Vec<&str> =
            matches.get_many::<String>("name").into_iter().flatten().map(String::as_str).collect();
        let named = name::workload(&words)?;
        let until = |name: &String| Until::NAMES.into_iter().find(|(known, _)| known == name);
        Ok(Self {
            name: named.as_ref().map(|named| named.name.clone()),
            workload: named.and_then(|named| named.workload),
            all_namespaces: matches.get_flag("all-namespaces"),
            selector: matches.get_one("selector").cloned(),
            output: match matches.get_one::<String>("output").map(String::as_str) {
                Some("json") => Output::Json,
                Some("yaml") => Output::Yaml,
                Some(_) => Output::Text(Columns::Wide),
                None => Output::Text(Columns::Default),
            },
            watch: matches.get_flag("watch"),
            until: matches
                .get_many::<String>("until")
                .into_iter()
                .flatten()
                .filter_map(until)
                .map(|(_, until)| until)
                .collect(),
            timeout: matches.get_one("timeout").copied(),
            manager_context: matches.get_one("manager-context").cloned(),
        })
    }
}

const AFTER_HELP: &str = "\
Examples:
  # Explain the rollout of a Deployment
  kubectl rollouts why web -n shop
  # Explain a StatefulSet or a DaemonSet
  kubectl rollouts why statefulset/db -n shop
  # All rollouts of the cluster, the worst first, with common causes
  kubectl rollouts why -A -o wide
  # The cause alone
  kubectl rollouts why web -o json | jq -r .cause
  # In a pipeline: wait for the end of a rollout, at most ten minutes
  kubectl rollouts why web --until=complete,failed --timeout=10m
  # As another user sees it
  kubectl rollouts why web --as=jane --as-group=developers

Exit codes: 0 complete, 2 progressing, 3 stuck or paused, 4 progress deadline exceeded, 5 unknown,
124 timeout of --until, 1 error.
Without NAME, a table of all rollouts is printed; the exit code is that of the worst.";

/// The subcommand.
pub(crate) fn command() -> Command {
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("why")
        .about("Explains the state of a rollout: what it waits for, the causes, and the next steps")
        .after_help(AFTER_HELP)
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .num_args(0..)
                .help("Deployment as NAME; or deployment/NAME, statefulset/NAME, daemonset/NAME"),
        )
        .arg(
            switch("all-namespaces", "Print the rollouts of all namespaces")
                .short('A')
                .conflicts_with("name"),
        )
        .arg(
            flag("selector", "LABELS", "Print the rollouts of Deployments with these labels")
                .short('l')
                .conflicts_with("name"),
        )
        .arg(
            flag("output", "FORMAT", "Output format")
                .short('o')
                .value_parser(["json", "yaml", "wide"]),
        )
        .arg(switch("watch", "Print the diagnosis, and each change until interrupted").short('w'))
        .arg(
            flag("until", "STATES", "Watch until all rollouts are complete, or one is stuck or has failed its deadline")
                .value_delimiter(',')
                .value_parser(Until::NAMES.map(|(name, _)| name)),
        )
        .arg(
            flag("timeout", "DURATION", "Maximum time to wait for --until, such as 10m")
                .value_parser(duration)
                .requires("until"),
        )
        .arg(
            flag(
                "manager-context",
                "NAME",
                "Context whose cluster is the secure port of the controller manager, for the state of its queues \
                 [default: the API server, which kube-sandbox serves it on]",
            )
            .conflicts_with_all(["all-namespaces", "selector"]),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<WhyFlags, String> {
        let matches = command().try_get_matches_from(line.split(' ')).map_err(|error| error.to_string())?;
        WhyFlags::try_from(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn name_and_flags() {
        let flags = parse("why deployment/web -o json --watch").unwrap();
        assert_eq!((flags.name.as_deref(), flags.output, flags.watch), (Some("web"), Output::Json, true));
        assert_eq!(parse("why deploy web -o wide").unwrap().output, Output::Text(Columns::Wide));
        let flags = parse("why web --until=complete,failed --timeout 10m").unwrap();
        assert_eq!(flags.until, [Until::Complete, Until::Failed]);
        assert_eq!(flags.timeout, Some(Duration::from_secs(600)));
    }

    #[test]
    fn invalid_command_lines() {
        for line in [
            "why web -A",
            "why web -o xml",
            "why -A --manager-context c",
            "why rs/web",
            "why web --timeout 1m",
            "why web --until=done",
            "why web --until=complete --timeout 10",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn ends() {
        use State::{Complete, DeadlineExceeded, Progressing, Stuck};
        for (until, states, expected) in [
            (Until::Complete, vec![Complete, Complete], true),
            (Until::Complete, vec![Complete, Progressing], false),
            (Until::Stuck, vec![Complete, Stuck], true),
            (Until::Stuck, vec![DeadlineExceeded], true),
            (Until::Stuck, vec![Complete, Progressing], false),
            (Until::Failed, vec![Stuck], false),
            (Until::Failed, vec![Stuck, DeadlineExceeded], true),
        ] {
            assert_eq!(until.is_reached(&states), expected, "{until:?} {states:?}");
        }
    }
}
