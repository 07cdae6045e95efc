//! Metadata of pod templates.

use serde::Deserialize;

use crate::{Annotations, Labels, json::or_default};

/// Metadata of a template that pods inherit.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateMeta {
    #[serde(deserialize_with = "or_default")]
    pub(crate) labels: Labels,
    #[serde(deserialize_with = "or_default")]
    pub(crate) annotations: Annotations,
    #[serde(deserialize_with = "or_default")]
    pub(crate) finalizers: Vec<String>,
}
