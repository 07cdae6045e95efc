//! Fields that a write through a subresource resets, which their writer therefore does not own.
//!
//! Upstream counterpart: `GetResetFields` of the strategies.

use crate::{Subresource, kind::Kind};

type Path = &'static [&'static str];

const METADATA: Path = &["f:metadata"];
const SPEC: Path = &["f:spec"];
const STATUS: Path = &["f:status"];

/// Kinds whose status is written without metadata, besides custom resources.
const WITHOUT_METADATA: [&str; 8] = [
    "APIService",
    "CustomResourceDefinition",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "ResourceClaim",
    "ServiceCIDR",
    "ValidatingAdmissionPolicy",
    "VolumeAttachment",
];

/// `true` for a kind whose status is written without metadata.
pub(crate) fn status_lacks_metadata(kind: &str) -> bool {
    WITHOUT_METADATA.contains(&kind)
}

/// Returns the fields that a write through `subresource`, or `""`, resets.
pub(super) fn reset_fields(kind: &Kind, subresource: &str) -> &'static [Path] {
    match (kind.name(), subresource) {
        // A subresource of one field.
        (_, "scale") => &[],
        ("CertificateSigningRequest", "") if kind.custom.is_none() => &[SPEC, STATUS],
        ("CertificateSigningRequest", "approval") => &[SPEC, &["f:status", "f:certificate"]],
        ("CertificateSigningRequest", _) if kind.custom.is_none() => &[SPEC, &["f:status", "f:conditions"]],
        (_, "" | "finalize") if kind.has(Subresource::Status) => &[STATUS],
        (_, "" | "finalize") => &[],
        ("Deployment", _) if kind.custom.is_none() => &[SPEC, &["f:metadata", "f:labels"]],
        // Other fields are not changed by these writes.
        ("Pod", "ephemeralcontainers" | "resize") => &[METADATA, STATUS],
        ("Pod", _) if kind.custom.is_none() => {
            &[SPEC, &["f:metadata", "f:ownerReferences"], &["f:metadata", "f:deletionTimestamp"]]
        }
        (name, _) if kind.custom.is_some() || status_lacks_metadata(name) => &[METADATA, SPEC],
        _ => &[SPEC],
    }
}
