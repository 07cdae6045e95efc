//! Validation errors of single fields, in upstream's format.

use std::fmt;

use serde_json::Value;

/// Type of a validation error.
///
/// Upstream counterpart: `field.ErrorType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    /// A required field is missing.
    Required,
    /// The value is invalid.
    Invalid,
    /// The value is not one of the supported values.
    NotSupported,
    /// The field must not be set or changed.
    Forbidden,
    /// The value is a duplicate.
    Duplicate,
    /// The value is too long.
    TooLong,
    /// The referenced value does not exist.
    NotFound,
    /// The value has another type than its schema.
    TypeInvalid,
    /// The list or map has too many elements.
    TooMany,
}

impl ErrorType {
    /// Machine-readable reason in a Status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::NotFound => "Not found",
            Self::TooMany => "Too many",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }
}

/// Validation error of a field.
///
/// Its [`Display`](fmt::Display) is `<field>: <Type>[: <value>][: <detail>]`.
///
/// Upstream counterpart: `field.Error`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Path of the field, such as `spec.template.spec.containers[0].name`.
    pub field: String,
    /// Type of the error.
    pub error_type: ErrorType,
    /// Rejected value. Errors of some types do not print it. `None` if it is omitted, as that of a rule on an object.
    pub value: Option<Value>,
    /// Description of valid values, or empty.
    pub detail: String,
}

impl FieldError {
    /// Message without the field path.
    pub fn message(&self) -> String {
        let mut text = self.error_type.text().to_owned();
        if let Some(value) = self.value.as_ref().filter(|_| self.error_type.shows_value()) {
            text.push_str(": ");
            // Values are printed as JSON, as upstream since 1.34.
            text.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

/// Joins `errors` into a message: the error itself if there is one, `[a, b]` if there are several. Duplicates are
/// removed.
///
/// The message follows `Deployment.apps "web" is invalid: ` in a Status.
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
