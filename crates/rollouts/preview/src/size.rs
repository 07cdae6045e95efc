//! Limit of the simulation.

use kcm_api::{Deployment, PodTemplate};
use kcm_deployment_util::fenceposts;
use serde_json::Value;

use crate::{
    PreviewError, Snapshot,
    json::{controller, text},
    timings::is_finished,
};

/// Maximum number of existing and new pods that are simulated. They take 1.2 GB.
const MAX_PODS: u64 = 20_000;

/// Checks that the change with the result `after` does not concern too many pods.
pub(crate) fn check(snapshot: &Snapshot, after: &Deployment) -> Result<(), PreviewError> {
    let (own, _) = snapshot.split_pods();
    let active = || own.iter().filter(|pod| !is_finished(pod));
    let replicas = after.replicas();
    let with_template: Vec<&str> = snapshot
        .own_replica_sets()
        .into_iter()
        .filter(|set| after.spec.paused || has_template(set, &after.spec.template))
        .map(|set| text(set, "/metadata/uid"))
        .collect();
    let is_kept = |pod: &&&Value| controller(pod).is_some_and(|uid| with_template.contains(&uid));
    let kept = active().filter(is_kept).count() as u64;
    let created = u64::try_from(replicas).unwrap_or(0).saturating_sub(kept);
    let pods = active().count() as u64 + created;
    if pods <= MAX_PODS {
        return Ok(());
    }
    Err(PreviewError::TooLarge {
        pods,
        limit: MAX_PODS,
        max_pods: i64::from(replicas) + i64::from(fenceposts::max_surge(after)),
        min_available: fenceposts::min_available(after),
    })
}

fn has_template(set: &Value, template: &PodTemplate) -> bool {
    serde_json::from_value::<PodTemplate>(set["spec"]["template"].clone())
        .is_ok_and(|other| other.equal_ignore_hash(template))
}
