//! Names of workloads on the command line.

use kcm_rollouts::Workload;
use thiserror::Error;

/// Words of `kubectl` for workloads, without the group. `None` is a Deployment.
const KINDS: [(&[&str], Option<Workload>); 3] = [
    (&["deployment", "deployments", "deploy"], None),
    (&["statefulset", "statefulsets", "sts"], Some(Workload::StatefulSet)),
    (&["daemonset", "daemonsets", "ds"], Some(Workload::DaemonSet)),
];
/// Groups that can follow such a word.
const GROUPS: [&str; 3] = ["", "apps", "v1.apps"];

/// Maximum length of a name.
const MAX_NAME: usize = 253;
/// Maximum length of the name of a namespace.
const MAX_NAMESPACE: usize = 63;

/// Arguments that name no Deployment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum NameError {
    /// The name is empty.
    #[error("the name is empty: write the name of a Deployment")]
    Empty,
    /// The object is of another kind.
    #[error(
        "{0:?} is not a kind that can be explained: write NAME, deployment/NAME, statefulset/NAME or daemonset/NAME"
    )]
    Kind(String),
    /// There is more than one name.
    #[error("more than one name: write one name, or -l LABELS for several Deployments")]
    Several,
    /// No object has such a name.
    #[error("invalid name {name:?}: {reason}")]
    Invalid {
        /// Name.
        name: String,
        /// Rule, and a valid name where there is a similar one.
        reason: String,
    },
}

/// Workload on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// Kind. `None` is a Deployment.
    pub(crate) workload: Option<Workload>,
    pub(crate) name: String,
}

/// Returns the workload in the arguments `NAME`, `KIND/NAME` or `KIND NAME`. `None` if there are no arguments.
pub(crate) fn workload(words: &[&str]) -> Result<Option<Named>, NameError> {
    let (kind, name) = match words {
        [] => return Ok(None),
        [name] => match name.split_once('/') {
            Some((kind, name)) => (Some(kind), name),
            None => (None, *name),
        },
        [kind, name] if kind.contains('/') || name.contains('/') => return Err(NameError::Several),
        [kind, name] if self::kind(kind).is_some() => (Some(*kind), *name),
        [kind, _] if is_other_kind(kind) => (Some(*kind), ""),
        _ => return Err(NameError::Several),
    };
    let workload = match kind {
        None => None,
        Some(word) => self::kind(word).ok_or_else(|| NameError::Kind(word.to_owned()))?,
    };
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    check(name, MAX_NAME, "lower-case letters, digits, '-' and '.'", |c| c == '.')?;
    Ok(Some(Named { workload, name: name.to_owned() }))
}

/// Returns the name in the argument `NAME` or `deployment/NAME`.
pub(crate) fn deployment(word: &str) -> Result<String, NameError> {
    match workload(&[word])? {
        Some(Named { workload: None, name }) => Ok(name),
        _ => Err(NameError::Kind(word.to_owned())),
    }
}

/// Checks the name of a namespace.
pub(crate) fn namespace(name: &str) -> Result<(), NameError> {
    check(name, MAX_NAMESPACE, "lower-case letters, digits and '-'", |_| false)
}

/// Kind of a word of `kubectl`. As for `kubectl`, upper case is ignored. `None` for other words.
fn kind(word: &str) -> Option<Option<Workload>> {
    let word = word.to_ascii_lowercase();
    let (kind, group) = word.split_once('.').unwrap_or((&word, ""));
    let found = KINDS.iter().find(|(words, _)| words.contains(&kind) && GROUPS.contains(&group));
    found.map(|(_, workload)| *workload)
}

/// Plural resource of Deployments.
pub(crate) const DEPLOYMENTS: &str = "deployments";

/// Plural resource of a word of `kubectl` for a workload.
pub(crate) fn plural(word: &str) -> Option<&'static str> {
    kind(word).map(|workload| workload.map_or(DEPLOYMENTS, Workload::plural))
}

/// `true` for words of `kubectl` for other objects that own pods.
fn is_other_kind(word: &str) -> bool {
    const OTHERS: [&str; 10] =
        ["rs", "replicaset", "replicasets", "po", "pod", "pods", "job", "jobs", "rc", "svc"];
    OTHERS.contains(&word.split('.').next().unwrap_or_default().to_ascii_lowercase().as_str())
}

fn check(name: &str, max: usize, allowed: &str, also: fn(char) -> bool) -> Result<(), NameError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_valid = |name: &str| {
        name.len() <= max
            && name.chars().all(|c| is_plain(c) || c == '-' || also(c))
            && name.starts_with(is_plain)
            && name.ends_with(is_plain)
    };
    if is_valid(name) {
        return Ok(());
    }
    let lower = name.to_ascii_lowercase();
    let reason = if name.len() > max {
        format!("it is longer than {max} characters")
    } else if is_valid(&lower) {
        format!("names are in lower case; write {lower:?}")
    } else {
        format!("a name consists of {allowed}, and begins and ends with a letter or digit")
    };
    Err(NameError::Invalid { name: name.to_owned(), reason })
}

/// Maximum number of similar names that are returned.
const MAX_SIMILAR: usize = 3;

/// Returns the names that resemble `name`, the most similar first.
pub(crate) fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    let mut found: Vec<(usize, bool, &str)> = names
        .filter_map(|other| {
            let distance = distance(name, other);
            let is_part = other.contains(name) || name.contains(other);
            (distance <= limit || is_part).then_some((distance, !is_part, other))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().take(MAX_SIMILAR).map(|(.., name)| name).collect()
}

/// Number of characters to insert, remove or replace (Levenshtein distance).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<String>, NameError> {
        let named = workload(&line.split(' ').collect::<Vec<_>>())?;
        Ok(named.map(|named| named.name))
    }

    #[test]
    fn forms_of_kubectl() {
        for line in [
            "web",
            "deploy/web",
            "deployments.apps/web",
            "deploy web",
            "deployment web",
            "deployments.apps web",
            "Deployment/web",
        ] {
            assert_eq!(parse(line), Ok(Some("web".to_owned())), "{line}");
        }
        assert_eq!(workload(&[]), Ok(None));
        for (line, expected) in
            [("sts/db", Workload::StatefulSet), ("daemonsets.apps db", Workload::DaemonSet)]
        {
            let named = workload(&line.split(' ').collect::<Vec<_>>()).unwrap();
            assert_eq!(named, Some(Named { workload: Some(expected), name: "db".to_owned() }), "{line}");
        }
        assert_eq!(deployment("deploy/web"), Ok("web".to_owned()));
        assert!(deployment("sts/web").is_err());
        assert_eq!(parse("web.v1-2"), Ok(Some("web.v1-2".to_owned())));
    }

    #[test]
    fn errors_say_how_to_write_the_name() {
        let error = |line: &str| parse(line).unwrap_err().to_string();
        for line in ["", "deploy/", "deploy "] {
            assert_eq!(error(line), "the name is empty: write the name of a Deployment", "{line:?}");
        }
        for (line, kind) in [("rs/web", "rs"), ("rs web", "rs"), ("/web", "")] {
            let expected =
                format!("{kind:?} is not a kind that can be explained: write NAME, deployment/NAME");
            assert!(error(line).starts_with(&expected), "{line:?}");
        }
        for line in ["web api", "deploy/web deploy/api", "deploy web api"] {
            assert!(error(line).starts_with("more than one name: write "), "{line:?}");
        }
        assert_eq!(error("Web"), "invalid name \"Web\": names are in lower case; write \"web\"");
        for line in ["deploy/web/x", "..", "web?x=1", "w\u{1b}b", "-web", "web%2fx", "w\u{e4}b", "web_1"] {
            let error = error(line);
            assert!(error.contains("a name consists of"), "{error}");
            assert!(!error.contains('\u{1b}'), "{error:?}");
        }
        assert!(error(&"a".repeat(254)).ends_with("longer than 253 characters"));
    }

    #[test]
    fn namespaces() {
        assert_eq!(namespace("shop-1"), Ok(()));
        for name in ["a.b", "a/b", "", "Shop"] {
            assert!(namespace(name).is_err(), "{name}");
        }
    }

    #[test]
    fn similar_names() {
        let names = ["web", "web-2", "api", "website", "wbe", "cart"];
        assert_eq!(similar("webb", names.into_iter()), ["web"]);
        assert_eq!(similar("we", names.into_iter()), ["web", "wbe", "web-2"]);
        assert_eq!(similar("catr", names.into_iter()), Vec::<&str>::new());
        assert_eq!(similar("check-out", ["checkout"].into_iter()), ["checkout"]);
    }
}
