//! Command lines of Go programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt::Write as _,
};

/// Flag: its name, the name of its value, and help. A flag without help is accepted and has no effect.
pub(super) type Flag = (&'static str, &'static str, &'static str);

/// Flags that were given, with their values in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments(BTreeMap<String, Vec<String>>);

impl Arguments {
    /// Returns the last value of a flag.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(String::as_str)
    }
}

/// Parses arguments, and returns them with the names of unknown flags. A boolean flag has the value `true`.
///
/// # Errors
///
/// Returns the text to print for `--help`, and `version` for `--version`.
pub(super) fn parse(
    program: &str,
    version: &str,
    flags: &[Flag],
    arguments: impl Iterator<Item = OsString>,
) -> Result<(Arguments, BTreeSet<String>), String> {
    let mut parsed = Arguments::default();
    let mut unknown = BTreeSet::new();
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned()).peekable();
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.strip_prefix('-') else { continue };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        match name {
            "help" | "h" => return Err(help(program, flags)),
            "version" => return Err(format!("{version}\n")),
            _ => {}
        }
        let known = flags.iter().find(|(known, ..)| *known == name);
        if known.is_none() {
            unknown.insert(name.to_owned());
        }
        // Upstream's parser does not take the next argument as the value of a boolean flag either.
        let takes_value = known.is_none_or(|(_, value, _)| !value.is_empty());
        let next = || arguments.next_if(|next| takes_value && !next.starts_with("--"));
        let value = value.or_else(next).unwrap_or_else(|| "true".to_owned());
        parsed.0.entry(name.to_owned()).or_default().push(value);
    }
    Ok((parsed, unknown))
}

/// Text of `--help`. Frameworks search it for flags at the start of a line.
fn help(program: &str, flags: &[Flag]) -> String {
    let mut text = format!(
        "kube-sandbox as {program}, for test frameworks that start {program}.\n\nUsage:\n  {program} [flags]\n\nFlags:\n"
    );
    for (name, value, help) in flags {
        let flag = if value.is_empty() { format!("--{name}") } else { format!("--{name} {value}") };
        let help = if help.is_empty() { "(no effect)" } else { help };
        // Writing to a `String` does not fail.
        let _ = writeln!(text, "      {flag:<44} {help}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[("port", "PORT", "Port"), ("fast", "", "")];

    fn parse(line: &str) -> Result<(Arguments, BTreeSet<String>), String> {
        super::parse("etcd", "v1", FLAGS, line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn values() {
        let (parsed, unknown) = parse("--port 1 -port=2 --fast --new value --newer --port= 5").unwrap();
        assert_eq!((parsed.last("port"), parsed.last("fast")), (Some(""), Some("true")));
        assert_eq!((parsed.last("new"), parsed.last("newer")), (Some("value"), Some("true")));
        assert_eq!(parsed.0["port"], ["1", "2", ""]);
        assert_eq!(unknown, BTreeSet::from(["new".to_owned(), "newer".to_owned()]));
    }

    #[test]
    fn help_lists_flags_at_the_start_of_lines() {
        let text = parse("--port 1 --help").unwrap_err();
        assert!(text.lines().any(|line| line.trim_start().starts_with("--port PORT")), "{text}");
        assert!(text.lines().any(|line| line.trim_start().starts_with("--fast ")), "{text}");
        assert_eq!(parse("--version").unwrap_err(), "v1\n");
    }
}
