//! Flags as typed.
//!
//! Upstream counterpart: `pflag`, and the flag sets of `cmd/kube-controller-manager/app/options`.
//!
//! Why no library: pflag's rules are the interface here. `_` for `-` in names, `-v4`, the last of several values,
//! lists that add up, a boolean that takes its value only after `=`, and one line when something is wrong. They
//! are fewer lines than translating another parser's rules and messages into them.

use std::{collections::HashMap, ffi::OsString, fmt::Write as _};

use thiserror::Error;

use crate::version::BINARY;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagKind {
    /// `true` or `false`; `true` if nothing is given.
    Bool,
    /// A text.
    Text,
    /// Texts, separated by commas. Several such flags add up.
    List,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// A duration as Go writes it.
    Duration,
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// The name, without dashes in front.
    pub name: &'static str,
    /// The one letter that stands for it.
    pub short: Option<char>,
    /// Under which heading the help shows it.
    pub section: &'static str,
    /// What it takes.
    pub kind: FlagKind,
    /// The value when it is not given.
    pub default: &'static str,
    /// For people.
    pub help: &'static str,
}

const GENERIC: &str = "Generic";
const LEADER_ELECTION: &str = "Leader election";
const DEPLOYMENT: &str = "Deployment controller";
const REPLICA_SET: &str = "Replicaset controller";
const REPLICATION_CONTROLLER: &str = "Replicationcontroller controller";
const MISC: &str = "Misc";
const LOGS: &str = "Logs";
const GLOBAL: &str = "Global";

/// All flags, in the order in which the help shows them: by section, then by name. Names and defaults are
/// upstream's (US-1.5).
pub static FLAGS: &[Flag] = &[
    Flag {
        name: "controller-shutdown-timeout",
        short: None,
        section: GENERIC,
        kind: FlagKind::Duration,
        default: "10s",
        help: "How long the controllers may take to stop once asked to. 0 means for ever.",
    },
    Flag {
        name: "controller-start-interval",
        short: None,
        section: GENERIC,
        kind: FlagKind::Duration,
        default: "0s",
        help: "How long each controller waits before it starts; up to twice that, drawn at random.",
    },
    Flag {
        name: "controllers",
        short: None,
        section: GENERIC,
        kind: FlagKind::List,
        default: "*",
        help: "Which controllers to run. '*' means all that are on by default, 'foo' means the one called foo, \
               '-foo' means all but that. There are: deployment-controller, replicaset-controller.",
    },
    Flag {
        name: "kube-api-burst",
        short: None,
        section: GENERIC,
        kind: FlagKind::Int,
        default: "30",
        help: "How many requests a controller may send at once after a quiet time.",
    },
    Flag {
        name: "kube-api-qps",
        short: None,
        section: GENERIC,
        kind: FlagKind::Float,
        default: "20",
        help: "How many requests a second a controller may send in the long run.",
    },
    Flag {
        name: "min-resync-period",
        short: None,
        section: GENERIC,
        kind: FlagKind::Duration,
        default: "12h0m0s",
        help: "After how long each object is looked at again though nothing happened; up to twice that, drawn at \
               random.",
    },
    Flag {
        name: "leader-elect",
        short: None,
        section: LEADER_ELECTION,
        kind: FlagKind::Bool,
        default: "true",
        help: "Run the controllers only while holding a lease, so that of several managers one works.",
    },
    Flag {
        name: "leader-elect-lease-duration",
        short: None,
        section: LEADER_ELECTION,
        kind: FlagKind::Duration,
        default: "15s",
        help: "How long others wait after they last saw the leader renew.",
    },
    Flag {
        name: "leader-elect-renew-deadline",
        short: None,
        section: LEADER_ELECTION,
        kind: FlagKind::Duration,
        default: "10s",
        help: "How long a leader tries to renew before it gives up.",
    },
    Flag {
        name: "leader-elect-resource-lock",
        short: None,
        section: LEADER_ELECTION,
        kind: FlagKind::Text,
        default: "leases",
        help: "What is locked. Only leases can be.",
    },
    Flag {
        name: "leader-elect-resource-name",
        short: None,
        section: LEADER_ELECTION,
        kind: FlagKind::Text,
        default: "kube-controller-manager",
        help: "The name of the Lease.",
    },
    Flag {
        name: "leader-elect-resource-namespace",
        short: None,
        section: LEADER_ELECTION,
        kind: FlagKind::Text,
        default: "kube-system",
        help: "The namespace of the Lease.",
    },
    Flag {
        name: "leader-elect-retry-period",
        short: None,
        section: LEADER_ELECTION,
        kind: FlagKind::Duration,
        default: "2s",
        help: "How long to wait between two tries to acquire or renew.",
    },
    Flag {
        name: "concurrent-deployment-syncs",
        short: None,
        section: DEPLOYMENT,
        kind: FlagKind::Int,
        default: "5",
        help: "How many Deployments may be worked on at once. More means quicker reactions, and more load.",
    },
    Flag {
        name: "concurrent-replicaset-syncs",
        short: None,
        section: REPLICA_SET,
        kind: FlagKind::Int,
        default: "5",
        help: "How many ReplicaSets may be worked on at once. More means quicker reactions, and more load.",
    },
    Flag {
        name: "concurrent-rc-syncs",
        short: None,
        section: REPLICATION_CONTROLLER,
        kind: FlagKind::Int,
        default: "5",
        help: "How many ReplicationControllers may be worked on at once.",
    },
    Flag {
        name: "kubeconfig",
        short: None,
        section: MISC,
        kind: FlagKind::Text,
        default: "",
        help: "The kubeconfig file that tells where the API server is and who we are there.",
    },
    Flag {
        name: "master",
        short: None,
        section: MISC,
        kind: FlagKind::Text,
        default: "",
        help: "The address of the API server; wins over the one in the kubeconfig.",
    },
    Flag {
        name: "v",
        short: Some('v'),
        section: LOGS,
        kind: FlagKind::Int,
        default: "0",
        help: "How much to log: from 2 on what happens to objects, from 5 on every step.",
    },
    Flag {
        name: "help",
        short: Some('h'),
        section: GLOBAL,
        kind: FlagKind::Bool,
        default: "false",
        help: "Show this and exit.",
    },
    Flag {
        name: "version",
        short: None,
        section: GLOBAL,
        kind: FlagKind::Bool,
        default: "false",
        help: "Show the version and exit. --version=raw shows it as parts.",
    },
];

/// A command line that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FlagError {
    /// There is no such flag.
    #[error("unknown flag: --{0}")]
    Unknown(String),
    /// There is no flag of that letter.
    #[error("unknown shorthand flag: {0:?} in {1}")]
    UnknownShort(char, String),
    /// A flag that takes a value is the last word.
    #[error("flag needs an argument: --{0}")]
    NeedsValue(&'static str),
    /// A word that is neither a flag nor the value of one.
    #[error("{BINARY:?} does not take any arguments, got {0:?}")]
    Argument(String),
    /// A word that is not text.
    #[error("argument {0} is not valid UTF-8")]
    NotText(String),
    /// A flag whose value makes no sense.
    #[error("invalid argument {value:?} for \"--{flag}\" flag: {cause}")]
    Invalid {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// Why that is nothing.
        cause: String,
    },
}

/// What was typed, by flag.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    given: HashMap<&'static str, Vec<String>>,
}

impl Flags {
    /// Reads the words of a command line, without the program's name.
    ///
    /// # Errors
    ///
    /// When a word is no flag, or a flag has no value.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, FlagError> {
        let mut flags = Self::default();
        let mut words = words.into_iter().map(|word| {
            word.into_string().map_err(|word| FlagError::NotText(format!("{:?}", word.to_string_lossy())))
        });
        while let Some(word) = words.next() {
            let word = word?;
            if word == "--" {
                return words.next().map_or(Ok(flags), |rest| Err(FlagError::Argument(rest?)));
            } else if let Some(text) = word.strip_prefix("--") {
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (text, None),
                };
                let flag = find(name)?;
                flags.add(flag, value, &mut words)?;
            } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                flags.add_letters(letters, &word, &mut words)?;
            } else {
                return Err(FlagError::Argument(word));
            }
        }
        Ok(flags)
    }

    fn add(
        &mut self,
        flag: &'static Flag,
        value: Option<&str>,
        rest: &mut impl Iterator<Item = Result<String, FlagError>>,
    ) -> Result<(), FlagError> {
        let value = match value {
            Some(value) => value.to_owned(),
            // Else `--leader-elect something` could mean either.
            None if flag.kind == FlagKind::Bool => "true".to_owned(),
            None => rest.next().ok_or(FlagError::NeedsValue(flag.name))??,
        };
        self.given.entry(flag.name).or_default().push(value);
        Ok(())
    }

    /// `-v4`, `-v=4`, `-v 4`; and letters that take no value may be followed by others.
    fn add_letters(
        &mut self,
        letters: &str,
        word: &str,
        rest: &mut impl Iterator<Item = Result<String, FlagError>>,
    ) -> Result<(), FlagError> {
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            let flag = FLAGS.iter().find(|flag| flag.short == Some(letter));
            let flag = flag.ok_or_else(|| FlagError::UnknownShort(letter, word.to_owned()))?;
            let tail = letters.as_str();
            if let Some(value) = tail.strip_prefix('=') {
                return self.add(flag, Some(value), rest);
            }
            if flag.kind != FlagKind::Bool {
                return self.add(flag, (!tail.is_empty()).then_some(tail), rest);
            }
            self.add(flag, None, rest)?;
        }
        Ok(())
    }

    /// The value of a flag that takes one; of several, the last.
    pub fn text(&self, name: &str) -> &str {
        match self.given.get(name).and_then(|values| values.last()) {
            Some(value) => value,
            None => default_of(name),
        }
    }

    /// The values of a flag that takes several.
    pub fn list(&self, name: &str) -> Vec<String> {
        let default = [default_of(name).to_owned()];
        let given = self.given.get(name).map_or(&default[..], Vec::as_slice);
        // As pflag: a value of no text is no element.
        given
            .iter()
            .filter(|value| !value.is_empty())
            .flat_map(|value| value.split(','))
            .map(str::to_owned)
            .collect()
    }

    /// Whether a flag was given at all.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The value of a flag, understood by `parse`.
    ///
    /// # Errors
    ///
    /// What `parse` says, with the flag and its value.
    pub fn parsed<T, E: std::fmt::Display>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, FlagError> {
        let value = self.text(name);
        parse(value).map_err(|cause| FlagError::Invalid {
            flag: name,
            value: value.to_owned(),
            cause: cause.to_string(),
        })
    }

    /// The value of a [`FlagKind::Bool`] flag.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn bool(&self, name: &'static str) -> Result<bool, FlagError> {
        self.parsed(name, |text| match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            _ => Err("neither true nor false"),
        })
    }

    /// Each flag with its value, for the log.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, String)> {
        FLAGS.iter().map(|flag| match flag.kind {
            FlagKind::List => (flag.name, self.list(flag.name).join(",")),
            _ => (flag.name, self.text(flag.name).to_owned()),
        })
    }
}

fn find(name: &str) -> Result<&'static Flag, FlagError> {
    let name = name.replace('_', "-");
    FLAGS.iter().find(|flag| flag.name == name).ok_or(FlagError::Unknown(name))
}

fn default_of(name: &str) -> &'static str {
    FLAGS.iter().find(|flag| flag.name == name).map_or("", |flag| flag.default)
}

/// All flags for people, by section.
pub(crate) fn help() -> String {
    let mut text = format!(
        "{BINARY} rolls out Deployments and keeps up the pods of ReplicaSets, as Kubernetes {} does.\n\n\
         Usage:\n  {BINARY} [flags]\n",
        crate::BEHAVES_AS
    );
    let mut section = "";
    for flag in FLAGS {
        // Writing to a string does not fail.
        if flag.section != section {
            section = flag.section;
            let _ = writeln!(text, "\n{section} flags:\n");
        }
        let short = flag.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        let value = match flag.kind {
            FlagKind::Bool => "",
            FlagKind::Text => " string",
            FlagKind::List => " strings",
            FlagKind::Int => " int32",
            FlagKind::Float => " float",
            FlagKind::Duration => " duration",
        };
        let default = match (flag.kind, flag.default) {
            (_, "" | "0s") | (FlagKind::Bool, "false") => String::new(),
            (FlagKind::List, default) => format!(" (default [{default}])"),
            (_, default) => format!(" (default {default})"),
        };
        let _ = writeln!(text, "  {short}--{}{value}\n          {}{default}", flag.name, flag.help);
    }
    text
}

#[cfg(test)]
mod tests;
