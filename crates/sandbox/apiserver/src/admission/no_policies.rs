//! Without the feature `cel`, policies have no effect, and match conditions of webhooks fail.

use serde_json::Value;

use super::{Attributes, GroupVersionResource};
use crate::{ApiStatus, registry::Registry};

/// Policies that have no effect.
#[derive(Debug, Default)]
pub(crate) struct Policies {}

pub(crate) const fn exist(_: &Registry) -> bool {
    false
}

impl Policies {
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "the signature is that of the feature `cel`"
    )]
    pub(crate) fn validate(
        &self,
        _: &Registry,
        _: &Attributes<'_>,
        _: &[GroupVersionResource<'_>],
    ) -> Result<Vec<String>, ApiStatus> {
        Ok(Vec::new())
    }
}

/// # Errors
///
/// Always.
pub(crate) fn meets_conditions(_: &Registry, _: &Attributes<'_>, _: &[Value]) -> Result<bool, String> {
    Err("match conditions of webhooks require the feature cel of the embedded API server".to_owned())
}
