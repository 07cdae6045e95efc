//! Label and field selectors, as they stand in a query string and in a `LabelSelector`.

mod field;
mod label;

use crate::Object;

pub use field::FieldSelector;
pub(crate) use field::SelectableField;
pub use label::LabelSelector;

/// A selector that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// Which objects a list or a watch is about. The default selects every one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// What the labels must be.
    pub labels: LabelSelector,
    /// What some fields must be.
    pub fields: FieldSelector,
}

impl Selection {
    /// Objects with these labels.
    ///
    /// # Errors
    ///
    /// When `labels` does not follow the selector syntax.
    pub fn labels(labels: &str) -> Result<Self, SelectorError> {
        Ok(Self { labels: LabelSelector::parse(labels)?, fields: FieldSelector::default() })
    }

    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.labels.matches(object.value()) && self.fields.matches(object.value())
    }
}
