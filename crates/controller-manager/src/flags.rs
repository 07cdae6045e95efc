//! Flags as typed.
//!
//! Upstream counterpart: `pflag`, and the flag sets of `cmd/kube-controller-manager/app/options`.
//!
//! Why no library: pflag's rules are the interface here. `_` for `-` in names, `-v4`, the last of several values,
//! lists that add up, a boolean that takes its value only after `=`, and one line when something is wrong. They
//! are fewer lines than translating another parser's rules and messages into them.

use std::{collections::BTreeSet, ffi::OsString, net::IpAddr};

use thiserror::Error;

use crate::{go_duration::GoDuration, version::BINARY};

mod help;
mod table;
mod value;

pub(crate) use help::help;
pub use table::{FLAGS, Flag};
pub use value::FlagKind;
pub(crate) use value::{CertKey, Value};

/// A command line that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FlagError {
    /// There is no such flag.
    #[error("unknown flag: --{0}")]
    Unknown(String),
    /// There is no flag of that letter.
    #[error("unknown shorthand flag: {0:?} in {1}")]
    UnknownShort(char, String),
    /// A word that begins like a flag and goes on like none.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    /// A flag that takes a value is the last word.
    #[error("flag needs an argument: --{0}")]
    NeedsValue(&'static str),
    /// The same, by its letter.
    #[error("flag needs an argument: {0:?} in {1}")]
    ShortNeedsValue(char, String),
    /// Words that are neither flags nor their values.
    #[error("{BINARY:?} does not take any arguments, got [{}]", quoted(.0))]
    Arguments(Vec<String>),
    /// A word that is not text.
    #[error("argument {0} is not valid UTF-8")]
    NotText(String),
    /// A flag whose value makes no sense.
    #[error("invalid argument {value:?} for {flag:?} flag: {cause}")]
    Invalid {
        /// The flag, with its dashes.
        flag: String,
        /// What was given.
        value: String,
        /// Why that is nothing, in upstream's words.
        cause: String,
    },
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" ")
}

/// What was typed, by flag, each value understood.
#[derive(Debug, Clone)]
pub struct Flags {
    /// One for each of [`FLAGS`].
    values: Vec<Value>,
    given: BTreeSet<&'static str>,
    /// Words that are neither flags nor values.
    arguments: Vec<String>,
}

impl Default for Flags {
    /// No flag given.
    fn default() -> Self {
        let default = |flag: &Flag| match flag.kind {
            // A pair of files is no default; nothing is.
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
    /// Reads the words of a command line, without the program's name.
    ///
    /// # Errors
    ///
    /// When a word is no flag, or a flag has no value or one that makes no sense.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, FlagError> {
        let mut flags = Self::default();
        let mut words = words.into_iter().map(|word| {
            word.into_string().map_err(|word| FlagError::NotText(format!("{:?}", word.to_string_lossy())))
        });
        while let Some(word) = words.next() {
            let word = word?;
            if word == "--" {
                for rest in words.by_ref() {
                    flags.arguments.push(rest?);
                }
            } else if let Some(text) = word.strip_prefix("--") {
                flags.add_long(text, &word, &mut words)?;
            } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                flags.add_letters(letters, &mut words)?;
            } else {
                flags.arguments.push(word);
            }
        }
        Ok(flags)
    }

    /// That there are only flags and their values.
    ///
    /// # Errors
    ///
    /// When there is more.
    pub(crate) fn no_arguments(&self) -> Result<(), FlagError> {
        if self.arguments.iter().all(String::is_empty) {
            return Ok(());
        }
        Err(FlagError::Arguments(self.arguments.clone()))
    }

    fn add_long(
        &mut self,
        text: &str,
        word: &str,
        rest: &mut impl Iterator<Item = Result<String, FlagError>>,
    ) -> Result<(), FlagError> {
        if text.starts_with(['-', '=']) {
            return Err(FlagError::Syntax(word.to_owned()));
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
            // Else `--leader-elect something` could mean either.
            (None, Some(implied)) => implied.to_owned(),
            (None, None) => rest.next().ok_or(FlagError::NeedsValue(FLAGS[index].name))??,
        };
        self.set(index, &value)
    }

    /// `-v4`, `-v=4`, `-v 4`; and letters that take no value may be followed by others.
    fn add_letters(
        &mut self,
        letters: &str,
        rest: &mut impl Iterator<Item = Result<String, FlagError>>,
    ) -> Result<(), FlagError> {
        let mut left = letters.chars();
        loop {
            // With the letter that is next.
            let here = left.as_str();
            let Some(letter) = left.next() else { return Ok(()) };
            let index = FLAGS.iter().position(|flag| flag.short == Some(letter));
            let index = index.ok_or_else(|| FlagError::UnknownShort(letter, format!("-{here}")))?;
            let tail = left.as_str();
            // A `=` that nothing follows is the value itself, as upstream.
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
        // The first that is given takes the place of the default, further ones may add to it.
        if self.given.insert(flag.name) {
            self.values[index] = value;
        } else {
            self.values[index].add(value);
        }
        Ok(())
    }

    /// Whether a flag was given at all.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(name)
    }

    /// Each flag with its value as text, by name. What `/flagz` shows.
    pub fn flagz(&self) -> Vec<(String, String)> {
        let mut all: Vec<_> = FLAGS
            .iter()
            .zip(&self.values)
            .map(|(flag, value)| (flag.name.to_owned(), value.to_string()))
            .collect();
        all.sort();
        all
    }

    /// The flags given that only controllers use that are not built in.
    pub(crate) fn foreign(&self) -> Vec<&'static str> {
        let is_foreign = |flag: &&Flag| flag.help.is_none() && self.is_given(flag.name);
        FLAGS.iter().filter(is_foreign).map(|flag| flag.name).collect()
    }

    /// The flags given that nobody should give any more, and why.
    pub(crate) fn deprecated(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        FLAGS.iter().filter_map(|flag| {
            let why = flag.deprecated?;
            self.is_given(flag.name).then_some((flag.name, why))
        })
    }

    /// The value of a flag. Of one that there is not: an empty text.
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
