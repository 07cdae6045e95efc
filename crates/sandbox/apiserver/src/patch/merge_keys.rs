//! Patch strategies of lists and maps in strategic merges.
//!
//! Lists without an entry are replaced, maps are merged. Upstream has the strategies in the tags `patchStrategy` and
//! `patchMergeKey` of its types. The tag `retainKeys` affects only clients that compute patches.

use crate::apply::associative_list;

/// Merge strategy of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// List of objects, merged by the value of this key.
    MergeBy(&'static str),
    /// List of scalars, merged as a set.
    Union,
    /// Replaced by the value in the patch.
    Replace,
}

use Strategy::{MergeBy, Replace, Union};

/// Returns the strategy of a field of a type. `None` for the default strategy.
///
/// Lists are merged by the first key of server-side apply, with these exceptions of v1.36.
pub(super) fn strategy(type_name: &str, field: &str) -> Option<Strategy> {
    match (type_name, field) {
        ("PodDisruptionBudgetSpec", "selector") => Some(Replace),
        ("PodStatus", "hostIPs") => Some(MergeBy("ip")),
        ("JobStatus", "conditions") => Some(MergeBy("type")),
        (
            "AllocatedDeviceStatus"
            | "CertificateSigningRequestStatus"
            | "ResourceClaimStatus"
            | "ValidatingAdmissionPolicyStatus",
            "conditions" | "devices",
        )
        | ("CSIDriverSpec", "volumeLifecycleModes")
        | ("Endpoint", "addresses")
        | ("NonResourcePolicyRule" | "ResourcePolicyRule" | "UncountedTerminatedPods", _)
        | ("ResourceRequirements", "claims")
        | ("ValidatingAdmissionPolicyBindingSpec", "validationActions") => None,
        _ => associative_list(type_name, field).map(|keys| keys.first().map_or(Union, |key| MergeBy(key))),
    }
}
