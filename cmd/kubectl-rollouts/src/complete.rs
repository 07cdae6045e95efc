//! Completion of command lines, in the protocol of cobra's `__complete`: a candidate in each line, with a description after
//! a tab, then a directive.
//!
//! `kubectl` runs the program `kubectl_complete-rollouts` with the words after `kubectl rollouts`. The last one is being
//! written.

use std::{ffi::OsString, fmt::Write as _, path::Path, sync::Arc, time::Duration};

use clap::{Arg, ArgMatches, Command, builder::StyledStr};
use kcm_client::Request;
use kcm_clock::Clock;
use kcm_rollouts::printable;
use serde_json::Value;

use crate::{
    connection::{Connection, Kubeconfig},
    flags::{self, ConnectionFlags},
    name,
    reader::{escape, path},
};

/// First argument that requests completions.
const COMPLETE: &str = "__complete";
/// Name of the program under which all arguments are words to complete.
const PROGRAM: &str = "kubectl_complete-rollouts";
/// Time after which no names of objects are returned.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Representation of a list without specs and statuses.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Directive for the shell (`ShellCompDirective` of cobra).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    /// Names of files are completed if there is no candidate.
    Default = 0,
    /// Names of files are not completed.
    NoFiles = 4,
}

/// Subject of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// Known words, with descriptions.
    Words(Vec<(String, String)>),
    Files,
    Namespaces,
    Contexts,
    Clusters,
    Users,
    /// Workloads of the plural resource, with the prefix that was written, such as `deployment/`.
    Workloads(&'static str, String),
    Nothing,
}

/// Returns the words to complete, if the arguments of the process request it.
pub(crate) fn words(arguments: &[OsString]) -> Option<Vec<String>> {
    let text = |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (program, words) = arguments.split_first()?;
    if Path::new(program).file_stem().is_some_and(|name| name == PROGRAM) {
        return Some(text(words));
    }
    let (first, words) = words.split_first()?;
    (first == COMPLETE).then(|| text(words))
}

/// Returns the completions of the last word.
pub(crate) async fn run(words: &[String], clock: &Arc<dyn Clock>) -> String {
    let (last, before) = words.split_last().map_or(("", words), |(last, before)| (&**last, before));
    let (subject, prefix) = subject(before, last);
    let (candidates, directive) = match subject {
        Subject::Words(words) => (words, Directive::NoFiles),
        Subject::Files => (Vec::new(), Directive::Default),
        Subject::Nothing => (Vec::new(), Directive::NoFiles),
        subject => {
            let names = names(subject, &connection(before), clock).await;
            (names.into_iter().map(|name| (name, String::new())).collect(), Directive::NoFiles)
        }
    };
    let mut out = String::new();
    for (word, description) in candidates.iter().filter(|(word, _)| word.starts_with(&prefix)) {
        let tab = if description.is_empty() { "" } else { "\t" };
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}{tab}{}", printable(word), description.replace('\n', " "));
    }
    let _ = writeln!(out, ":{}", directive as u8);
    out
}

/// Flags of the connection among the words.
fn connection(words: &[String]) -> ConnectionFlags {
    let program = std::iter::once("kubectl-rollouts");
    let command = flags::command().ignore_errors(true);
    let matches = command.try_get_matches_from(program.chain(words.iter().map(String::as_str)));
    let mut flags = matches
        .map_or_else(|_| ConnectionFlags::default(), |matches: ArgMatches| ConnectionFlags::from(&matches));
    flags.request_timeout = flags.request_timeout.or(Some(TIMEOUT));
    flags
}

/// Returns the subject of the word `last` after `before`, and the part of the word that candidates begin with.
fn subject(before: &[String], last: &str) -> (Subject, String) {
    let mut root = flags::command();
    // Copies the flags of all subcommands to them.
    root.build();
    let mut command = &root;
    let mut positional: Vec<&str> = Vec::new();
    let mut pending: Option<&Arg> = None;
    let mut only_positional = false;
    for word in before {
        if pending.take().is_some() {
            continue;
        }
        if word == "--" {
            only_positional = true;
        } else if let Some(text) = word.strip_prefix('-').filter(|text| !only_positional && !text.is_empty())
        {
            pending = flag(command, text).filter(|arg| takes_value(arg) && !word.contains('='));
        } else if command.has_subcommands() {
            let Some(found) = command.find_subcommand(word) else { return (Subject::Nothing, String::new()) };
            command = found;
        } else {
            positional.push(word);
        }
    }
    if let Some(arg) = pending {
        return value(arg, last);
    }
    if let Some(text) = last.strip_prefix('-').filter(|_| !only_positional) {
        return match text.split_once('=') {
            Some((name, last)) => {
                flag(command, name).map_or((Subject::Nothing, String::new()), |arg| value(arg, last))
            }
            None => (Subject::Words(flags_of(command)), last.to_owned()),
        };
    }
    if command.has_subcommands() {
        return (Subject::Words(subcommands(command)), last.to_owned());
    }
    let resource = last.split_once('/').map(|(resource, _)| resource);
    // A preview is one of a Deployment.
    let plural = |word: &str| {
        name::plural(word).filter(|plural| *plural == name::DEPLOYMENTS || command.get_name() == "why")
    };
    let (plural, prefix) = match (&*positional, resource) {
        ([], None) => (Some(name::DEPLOYMENTS), String::new()),
        ([], Some(resource)) => (plural(resource), format!("{resource}/")),
        ([word], None) => (plural(word), String::new()),
        _ => (None, String::new()),
    };
    let subject = plural.map_or(Subject::Nothing, |plural| Subject::Workloads(plural, prefix));
    (subject, last.to_owned())
}

/// Flag by its text without the first `-`.
fn flag<'a>(command: &'a Command, text: &str) -> Option<&'a Arg> {
    let name = text.split('=').next().unwrap_or_default();
    command.get_arguments().find(|arg| match name.strip_prefix('-') {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| name == short.to_string()),
    })
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && arg.get_num_args().is_none_or(|number| number.min_values() > 0)
}

/// Subject of the value of a flag.
fn value(arg: &Arg, last: &str) -> (Subject, String) {
    let possible = arg.get_possible_values();
    // Of several values, the last one is being written.
    let (first, rest) = match last.rsplit_once(',').filter(|_| arg.get_value_delimiter().is_some()) {
        Some((first, _)) => (format!("{first},"), last),
        None => (String::new(), last),
    };
    let subject = match arg.get_id().as_str() {
        _ if !possible.is_empty() => {
            let word = |name: &str| (format!("{first}{name}"), String::new());
            Subject::Words(possible.iter().map(|value| word(value.get_name())).collect())
        }
        "namespace" => Subject::Namespaces,
        "context" | "manager-context" => Subject::Contexts,
        "cluster" => Subject::Clusters,
        "user" => Subject::Users,
        "kubeconfig" | "filename" | "certificate-authority" => Subject::Files,
        _ => Subject::Nothing,
    };
    (subject, rest.to_owned())
}

fn flags_of(command: &Command) -> Vec<(String, String)> {
    let help = |help: Option<&StyledStr>| help.map(ToString::to_string).unwrap_or_default();
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    visible.filter_map(|arg| Some((format!("--{}", arg.get_long()?), help(arg.get_help())))).collect()
}

fn subcommands(command: &Command) -> Vec<(String, String)> {
    let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let visible = command.get_subcommands().filter(|command| command.get_name() != "help");
    visible.map(|command| (command.get_name().to_owned(), about(command))).collect()
}

/// Names of objects, or of parts of the kubeconfig. None if they cannot be read in time.
async fn names(subject: Subject, flags: &ConnectionFlags, clock: &Arc<dyn Clock>) -> Vec<String> {
    let files = || Kubeconfig::read(flags);
    let collect = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
    match subject {
        Subject::Contexts => collect(&mut files().iter().flat_map(Kubeconfig::contexts)),
        Subject::Clusters => collect(&mut files().iter().flat_map(Kubeconfig::clusters)),
        Subject::Users => collect(&mut files().iter().flat_map(Kubeconfig::users)),
        Subject::Namespaces => objects(None, flags, clock).await,
        Subject::Workloads(plural, prefix) => {
            let names = objects(Some(plural), flags, clock).await;
            names.into_iter().map(|name| format!("{prefix}{name}")).collect()
        }
        Subject::Words(_) | Subject::Files | Subject::Nothing => Vec::new(),
    }
}

/// Names of the objects of a resource of `apps/v1` in the namespace, or of namespaces.
async fn objects(resource: Option<&str>, flags: &ConnectionFlags, clock: &Arc<dyn Clock>) -> Vec<String> {
    let read = async {
        let connection = Connection::open(flags, "complete", clock).await.ok()?;
        let path = match resource {
            Some(resource) => path("apps/v1", Some(&escape(&connection.namespace)), resource),
            None => path("v1", None, "namespaces"),
        };
        let mut request = Request::get(path);
        request.accept = METADATA;
        let list: Value = serde_json::from_slice(&connection.client.send(&request).await.ok()?).ok()?;
        let names = list["items"].as_array()?.iter().filter_map(|item| item["metadata"]["name"].as_str());
        Some(names.map(str::to_owned).collect())
    };
    tokio::select! {
        names = read => names.unwrap_or_default(),
        () = clock.sleep(TIMEOUT) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Subject of the last word of a line after `kubectl rollouts `.
    fn of(line: &str) -> (Subject, String) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().unwrap();
        subject(before, last)
    }

    fn candidates(line: &str) -> Vec<String> {
        match of(line) {
            (Subject::Words(words), prefix) => {
                words.into_iter().map(|(word, _)| word).filter(|word| word.starts_with(&prefix)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn known_words() {
        assert_eq!(candidates(""), ["why", "preview"]);
        assert_eq!(candidates("wh"), ["why"]);
        assert_eq!(candidates("why --wat"), ["--watch"]);
        assert_eq!(candidates("why web --as-"), ["--as-group", "--as-uid"]);
        assert_eq!(candidates("why -o "), ["json", "yaml", "wide"]);
        assert_eq!(candidates("why --output=j"), ["json"]);
        assert_eq!(candidates("why --until complete,st"), ["complete,stuck"]);
        assert!(candidates("preview web --re").contains(&"--replicas".to_owned()));
    }

    #[test]
    fn names() {
        let text = |text: &str| text.to_owned();
        for (line, subject, prefix) in [
            ("why we", Subject::Workloads("deployments", text("")), "we"),
            ("why -n shop we", Subject::Workloads("deployments", text("")), "we"),
            ("why --watch we", Subject::Workloads("deployments", text("")), "we"),
            ("why --context=c -o json we", Subject::Workloads("deployments", text("")), "we"),
            ("why deploy/we", Subject::Workloads("deployments", text("deploy/")), "deploy/we"),
            ("why deploy we", Subject::Workloads("deployments", text("")), "we"),
            ("preview we", Subject::Workloads("deployments", text("")), "we"),
            ("why sts/d", Subject::Workloads("statefulsets", text("sts/")), "sts/d"),
            ("why daemonset d", Subject::Workloads("daemonsets", text("")), "d"),
            ("preview sts/d", Subject::Nothing, "sts/d"),
            ("why web a", Subject::Nothing, "a"),
            ("why rs/a", Subject::Nothing, "rs/a"),
            ("why -n sh", Subject::Namespaces, "sh"),
            ("why --namespace=sh", Subject::Namespaces, "sh"),
            ("--namespace ", Subject::Namespaces, ""),
            ("why --context c", Subject::Contexts, "c"),
            ("why --cluster ", Subject::Clusters, ""),
            ("why --user ", Subject::Users, ""),
            ("preview -f ", Subject::Files, ""),
            ("why --kubeconfig ", Subject::Files, ""),
            ("why --token ", Subject::Nothing, ""),
            ("other ", Subject::Nothing, ""),
        ] {
            assert_eq!(of(line), (subject, text(prefix)), "{line:?}");
        }
    }

    #[test]
    fn requests() {
        let words = |line: &str| words(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let expected = Some(vec!["why".to_owned(), String::new()]);
        assert_eq!(words("/bin/kubectl_complete-rollouts why "), expected);
        assert_eq!(words("kubectl-rollouts __complete why "), expected);
        assert_eq!(words("kubectl-rollouts why web"), None);
    }

    #[test]
    fn flags_of_the_connection() {
        let words = ["why", "-n", "shop", "--as=jane", "--bad"].map(str::to_owned);
        let flags = connection(&words);
        assert_eq!(flags.namespace.as_deref(), Some("shop"));
        assert_eq!(flags.overrides.impersonate.as_deref(), Some("jane"));
    }
}
