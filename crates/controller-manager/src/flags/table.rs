//! Table of all flags of upstream v1.36 (US-1.5), in upstream's order.

use std::{collections::HashMap, sync::LazyLock};

use super::FlagKind;

/// Flags recorded from upstream.
static UPSTREAM: &str = include_str!("upstream-v1.36.txt");

/// Help texts of the flags of this binary, by topic.
static HELP: &str = include_str!("help.txt");

/// Command-line flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Name without leading dashes.
    pub name: &'static str,
    /// Shorthand letter.
    pub short: Option<char>,
    /// Type of the value.
    pub kind: FlagKind,
    /// Default value, as on a command line.
    pub default: &'static str,
    /// Help text. `None` if only controllers that are not part of this binary use the flag.
    pub help: Option<&'static str>,
    /// Deprecation message. Deprecated flags are not in the help.
    pub deprecated: Option<&'static str>,
}

/// All flags of upstream's manager.
pub static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| {
    let help = topics().flat_map(|(_, flags)| flags).collect();
    UPSTREAM.lines().filter_map(|line| Flag::parse(line, &help)).collect()
});

impl Flag {
    /// Parses a line of [`UPSTREAM`]. Returns `None` for a comment.
    fn parse(line: &'static str, help: &HashMap<&str, &'static str>) -> Option<Self> {
        let columns: Vec<_> = line.split('\t').collect();
        let [_section, name, short, kind, ref more @ ..] = columns[..] else { return None };
        let default = more.first().copied().unwrap_or_default();
        let list = default.strip_prefix('[').and_then(|default| default.strip_suffix(']'));
        Some(Self {
            name,
            short: short.chars().next(),
            kind: FlagKind::of_name(kind)?,
            // DEVIATION: upstream's default is kube-controller-manager.
            default: if name == "leader-elect-resource-name" { "" } else { list.unwrap_or(default) },
            help: help.get(name).copied(),
            deprecated: more.get(1).copied(),
        })
    }
}

/// Topics of the help, with the names and texts of their flags.
pub(super) fn topics()
-> impl Iterator<Item = (&'static str, impl Iterator<Item = (&'static str, &'static str)>)> {
    HELP.split("\n\n").filter_map(|topic| {
        let (title, flags) = topic.split_once(":\n")?;
        Some((title, flags.lines().filter_map(|line| line.split_once('\t'))))
    })
}
