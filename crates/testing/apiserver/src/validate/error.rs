//! One thing that is wrong with one field, in upstream's words.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// What kind of thing is wrong.
///
/// Upstream counterpart: `field.ErrorType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    /// A field that must be there is not.
    Required,
    /// The value is not one the field can have.
    Invalid,
    /// The value is not one of those that are known.
    NotSupported,
    /// The field must not be there, or not be changed.
    Forbidden,
    /// The value is there twice.
    Duplicate,
    /// The value is too long.
    TooLong,
    /// What the value refers to does not exist.
    NotFound,
}

impl ErrorType {
    /// The machine-readable reason in a Status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::NotFound => "FieldValueNotFound",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::NotFound => "Not found",
        }
    }

    fn shows_value(self) -> bool {
        matches!(self, Self::Invalid | Self::NotSupported | Self::Duplicate | Self::NotFound)
    }
}

/// One thing that is wrong with one field.
///
/// Its [`Display`](fmt::Display) is the whole line, `<field>: <Type>[: <value>][: <detail>]`.
///
/// Upstream counterpart: `field.Error`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Where, as in `spec.template.spec.containers[0].name`.
    pub field: String,
    /// What kind of thing is wrong.
    pub error_type: ErrorType,
    /// The value that is there. Messages of some types do not show it.
    pub value: Value,
    /// What would be right; may be empty.
    pub detail: String,
}

/// An element of `details.causes` of a Status object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// As [`ErrorType::reason`].
    pub reason: &'static str,
    /// The line without the field's name.
    pub message: String,
    /// Where.
    pub field: String,
}

impl FieldError {
    /// The line without the field's name.
    pub fn message(&self) -> String {
        let mut text = self.error_type.text().to_owned();
        if self.error_type.shows_value() {
            text.push_str(": ");
            // As JSON, so texts are quoted and structures readable; upstream does so since 1.34.
            text.push_str(&self.value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// This error as a cause of a Status object.
    pub fn cause(&self) -> Cause {
        Cause { reason: self.error_type.reason(), message: self.message(), field: self.field.clone() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

/// All of `errors` as one text: the line itself for one, `[a, b]` for several. Equal lines appear once.
///
/// This is what follows `Deployment.apps "web" is invalid: ` in a Status message.
///
/// Upstream counterpart: `field.ErrorList.ToAggregate`.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut lines: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let line = error.to_string();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match lines.as_slice() {
        [line] => line.clone(),
        lines => format!("[{}]", lines.join(", ")),
    }
}

/// The causes of a Status object for `errors`. Unlike [`aggregate`] it keeps equal ones.
pub fn causes(errors: &[FieldError]) -> Vec<Cause> {
    errors.iter().map(FieldError::cause).collect()
}
