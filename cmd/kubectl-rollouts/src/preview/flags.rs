//! Command-line flags of `preview`.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use kcm_api::GoDuration;
use kcm_preview::{Change, Condition, TimingOptions};

/// Flags of `preview`.
#[derive(Debug, Clone)]
pub(crate) struct PreviewFlags {
    /// Name of the Deployment. `None` takes that of the manifest.
    pub(crate) name: Option<String>,
    /// Namespace that the command line names.
    pub(crate) namespace: Option<String>,
    pub(crate) change: ChangeFlag,
    pub(crate) timings: TimingOptions,
    pub(crate) output: Output,
    /// If `true`, the change is sent to the API server as a dry run.
    pub(crate) dry_run: bool,
    /// If `true`, nodes and the pods of all namespaces are read.
    pub(crate) nodes: bool,
    /// Conditions with which the exit code is not 0.
    pub(crate) fail_on: Vec<Condition>,
}

/// Requested change.
#[derive(Debug, Clone)]
pub(crate) enum ChangeFlag {
    /// File with a manifest. `-` is the standard input.
    File(PathBuf),
    /// Other change.
    Change(Change),
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Json,
    Yaml,
    Svg,
}

/// Changes, which conflict except for images with the number of replicas.
const CHANGES: [&str; 7] = ["filename", "image", "replicas", "restart", "undo", "pause", "resume"];

/// Conditions of `--fail-on`.
const CONDITIONS: [(&str, Condition); 5] = [
    ("deadline", Condition::Deadline),
    ("capacity", Condition::Capacity),
    ("quota", Condition::Quota),
    ("unavailable", Condition::Unavailable),
    ("none-available", Condition::NoneAvailable),
];

const HELP: &str = "\
Nothing is written to the cluster. The change is checked by the API server in a dry run, if the user may
patch the Deployment; otherwise by an embedded API server.

Examples:
  # A new image
  kubectl rollouts preview web --image web:2
  # A new image of all containers, with more replicas
  kubectl rollouts preview web --image '*=web:2' --replicas 5
  # A changed manifest, as a check in a pipeline: it must not leave the Deployment without pods
  kubectl rollouts preview -f web.yaml --fail-on deadline,capacity,quota,none-available
  # The way back, with pods that take a minute to become ready
  kubectl rollouts preview web --undo --ready-after 1m
  # A rollout whose first new pod never becomes ready
  kubectl rollouts preview web --restart --unready 1

Conditions of --fail-on:
  deadline        the progress deadline is exceeded
  capacity        the peak does not fit on the nodes
  quota           the peak does not fit a quota
  unavailable     fewer pods are available than before and after the change
  none-available  no pod is available for some time

Exit codes: 0 completes, or is paused; 3 never completes; 4 exceeds its progress deadline;
6 another condition of --fail-on holds; 1 error.";

impl From<&ArgMatches> for PreviewFlags {
    fn from(matches: &ArgMatches) -> Self {
        let name = matches.get_one::<String>("name");
        let duration = |name: &str| matches.get_one::<Duration>(name).copied();
        Self {
            name: name.cloned(),
            // A global flag, which the subcommand alone does not have.
            namespace: matches.try_get_one::<String>("namespace").ok().flatten().cloned(),
            change: change(matches),
            timings: TimingOptions {
                ready_after: duration("ready-after"),
                stop_after: duration("stop-after"),
                unready: matches.get_one("unready").copied().unwrap_or(0),
            },
            output: match matches.get_one::<String>("output").map(String::as_str) {
                Some("json") => Output::Json,
                Some("yaml") => Output::Yaml,
                Some("svg") => Output::Svg,
                _ => Output::Text,
            },
            dry_run: matches.get_one::<String>("dry-run").is_none_or(|mode| mode == "server"),
            nodes: !matches.get_flag("without-nodes"),
            fail_on: matches
                .get_many::<String>("fail-on")
                .into_iter()
                .flatten()
                .filter_map(|name| CONDITIONS.iter().find(|(other, _)| other == name))
                .map(|(_, condition)| *condition)
                .collect(),
        }
    }
}

/// Requested change. The group of flags requires one.
fn change(matches: &ArgMatches) -> ChangeFlag {
    if let Some(path) = matches.get_one::<PathBuf>("filename") {
        return ChangeFlag::File(path.clone());
    }
    let images = matches.get_many::<String>("image").into_iter().flatten().map(|image| {
        let (container, image) = match image.split_once('=') {
            Some((container, image)) => (Some(container.to_owned()), image.to_owned()),
            None => (None, image.clone()),
        };
        Change::Image { container, image }
    });
    let replicas = matches.get_one::<i32>("replicas").map(|replicas| Change::Replicas(*replicas));
    let switches =
        [("restart", Change::Restart), ("pause", Change::Pause), ("resume", Change::Resume)].into_iter();
    let switches = switches.filter(|(name, _)| matches.get_flag(name)).map(|(_, change)| change);
    let undo = matches
        .get_one::<i64>("undo")
        .map(|revision| Change::Undo { revision: Some(*revision).filter(|revision| *revision != 0) });
    let mut changes: Vec<Change> = images.chain(replicas).chain(switches).chain(undo).collect();
    ChangeFlag::Change(if changes.len() == 1 { changes.remove(0) } else { Change::Several(changes) })
}

/// The subcommand.
pub(crate) fn command() -> Command {
    let arg = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    // Flags that conflict with those other changes.
    let others = |name: &'static str| CHANGES.into_iter().filter(move |other| *other != name);
    let not_scaled = |name: &'static str| others(name).filter(|other| !["image", "replicas"].contains(other));
    Command::new("preview")
        .about(
            "Predicts the course of a change: steps, peaks, duration, quotas, and where it would get stuck",
        )
        .after_help(HELP)
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .help("Deployment, as NAME or deployment/NAME")
                .required_unless_present("filename"),
        )
        .arg(
            arg("filename", "FILE", "Manifest to apply, as kubectl apply -f; - reads standard input")
                .short('f')
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            arg(
                "image",
                "[CONTAINER=]IMAGE",
                "Image to set, as kubectl set image; * is all containers. May be repeated",
            )
            .action(ArgAction::Append)
            .conflicts_with_all(not_scaled("image")),
        )
        .arg(
            arg("replicas", "N", "Number of replicas to set, as kubectl scale")
                .value_parser(value_parser!(i32).range(0..))
                .conflicts_with_all(not_scaled("replicas")),
        )
        .arg(
            switch("restart", "Restart all pods, as kubectl rollout restart")
                .conflicts_with_all(others("restart")),
        )
        .arg(
            arg(
                "undo",
                "REVISION",
                "Restore an old revision, as kubectl rollout undo [default: the previous one]",
            )
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("0")
            .value_parser(value_parser!(i64).range(0..))
            .conflicts_with_all(others("undo")),
        )
        .arg(
            switch("pause", "Pause the rollout, as kubectl rollout pause")
                .conflicts_with_all(others("pause")),
        )
        .arg(
            switch("resume", "Resume the rollout, as kubectl rollout resume")
                .conflicts_with_all(others("resume")),
        )
        .group(ArgGroup::new("change").args(CHANGES).required(true).multiple(true))
        .arg(
            arg(
                "ready-after",
                "DURATION",
                "Time from creation to readiness of a pod [default: median of the existing pods]",
            )
            .value_parser(duration),
        )
        .arg(
            arg(
                "stop-after",
                "DURATION",
                "Time from deletion to removal of a pod [default: the grace period]",
            )
            .value_parser(duration),
        )
        .arg(
            arg("unready", "N", "Number of new pods that never become ready [default: 0]")
                .value_parser(value_parser!(usize)),
        )
        .arg(
            arg(
                "dry-run",
                "MODE",
                "Check of the change: server, or none for the embedded API server only [default: server]",
            )
            .value_parser(["server", "none"]),
        )
        .arg(switch("without-nodes", "Do not read nodes and the pods of other namespaces"))
        .arg(
            arg("fail-on", "CONDITIONS", "Conditions with which the exit code is not 0, see below")
                .value_delimiter(',')
                .value_parser(CONDITIONS.map(|(name, _)| name))
                .hide_possible_values(true)
                .default_value("deadline,capacity,quota"),
        )
        .arg(arg("output", "FORMAT", "Output format").short('o').value_parser(["json", "yaml", "svg"]))
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = GoDuration::parse(text).map_err(|error| error.to_string())?;
    parsed.to_std().ok_or_else(|| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<PreviewFlags, clap::Error> {
        command().try_get_matches_from(line.split(' ')).map(|matches| PreviewFlags::from(&matches))
    }

    fn change(line: &str) -> Change {
        match parse(line).unwrap().change {
            ChangeFlag::Change(change) => change,
            ChangeFlag::File(path) => panic!("{}", path.display()),
        }
    }

    #[test]
    fn changes() {
        let image = |container: Option<&str>| Change::Image {
            container: container.map(str::to_owned),
            image: "web:2".to_owned(),
        };
        assert_eq!(change("preview web --image=web:2"), image(None));
        assert_eq!(change("preview web --image=app=web:2"), image(Some("app")));
        assert_eq!(change("preview deploy/web --replicas 3"), Change::Replicas(3));
        assert_eq!(change("preview web --restart"), Change::Restart);
        assert_eq!(change("preview web --undo"), Change::Undo { revision: None });
        assert_eq!(change("preview web --undo=3"), Change::Undo { revision: Some(3) });
        assert_eq!(change("preview web --pause"), Change::Pause);
        assert_eq!(change("preview web --resume"), Change::Resume);
        assert_eq!(change("preview web --image=*=web:2"), image(Some("*")));
        assert_eq!(
            change("preview web --image app=web:2 --image proxy=web:2 --replicas 5"),
            Change::Several(vec![image(Some("app")), image(Some("proxy")), Change::Replicas(5)])
        );
    }

    #[test]
    fn timings_and_output() {
        let flags =
            parse("preview -f web.yaml --ready-after 20s --stop-after 1m --unready 2 -o svg").unwrap();
        let expected = TimingOptions {
            ready_after: Some(Duration::from_secs(20)),
            stop_after: Some(Duration::from_secs(60)),
            unready: 2,
        };
        assert_eq!((flags.name, flags.timings, flags.output), (None, expected, Output::Svg));
        assert!(flags.dry_run && flags.nodes);
    }

    #[test]
    fn conditions() {
        let fail_on = |line: &str| parse(line).unwrap().fail_on;
        assert_eq!(
            fail_on("preview web --restart"),
            [Condition::Deadline, Condition::Capacity, Condition::Quota]
        );
        assert_eq!(
            fail_on("preview web --restart --fail-on=unavailable,none-available"),
            [Condition::Unavailable, Condition::NoneAvailable]
        );
        for (name, _) in CONDITIONS {
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
    }

    #[test]
    fn invalid_command_lines() {
        for line in [
            "preview",
            "preview web",
            "preview --restart",
            "preview web --restart --replicas=2",
            "preview web --replicas=-1",
            "preview web --restart -o xml",
            "preview web --pause --resume",
            "preview web --image web:2 --restart",
            "preview -f web.yaml --replicas 3",
            "preview web --restart --fail-on=cpu",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
