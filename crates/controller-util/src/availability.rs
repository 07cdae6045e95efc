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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{ago, now, pod, ready};

    fn since(seconds: i64) -> Pod {
        ready(pod("p"), ago(seconds))
    }

    #[test]
    fn pod_is_available_from_the_last_second_of_min_ready_on() {
        assert!(is_pod_available(&since(0), 0, now()));
        assert!(is_pod_available(&ready(pod("p"), None), 0, now()));
        assert!(!is_pod_available(&pod("p"), 0, now()));
        assert!(!is_pod_available(&since(3599), 3600, now()));
        assert!(is_pod_available(&since(3600), 3600, now()));
        assert!(!is_pod_available(&ready(pod("p"), None), 1, now()));
    }

    /// Upstream: TestNextPodAvailabilityCheck, its six cases.
    #[test]
    fn test_next_pod_availability_check() {
        let next = |pod: &Pod, min_ready| next_pod_availability(pod, min_ready, now());
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(next(&pod("not-ready"), 10), None);
        assert_eq!(next(&since(0), 0), None);
        assert_eq!(next(&ready(pod("no-time"), None), 10), None);
        assert_eq!(next(&since(0), 1), seconds(1));
        assert_eq!(next(&since(20), 30), seconds(10));
        assert_eq!(next(&since(30), 30), None);
        assert_eq!(next(&since(0), -5), None);
    }

    /// Upstream: TestFindMinNextPodAvailabilitySimpleCheck.
    #[test]
    fn test_find_min_next_pod_availability_simple_check() {
        let min = |pods: Vec<Pod>, min_ready| {
            min_next_pod_availability(pods.into_iter().map(Arc::new), min_ready, now(), now())
        };
        assert_eq!(min(vec![], 30), None);
        assert_eq!(min(vec![pod("not-ready")], 30), None);
        assert_eq!(min(vec![since(0), since(20)], 0), None);
        assert_eq!(min(vec![since(60), since(40)], 30), None);
        assert_eq!(min(vec![since(60), since(5), since(20), pod("x")], 30), Some(Duration::from_secs(10)));
    }

    /// Upstream: TestFindMinNextPodAvailability.
    #[test]
    fn test_find_min_next_pod_availability() {
        let after = |passed| {
            min_next_pod_availability(
                [&since(20), &since(0)],
                30,
                now(),
                now() + SignedDuration::from_secs(passed),
            )
        };
        assert_eq!(after(0), Some(Duration::from_secs(10)));
        assert_eq!(after(4), Some(Duration::from_secs(6)));
        assert_eq!(after(11), Some(Duration::ZERO));
        // A clock that was set back makes it no later than it was.
        assert_eq!(after(-5), Some(Duration::from_secs(10)));
    }
}
