//! Selection of objects by labels and fields.

mod field;

use crate::{
    Object,
    label_selector::{LabelSelector, SelectorError},
};

pub use field::FieldSelector;

/// Selection of objects by labels and fields. The default selects all objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Label selector.
    pub labels: LabelSelector,
    /// Field selector.
    pub fields: FieldSelector,
}

impl Selection {
    /// Parses a label selector.
    pub fn labels(labels: &str) -> Result<Self, SelectorError> {
        Ok(Self { labels: LabelSelector::parse(labels)?, fields: FieldSelector::default() })
    }

    /// `true` if every object is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.labels.matches_labels(|key| object.label(key)) && self.fields.matches_object(object)
    }
}
