//! Between which bounds a rollout moves: how many pods more than wanted, and how many fewer.

use kcm_api::{
    Deployment, IntOrString, ReplicaSet,
    int_or_string::{Round, ScaleError},
};
use thiserror::Error;

use crate::replica_sets::replica_count;

/// The strategy that replaces pods step by step.
pub const ROLLING_UPDATE: &str = "RollingUpdate";

/// The strategy that removes all old pods first.
pub const RECREATE: &str = "Recreate";

/// A strategy that the API server should not have let through.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StrategyError {
    /// There is no surge to compute with.
    #[error("nil value for IntOrString")]
    NoSurge,
    /// The surge is neither a count nor a percentage.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The strategy is none of the two.
    #[error("deployment type {0} isn't supported")]
    Type(String),
}

/// Whether old pods give way step by step.
pub fn is_rolling_update(deployment: &Deployment) -> bool {
    deployment.spec.strategy.type_ == ROLLING_UPDATE
}

/// Surge and unavailability as counts out of `desired`.
///
/// A share is rounded up for the surge and down for the unavailability. When both come out as zero, one pod
/// may be missing after all: the rollout could not move otherwise (US-4.15).
///
/// # Errors
///
/// When one of them is neither a count nor a percentage.
pub fn resolve_fenceposts(
    max_surge: Option<&IntOrString>,
    max_unavailable: Option<&IntOrString>,
    desired: i32,
) -> Result<(i32, i32), ScaleError> {
    let resolve = |value: Option<&IntOrString>, round| value.map_or(Ok(0), |v| v.scaled(desired, round));
    let surge = resolve(max_surge, Round::Up)?;
    let unavailable = resolve(max_unavailable, Round::Down)?;
    Ok((surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable }))
}

/// Both bounds of a rolling update; nothing for another strategy. Bounds that cannot be resolved are zero: the
/// API server refuses them, and upstream does not look at the error either.
fn bounds(deployment: &Deployment) -> Option<(i32, i32)> {
    if !is_rolling_update(deployment) {
        return None;
    }
    // DEVIATION: upstream dereferences a missing `rollingUpdate` block and panics (US-4.15).
    let (surge, unavailable) = match &deployment.spec.strategy.rolling_update {
        Some(rolling) => (rolling.max_surge.as_ref(), rolling.max_unavailable.as_ref()),
        None => (None, None),
    };
    Some(resolve_fenceposts(surge, unavailable, deployment.replicas()).unwrap_or_default())
}

/// How many of the wanted pods may be missing: never more than there are wanted.
pub fn max_unavailable(deployment: &Deployment) -> i32 {
    match bounds(deployment) {
        Some((_, unavailable)) if deployment.replicas() != 0 => unavailable.min(deployment.replicas()),
        _ => 0,
    }
}

/// How many pods more than wanted there may be. May well be more than are wanted.
pub fn max_surge(deployment: &Deployment) -> i32 {
    bounds(deployment).map_or(0, |(surge, _)| surge)
}

/// How many pods must be available at all times; zero where pods are not replaced step by step.
pub fn min_available(deployment: &Deployment) -> i32 {
    if !is_rolling_update(deployment) {
        return 0;
    }
    deployment.replicas().wrapping_sub(max_unavailable(deployment))
}

/// How large the new ReplicaSet should be now, given that `all` exist, of which it is one.
///
/// A rolling update fills the room under size and surge, a Recreate takes the whole size.
///
/// # Errors
///
/// When the strategy is not one of these, or has no usable surge.
pub fn new_rs_new_replicas<'a>(
    deployment: &Deployment,
    all: impl IntoIterator<Item = &'a ReplicaSet>,
    new: &ReplicaSet,
) -> Result<i32, StrategyError> {
    match deployment.spec.strategy.type_.as_str() {
        ROLLING_UPDATE => {
            let desired = deployment.replicas();
            let surge = deployment
                .spec
                .strategy
                .rolling_update
                .as_ref()
                .and_then(|rolling| rolling.max_surge.as_ref())
                .ok_or(StrategyError::NoSurge)?
                .scaled(desired, Round::Up)?;
            let (current, limit) = (replica_count(all), desired.wrapping_add(surge));
            let size = new.replicas();
            if current >= limit {
                return Ok(size);
            }
            let room = limit.wrapping_sub(current);
            Ok(size.wrapping_add(room.min(desired.wrapping_sub(size))))
        }
        RECREATE => Ok(deployment.replicas()),
        other => Err(StrategyError::Type(other.to_owned())),
    }
}

#[cfg(test)]
mod tests;
