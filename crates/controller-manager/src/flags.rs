//! Command-line flags with pflag's syntax.
//!
//! No argument parser is used because pflag's syntax and messages are part of the interface: `_` for `-` in names,
//! `-v4`, repeated flags that replace or extend a value, and booleans that take a value only after `=`.
//!
//! Upstream counterpart: `pflag`, and the flag sets of `cmd/kube-controller-manager/app/options`.

use std::{collections::BTreeSet, ffi::OsString, net::IpAddr};

use kcm_api::GoDuration;
use thiserror::Error;

use crate::version::BINARY;

mod help;
mod table;
mod value;

pub(crate) use help::help;
pub use table::{FLAGS, Flag};
pub use value::FlagKind;
pub(crate) use value::{CertKey, Value};

/// Invalid command line. The messages are pflag's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FlagError {
    /// The flag does not exist.
    #[error("unknown flag: --{0}")]
    Unknown(String),
    /// The shorthand letter does not exist.
    #[error("unknown shorthand flag: {0:?} in {1}")]
    UnknownShort(char, String),
    /// The argument starts with a dash and is not a flag.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    /// The last argument is a flag without its value.
    #[error("flag needs an argument: --{0}")]
    NeedsValue(&'static str),
    /// The last argument is a shorthand letter without its value.
    #[error("flag needs an argument: {0:?} in {1}")]
    ShortNeedsValue(char, String),
    /// There are positional arguments.
    #[error("{BINARY:?} does not take any arguments, got [{}]", quoted(.0))]
    Arguments(Vec<String>),
    /// The argument is not UTF-8.
    #[error("argument {0} is not valid UTF-8")]
    NotText(String),
    /// The value of a flag is invalid.
    #[error("invalid argument {value:?} for {flag:?} flag: {cause}")]
    Invalid {
        /// Flag with its leading dashes.
        flag: String,
        /// Invalid value.
        value: String,
        /// Upstream's message.
        cause: String,
    },
}

fn quoted(arguments: &[String]) -> String {
    arguments.iter().map(|argument| format!("{argument:?}")).collect::<Vec<_>>().join(" ")
}

/// Values of all flags.
#[derive(Debug, Clone)]
pub struct Flags {
    /// One for each of [`FLAGS`].
    values: Vec<Value>,
    /// Names of the flags on the command line.
    given: BTreeSet<&'static str>,
    /// Positional arguments.
    arguments: Vec<String>,
}

impl Default for Flags {
    /// All flags with their defaults.
    fn default() -> Self {
        let default = |flag: &Flag| match flag.kind {
            // An empty text is not a valid value of these types.
            FlagKind::CertKeys => Value::CertKeys(Vec::new()),
            FlagKind::Int32List => Value::Ints(Vec::new()),
            FlagKind::Map => Value::Map(std::collections::BTreeMap::new()),
            // A test parses all defaults.
            kind => Value::parse(kind, flag.default).unwrap_or_else(|_| Value::Text(flag.default.to_owned())),
        };
        Self { values: FLAGS.iter().map(default).collect(), given: BTreeSet::new(), arguments: Vec::new() }
    }
}

impl Flags {
    /// Parses the arguments of a program, without its name.
    ///
    /// # Errors
    ///
    /// The first flag that is unknown, or whose value is missing or invalid.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, FlagError> {
        let mut flags = Self::default();
        let mut arguments = arguments.into_iter().map(|argument| {
            argument
                .into_string()
                .map_err(|argument| FlagError::NotText(format!("{:?}", argument.to_string_lossy())))
        });
        while let Some(argument) = arguments.next() {
            let argument = argument?;
            if argument == "--" {
                for rest in arguments.by_ref() {
                    flags.arguments.push(rest?);
                }
            } else if let Some(text) = argument.strip_prefix("--") {
                flags.add_long(text, &argument, &mut arguments)?;
            } else if let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                flags.add_letters(letters, &mut arguments)?;
            } else {
                flags.arguments.push(argument);
            }
        }
        Ok(flags)
    }

    /// Returns an error if there are positional arguments.
    ///
    /// # Errors
    ///
    /// [`FlagError::Arguments`].
    pub(crate) fn no_arguments(&self) -> Result<(), FlagError> {
        if self.arguments.iter().all(String::is_empty) {
            return Ok(());
        }
        Err(FlagError::Arguments(self.arguments.clone()))
    }

    fn add_long(
        &mut self,
        text: &str,
        argument: &str,
        rest: &mut impl Iterator<Item = Result<String, FlagError>>,
    ) -> Result<(), FlagError> {
        if text.starts_with(['-', '=']) {
            return Err(FlagError::Syntax(argument.to_owned()));
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let name = name.replace('_', "-");
        let Some(index) = FLAGS.iter().position(|flag| flag.name == name) else {
            return Err(FlagError::Unknown(name));
        };
        let value = match (value, FLAGS[index].kind.implied()) {
            (Some(value), _) => value,
            // A value after a space would be ambiguous.
            (None, Some(implied)) => implied.to_owned(),
            (None, None) => rest.next().ok_or(FlagError::NeedsValue(FLAGS[index].name))??,
        };
        self.set(index, &value)
    }

    /// Parses `-v4`, `-v=4` and `-v 4`. Letters of flags without a value may be followed by other letters.
    fn add_letters(
        &mut self,
        letters: &str,
        rest: &mut impl Iterator<Item = Result<String, FlagError>>,
    ) -> Result<(), FlagError> {
        let mut left = letters.chars();
        loop {
            let here = left.as_str();
            let Some(letter) = left.next() else { return Ok(()) };
            let index = FLAGS.iter().position(|flag| flag.short == Some(letter));
            let index = index.ok_or_else(|| FlagError::UnknownShort(letter, format!("-{here}")))?;
            let tail = left.as_str();
            // A trailing `=` is the value, as upstream.
            if let Some(value) = tail.strip_prefix('=').filter(|value| !value.is_empty()) {
                return self.set(index, value);
            }
            match FLAGS[index].kind.implied() {
                Some(implied) => self.set(index, implied)?,
                None if !tail.is_empty() => return self.set(index, tail),
                None => {
                    let value = rest.next();
                    let value =
                        value.ok_or_else(|| FlagError::ShortNeedsValue(letter, format!("-{here}")))??;
                    return self.set(index, &value);
                }
            }
        }
    }

    fn set(&mut self, index: usize, text: &str) -> Result<(), FlagError> {
        let flag = &FLAGS[index];
        let value = Value::parse(flag.kind, text).map_err(|cause| FlagError::Invalid {
            flag: match flag.short {
                Some(letter) => format!("-{letter}, --{}", flag.name),
                None => format!("--{}", flag.name),
            },
            value: text.to_owned(),
            cause,
        })?;
        // The first value replaces the default. Further values extend lists.
        if self.given.insert(flag.name) {
            self.values[index] = value;
        } else {
            self.values[index].add(value);
        }
        Ok(())
    }

    /// Returns `true` if the flag is on the command line.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(name)
    }

    /// Names and values of all flags, sorted by name, for `/flagz`.
    pub fn flagz(&self) -> Vec<(String, String)> {
        let mut all: Vec<_> = FLAGS
            .iter()
            .zip(&self.values)
            .map(|(flag, value)| (flag.name.to_owned(), value.to_string()))
            .collect();
        all.sort();
        all
    }

    /// Flags on the command line that are only used by controllers that are not part of this binary.
    pub(crate) fn foreign(&self) -> Vec<&'static str> {
        let is_foreign = |flag: &&Flag| flag.help.is_none() && self.is_given(flag.name);
        FLAGS.iter().filter(is_foreign).map(|flag| flag.name).collect()
    }

    /// Deprecated flags on the command line, with their deprecation messages.
    pub(crate) fn deprecated(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        FLAGS.iter().filter_map(|flag| {
            let message = flag.deprecated?;
            self.is_given(flag.name).then_some((flag.name, message))
        })
    }

    /// Value of a flag. The value of an unknown flag is an empty text.
    pub(crate) fn value(&self, name: &str) -> &Value {
        static NONE: Value = Value::Text(String::new());
        FLAGS.iter().position(|flag| flag.name == name).map_or(&NONE, |index| &self.values[index])
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        if let Value::Text(text) = self.value(name) { text } else { "" }
    }

    pub(crate) fn bool(&self, name: &str) -> bool {
        matches!(self.value(name), Value::Bool(true))
    }

    pub(crate) fn int(&self, name: &str) -> i64 {
        if let Value::Int(value) = self.value(name) { *value } else { 0 }
    }

    pub(crate) fn float(&self, name: &str) -> f64 {
        if let Value::Float(value) = self.value(name) { *value } else { 0.0 }
    }

    pub(crate) fn duration(&self, name: &str) -> GoDuration {
        if let Value::Duration(value) = self.value(name) { *value } else { GoDuration::default() }
    }

    pub(crate) fn list(&self, name: &str) -> &[String] {
        if let Value::List(values) = self.value(name) { values } else { &[] }
    }

    pub(crate) fn ints(&self, name: &str) -> &[i64] {
        if let Value::Ints(values) = self.value(name) { values } else { &[] }
    }

    pub(crate) fn address(&self, name: &str) -> Option<IpAddr> {
        if let Value::Address(address) = self.value(name) { *address } else { None }
    }

    pub(crate) fn cert_keys(&self, name: &str) -> &[CertKey] {
        if let Value::CertKeys(values) = self.value(name) { values } else { &[] }
    }
}

#[cfg(test)]
mod tests;
