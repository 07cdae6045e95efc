//! Metadata of lists, and errors of bodies that are none.

use std::str::Utf8Error;

use serde::Deserialize;
use thiserror::Error;

use crate::ProtobufError;

/// Metadata of a list.
///
/// Upstream counterpart: `metav1.ListMeta`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    /// Resource version of the list.
    pub resource_version: String,
    /// Token of the next page. `None` or empty on the last page.
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
    /// Number of objects on further pages, if the server reports it.
    pub remaining_item_count: Option<u64>,
}

impl ListMeta {
    /// Returns the token of the next page, if there is one.
    pub fn next_page(self) -> Option<String> {
        self.continue_token.filter(|token| !token.is_empty())
    }
}

/// Body that is not a list.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListError {
    /// Invalid JSON, or JSON of another structure.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// JSON that is not UTF-8.
    #[error(transparent)]
    Utf8(#[from] Utf8Error),
    /// Invalid protobuf.
    #[error(transparent)]
    Protobuf(#[from] ProtobufError),
}
