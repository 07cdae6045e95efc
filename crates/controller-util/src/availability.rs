//! When a pod that is ready counts as available.

use std::{borrow::Borrow, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kcm_api::Pod;

/// Whether `pod` has been ready for `min_ready_seconds` at `now`, the last second included.
///
/// Upstream counterpart: `podutil.IsPodAvailable`.
pub fn is_pod_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    pod.ready.is_true
        && (min_ready_seconds == 0
            || pod.ready.since.is_some_and(|since| since.age(now) >= seconds(min_ready_seconds)))
}

/// In how long `pod` will be available, if nothing happens to it; none if it is, or is not ready, or if it is
/// not known since when.
///
/// Upstream counterpart: `nextPodAvailabilityCheck`.
pub fn next_pod_availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if !pod.ready.is_true || min_ready_seconds <= 0 {
        return None;
    }
    let remaining = seconds(min_ready_seconds).saturating_sub(pod.ready.since?.age(now));
    Duration::try_from(remaining).ok().filter(|remaining| !remaining.is_zero())
}

/// In how long from `now` the next of `pods` becomes available, as their states were judged at `judged_at`.
///
/// A pod that was not available then and has become so meanwhile gives zero: its owner's status must be looked
/// at once more, and at once. None if no pod is on its way.
///
/// Upstream counterpart: `FindMinNextPodAvailabilityCheck`.
pub fn min_next_pod_availability<P: Borrow<Pod>>(
    pods: impl IntoIterator<Item = P>,
    min_ready_seconds: i32,
    judged_at: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    let first = pods
        .into_iter()
        .filter_map(|pod| next_pod_availability(pod.borrow(), min_ready_seconds, judged_at))
        .min()?;
    let passed = Duration::try_from(now.duration_since(judged_at)).unwrap_or_default();
    Some(first.saturating_sub(passed))
}

fn seconds(number: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(number))
}
