//! Field paths and collected errors.

use std::fmt;

use serde_json::Value;

use crate::field_error::{ErrorType, FieldError};

/// Path of a field. It is formatted only if an error is reported.
///
/// Upstream counterpart: `field.Path`.
#[derive(Clone, Copy)]
pub(crate) struct Path<'p> {
    parent: Option<&'p Self>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Child(&'p str),
    Index(usize),
    Key(&'p str),
}

impl<'p> Path<'p> {
    pub(crate) const fn new(name: &'p str) -> Self {
        Path { parent: None, step: Step::Child(name) }
    }

    pub(crate) fn child<'c>(&'c self, name: &'c str) -> Path<'c> {
        Path { parent: Some(self), step: Step::Child(name) }
    }

    pub(crate) fn index(&self, index: usize) -> Path<'_> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    pub(crate) fn key<'c>(&'c self, key: &'c str) -> Path<'c> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Child(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Child(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Errors found so far.
#[derive(Default)]
pub(crate) struct Errors(pub(crate) Vec<FieldError>);

impl Errors {
    fn push(&mut self, error_type: ErrorType, path: &Path<'_>, value: Value, detail: String) {
        self.0.push(FieldError { field: path.to_string(), error_type, value: Some(value), detail });
    }

    pub(crate) fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.push(ErrorType::Required, path, Value::from(""), detail.to_owned());
    }

    pub(crate) fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(ErrorType::Invalid, path, value.into(), detail.into());
    }

    pub(crate) fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.push(ErrorType::Forbidden, path, Value::from(""), detail.into());
    }

    /// `supported` are listed in the message in this order.
    pub(crate) fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        self.push(ErrorType::NotSupported, path, value.into(), detail);
    }

    pub(crate) fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.push(ErrorType::Duplicate, path, value.into(), String::new());
    }

    pub(crate) fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.push(ErrorType::NotFound, path, value.into(), String::new());
    }

    /// `limit` in bytes.
    pub(crate) fn too_long(&mut self, path: &Path<'_>, limit: usize) {
        self.push(ErrorType::TooLong, path, Value::Null, format!("may not be more than {limit} bytes"));
    }

    pub(crate) fn too_many(&mut self, path: &Path<'_>, count: usize, limit: usize) {
        self.push(ErrorType::TooMany, path, Value::from(count), format!("must have at most {limit} items"));
    }

    /// Adds an `Invalid` error for each message of `rule` about `text`.
    pub(crate) fn rule(&mut self, path: &Path<'_>, text: &str, rule: fn(&str) -> Vec<String>) {
        for detail in rule(text) {
            self.invalid(path, text, detail);
        }
    }

    pub(crate) fn not_negative(&mut self, path: &Path<'_>, number: Option<i64>) {
        if let Some(number) = number.filter(|number| *number < 0) {
            self.invalid(path, number, "must be greater than or equal to 0");
        }
    }

    pub(crate) fn in_range(&mut self, path: &Path<'_>, number: Option<i64>, lowest: i64, highest: i64) {
        if let Some(number) = number.filter(|number| !(lowest..=highest).contains(number)) {
            self.invalid(path, number, format!("must be between {lowest} and {highest}, inclusive"));
        }
    }

    /// Requires a string to be one of `supported`.
    pub(crate) fn one_of(&mut self, path: &Path<'_>, text: &str, supported: &[&str]) {
        if text.is_empty() {
            self.required(path, "");
        } else if !supported.contains(&text) {
            self.not_supported(path, text, supported);
        }
    }

    /// Requires a non-empty string.
    pub(crate) fn present(&mut self, path: &Path<'_>, text: &str) {
        if text.is_empty() {
            self.required(path, "");
        }
    }

    pub(crate) fn immutable(&mut self, path: &Path<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new.clone(), "field is immutable");
        }
    }
}
