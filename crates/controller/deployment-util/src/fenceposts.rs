//! Bounds of a rolling update: `maxSurge` and `maxUnavailable` as numbers of pods.

use std::num::Wrapping;

use kcm_api::{
    Deployment, IntOrString,
    int_or_string::{Round, ScaleError},
};
use thiserror::Error;

/// Strategy type that replaces old pods gradually.
pub const ROLLING_UPDATE: &str = "RollingUpdate";

/// Strategy type that deletes all old pods before it creates new ones.
pub const RECREATE: &str = "Recreate";

/// Strategy that API server validation does not permit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// `maxSurge` is missing.
    #[error("nil value for IntOrString")]
    MissingMaxSurge,
    /// `maxSurge` is neither a number nor a percentage.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The strategy type is unknown.
    #[error("deployment type {0} isn't supported")]
    UnknownType(String),
}

/// Returns `true` if the strategy is [`ROLLING_UPDATE`].
pub fn is_rolling_update(deployment: &Deployment) -> bool {
    deployment.spec.strategy.type_ == ROLLING_UPDATE
}

/// Returns `maxSurge` and `maxUnavailable` as numbers of pods.
///
/// A percentage of `desired` is rounded up for `maxSurge` and down for `maxUnavailable`. If both results are 0,
/// `maxUnavailable` is 1, because the rollout could not progress otherwise (US-4.15).
///
/// Example: with 25% for both and `desired = 10`, `maxSurge` is 2.5 rounded up to 3, and `maxUnavailable` is 2.5 rounded
/// down to 2. The rollout has at most 13 pods, and at least 8 of them are available.
///
/// Upstream counterpart: `ResolveFenceposts`.
///
/// # Errors
///
/// If a value is neither a number nor a percentage.
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

/// Returns both bounds of a rolling update, or `None` for another strategy.
///
/// Invalid bounds are 0, as upstream, which ignores the error. The API server does not admit them.
fn fenceposts(deployment: &Deployment) -> Option<(i32, i32)> {
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

/// Returns the maximum number of unavailable pods, which is at most `spec.replicas`. 0 if not a rolling update.
///
/// Upstream counterpart: `MaxUnavailable`.
pub fn max_unavailable(deployment: &Deployment) -> i32 {
    match fenceposts(deployment) {
        Some((_, unavailable)) if deployment.replicas() != 0 => unavailable.min(deployment.replicas()),
        _ => 0,
    }
}

/// Returns the maximum number of pods above `spec.replicas`. 0 if not a rolling update.
///
/// Upstream counterpart: `MaxSurge`.
pub fn max_surge(deployment: &Deployment) -> i32 {
    fenceposts(deployment).map_or(0, |(surge, _)| surge)
}

/// Returns the maximum number of pods during a rollout: `spec.replicas + maxSurge`.
pub fn max_total_replicas(deployment: &Deployment) -> i32 {
    (Wrapping(deployment.replicas()) + Wrapping(max_surge(deployment))).0
}

/// Returns the number of available pods from which the Deployment is `Available`: `spec.replicas - maxUnavailable`.
///
/// Differs from [`min_available`] for a Recreate: its Deployment is `Available` if all pods are.
pub fn availability_threshold(deployment: &Deployment) -> i32 {
    (Wrapping(deployment.replicas()) - Wrapping(max_unavailable(deployment))).0
}

/// Returns the number of available pods that a rolling update keeps. 0 if not a rolling update.
///
/// Upstream counterpart: `MinAvailable`.
pub fn min_available(deployment: &Deployment) -> i32 {
    if is_rolling_update(deployment) { availability_threshold(deployment) } else { 0 }
}

/// Returns the size of the new ReplicaSet that the bounds permit.
///
/// `new_rs_replicas` is its present size, `total_replicas` the present size of all ReplicaSets together. With a rolling
/// update the size is
///
/// ```text
/// new_rs_replicas + min(replicas + maxSurge - total_replicas, replicas - new_rs_replicas)
/// ```
///
/// and unchanged if `total_replicas` has reached `replicas + maxSurge`. With a Recreate it is `replicas`.
///
/// Example: 10 replicas, `maxSurge: 3`, 8 old pods and 3 new ones. At most 13 pods are permitted and 11 exist, so the new
/// ReplicaSet grows by min(2, 7) = 2 to 5.
///
/// Upstream counterpart: `NewRSNewReplicas`.
///
/// # Errors
///
/// If the strategy type is unknown, or if `maxSurge` of a rolling update is missing or invalid.
pub fn new_rs_new_replicas(
    deployment: &Deployment,
    new_rs_replicas: i32,
    total_replicas: i32,
) -> Result<i32, StrategyError> {
    match deployment.spec.strategy.type_.as_str() {
        ROLLING_UPDATE => {
            let desired = deployment.replicas();
            let rolling_update = deployment.spec.strategy.rolling_update.as_ref();
            let max_surge = rolling_update
                .and_then(|rolling| rolling.max_surge.as_ref())
                .ok_or(StrategyError::MissingMaxSurge)?
                .scaled(desired, Round::Up)?;
            let [desired, max_surge, new, total] =
                [desired, max_surge, new_rs_replicas, total_replicas].map(Wrapping);
            let max_total = desired + max_surge;
            if total >= max_total {
                return Ok(new_rs_replicas);
            }
            Ok((new + (max_total - total).min(desired - new)).0)
        }
        RECREATE => Ok(deployment.replicas()),
        other => Err(StrategyError::UnknownType(other.to_owned())),
    }
}

#[cfg(test)]
mod tests;
