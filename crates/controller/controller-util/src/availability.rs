//! Availability of pods: ready for `minReadySeconds`.

use std::{borrow::Borrow, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kcm_api::Pod;

/// Returns `true` if `pod` has been ready for at least `min_ready_seconds` at `now`.
///
/// Upstream counterpart: `podutil.IsPodAvailable`.
pub fn is_pod_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    pod.ready.is_ready
        && (min_ready_seconds == 0
            || pod.ready.since.is_some_and(|since| since.age(now) >= seconds(min_ready_seconds)))
}

/// Returns the time until `pod` becomes available if its state does not change.
///
/// `remaining = minReadySeconds - (now - ready since)`. Example: `minReadySeconds` is 30, and the pod has been ready for
/// 20 s. It becomes available in 10 s.
///
/// Returns `None` if the pod is available, is not ready, or has no time of readiness.
///
/// Upstream counterpart: `nextPodAvailabilityCheck`.
pub fn next_pod_availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if !pod.ready.is_ready || min_ready_seconds <= 0 {
        return None;
    }
    let remaining = seconds(min_ready_seconds).saturating_sub(pod.ready.since?.age(now));
    Duration::try_from(remaining).ok().filter(|remaining| !remaining.is_zero())
}

/// Returns the time from `now` until the next of `pods` becomes available, given their status at `evaluated_at`.
///
/// Returns zero if a pod was not available at `evaluated_at` and is available at `now`: the status of the owner is then
/// outdated. Returns `None` if no pod becomes available without an event.
///
/// Upstream counterpart: `FindMinNextPodAvailabilityCheck`.
pub fn min_next_pod_availability<P: Borrow<Pod>>(
    pods: impl IntoIterator<Item = P>,
    min_ready_seconds: i32,
    evaluated_at: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    let first = pods
        .into_iter()
        .filter_map(|pod| next_pod_availability(pod.borrow(), min_ready_seconds, evaluated_at))
        .min()?;
    let passed = Duration::try_from(now.duration_since(evaluated_at)).unwrap_or_default();
    Some(first.saturating_sub(passed))
}

fn seconds(number: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ago, now, pod, ready};

    fn since(seconds: i64) -> Pod {
        ready(pod("p"), ago(seconds))
    }

    #[test]
    fn available_after_min_ready_seconds() {
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
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let cases = [
            ("not ready", pod("p"), 0, None),
            ("no minReadySeconds defined", since(0), 0, None),
            ("lastTransitionTime is zero", ready(pod("p"), None), 1, None),
            ("just became ready - available in 1s", since(0), 1, seconds(1)),
            ("ready for 20s - available in 10s", since(20), 30, seconds(10)),
            ("available", since(51), 50, None),
            ("available just now", since(30), 30, None),
            ("a minReadySeconds below zero", since(0), -5, None),
        ];
        for (name, pod, min_ready, expected) in cases {
            assert_eq!(next_pod_availability(&pod, min_ready, now()), expected, "{name}");
        }
    }

    /// Upstream: TestFindMinNextPodAvailabilitySimpleCheck, its five cases.
    #[test]
    fn test_find_min_next_pod_availability_simple_check() {
        let unready = || pod("p");
        let cases = [
            ("no pods", vec![], 0, None),
            ("unready pods", vec![unready(), unready()], 0, None),
            ("ready pods with no minReadySeconds", vec![since(0), since(0)], 0, None),
            (
                "unready and ready pods should find min next availability check",
                vec![unready(), since(2), since(0), since(4), unready()],
                10,
                Some(Duration::from_secs(6)),
            ),
            (
                "unready and available pods do not require min next availability check",
                vec![unready(), since(15), since(11), since(10), unready()],
                10,
                None,
            ),
        ];
        for (name, pods, min_ready, expected) in cases {
            assert_eq!(min_next_pod_availability(pods, min_ready, now(), now()), expected, "{name}");
        }
    }

    /// Upstream: TestFindMinNextPodAvailability, its two cases, where time passes while the status is written.
    #[test]
    fn test_find_min_next_pod_availability() {
        let pods = [pod("p"), since(2), since(0), since(4), pod("p")];
        let cases = [
            ("considering status evaluation/update delay", 2, Duration::from_secs(4)),
            ("the status evaluation delay is longer than what is left", 7, Duration::ZERO),
            // Not upstream's.
            ("no delay", 0, Duration::from_secs(6)),
            ("a clock that was set back makes it no later than it was", -5, Duration::from_secs(6)),
        ];
        for (name, passed, expected) in cases {
            let later = now() + SignedDuration::from_secs(passed);
            assert_eq!(min_next_pod_availability(&pods, 10, now(), later), Some(expected), "{name}");
        }
    }
}
