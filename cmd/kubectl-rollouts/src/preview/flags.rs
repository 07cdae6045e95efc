//! Command-line flags of `preview`.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use kcm_api::GoDuration;
use kcm_preview::{Change, TimingOptions};

use crate::flags::deployment_name;

/// Flags of `preview`.
#[derive(Debug, Clone)]
pub(crate) struct PreviewFlags {
    /// Name of the Deployment. `None` takes that of the manifest.
    pub(crate) name: Option<String>,
    pub(crate) change: ChangeFlag,
    pub(crate) timings: TimingOptions,
    pub(crate) output: Output,
    /// If `true`, the change is sent to the API server as a dry run.
    pub(crate) dry_run: bool,
    /// If `true`, nodes and the pods of all namespaces are read.
    pub(crate) nodes: bool,
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
    Svg,
}

impl From<&ArgMatches> for PreviewFlags {
    fn from(matches: &ArgMatches) -> Self {
        let name = matches.get_one::<String>("name");
        let duration = |name: &str| matches.get_one::<Duration>(name).copied();
        Self {
            name: name.map(|name| deployment_name(name).to_owned()),
            change: change(matches),
            timings: TimingOptions {
                ready_after: duration("ready-after"),
                stop_after: duration("stop-after"),
                unready: matches.get_one("unready").copied().unwrap_or(0),
            },
            output: match matches.get_one::<String>("output").map(String::as_str) {
                Some("json") => Output::Json,
                Some("svg") => Output::Svg,
                _ => Output::Text,
            },
            dry_run: matches.get_one::<String>("dry-run").is_none_or(|mode| mode == "server"),
            nodes: !matches.get_flag("without-nodes"),
        }
    }
}

/// Requested change. The group of flags requires exactly one.
fn change(matches: &ArgMatches) -> ChangeFlag {
    if let Some(path) = matches.get_one::<PathBuf>("filename") {
        return ChangeFlag::File(path.clone());
    }
    if let Some(image) = matches.get_one::<String>("image") {
        let (container, image) = match image.split_once('=') {
            Some((container, image)) => (Some(container.to_owned()), image.to_owned()),
            None => (None, image.clone()),
        };
        return ChangeFlag::Change(Change::Image { container, image });
    }
    if let Some(replicas) = matches.get_one::<i32>("replicas") {
        return ChangeFlag::Change(Change::Replicas(*replicas));
    }
    if matches.get_flag("restart") {
        return ChangeFlag::Change(Change::Restart);
    }
    let revision = matches.get_one::<i64>("undo").copied().filter(|revision| *revision != 0);
    ChangeFlag::Change(Change::Undo { revision })
}

/// The subcommand.
pub(crate) fn command() -> Command {
    let arg = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let changes = ["filename", "image", "replicas", "restart", "undo"];
    Command::new("preview")
        .about("Predicts the course of a change: steps, peaks, duration, quotas, and where it would get stuck")
        .after_help(
            "Nothing is written to the cluster. The change is checked by the API server in a dry run, if the user may\n\
             patch the Deployment; otherwise by an embedded API server.\n\
             Exit codes: 0 completes, 3 gets stuck, 4 exceeds its progress deadline, 1 error.",
        )
        .arg(Arg::new("name").value_name("NAME").help("Deployment, as NAME or deployment/NAME").required_unless_present("filename"))
        .arg(
            arg("filename", "FILE", "Manifest to apply, as kubectl apply -f; - reads standard input")
                .short('f')
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(arg("image", "[CONTAINER=]IMAGE", "Image to set, as kubectl set image"))
        .arg(
            arg("replicas", "N", "Number of replicas to set, as kubectl scale")
                .value_parser(value_parser!(i32).range(0..)),
        )
        .arg(
            Arg::new("restart")
                .long("restart")
                .help("Restart all pods, as kubectl rollout restart")
                .action(ArgAction::SetTrue),
        )
        .arg(
            arg("undo", "REVISION", "Restore an old revision, as kubectl rollout undo [default: the previous one]")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("0")
                .value_parser(value_parser!(i64).range(0..)),
        )
        .group(ArgGroup::new("change").args(changes).required(true))
        .arg(
            arg("ready-after", "DURATION", "Time from creation to readiness of a pod [default: median of the existing pods]")
                .value_parser(duration),
        )
        .arg(
            arg("stop-after", "DURATION", "Time from deletion to removal of a pod [default: the grace period]")
                .value_parser(duration),
        )
        .arg(
            arg("unready", "N", "Number of new pods that never become ready [default: 0]")
                .value_parser(value_parser!(usize)),
        )
        .arg(
            arg("dry-run", "MODE", "Check of the change: server, or none for the embedded API server only [default: server]")
                .value_parser(["server", "none"]),
        )
        .arg(
            Arg::new("without-nodes")
                .long("without-nodes")
                .help("Do not read nodes and the pods of other namespaces")
                .action(ArgAction::SetTrue),
        )
        .arg(arg("output", "FORMAT", "Output format").short('o').value_parser(["json", "svg"]))
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
    fn invalid_command_lines() {
        for line in [
            "preview",
            "preview web",
            "preview --restart",
            "preview web --restart --replicas=2",
            "preview web --replicas=-1",
            "preview web --restart -o yaml",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
