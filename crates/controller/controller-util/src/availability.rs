//! Availability of pods: ready for `minReadySeconds`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kcm_api::Ready;

use crate::PodView;

/// Returns `true` if `pod` has been ready for at least `min_ready_seconds` at `now`.
///
/// Upstream counterpart: `podutil.IsPodAvailable`.
pub fn is_pod_available<P: PodView>(pod: &P, min_ready_seconds: i32, now: Timestamp) -> bool {
    let Ready { is_ready, since } = pod.readiness();
    is_ready
        && (min_ready_seconds == 0 || since.is_some_and(|since| since.age(now) >= seconds(min_ready_seconds)))
}

/// Returns the time until `pod` becomes available if its state does not change.
///
/// `remaining = minReadySeconds - (now - ready since)`. Example: `minReadySeconds` is 30, and the pod has been ready for
/// 20 s. It becomes available in 10 s.
///
/// Returns `None` if the pod is available, is not ready, or has no time of readiness.
///
/// Upstream counterpart: `nextPodAvailabilityCheck`.
pub fn next_pod_availability<P: PodView>(
    pod: &P,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    let Ready { is_ready, since } = pod.readiness();
    if !is_ready || min_ready_seconds <= 0 {
        return None;
    }
    let remaining = seconds(min_ready_seconds).saturating_sub(since?.age(now));
    Duration::try_from(remaining).ok().filter(|remaining| !remaining.is_zero())
}

/// Returns the time from `now` until the next of `pods` becomes available, given their status at `evaluated_at`.
///
/// Returns zero if a pod was not available at `evaluated_at` and is available at `now`: the status of the owner is then
/// outdated. Returns `None` if no pod becomes available without an event.
///
/// Upstream counterpart: `FindMinNextPodAvailabilityCheck`.
pub fn min_next_pod_availability<'a, P: PodView>(
    pods: impl IntoIterator<Item = &'a P>,
    min_ready_seconds: i32,
    evaluated_at: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    let first = pods
        .into_iter()
        .filter_map(|pod| next_pod_availability(pod, min_ready_seconds, evaluated_at))
        .min()?;
    let passed = Duration::try_from(now.duration_since(evaluated_at)).unwrap_or_default();
    Some(first.saturating_sub(passed))
}

fn seconds(number: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(number))
}

#[cfg(test)]
mod tests {
    use kcm_api::Pod;

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
        struct Case {
            name: &'static str,
            pod: Pod,
            min_ready: i32,
            expected: Option<Duration>,
        }

        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let cases = [
            Case { name: "not ready", pod: pod("p"), min_ready: 0, expected: None },
            Case { name: "no minReadySeconds defined", pod: since(0), min_ready: 0, expected: None },
            Case {
                name: "lastTransitionTime is zero",
                pod: ready(pod("p"), None),
                min_ready: 1,
                expected: None,
            },
            Case {
                name: "just became ready - available in 1s",
                pod: since(0),
                min_ready: 1,
                expected: seconds(1),
            },
            Case {
                name: "ready for 20s - available in 10s",
                pod: since(20),
                min_ready: 30,
                expected: seconds(10),
            },
            Case { name: "available", pod: since(51), min_ready: 50, expected: None },
            Case { name: "available just now", pod: since(30), min_ready: 30, expected: None },
            Case { name: "a minReadySeconds below zero", pod: since(0), min_ready: -5, expected: None },
        ];
        for Case { name, pod, min_ready, expected } in cases {
            assert_eq!(next_pod_availability(&pod, min_ready, now()), expected, "{name}");
        }
    }

    /// Upstream: TestFindMinNextPodAvailabilitySimpleCheck, its five cases.
    #[test]
    fn test_find_min_next_pod_availability_simple_check() {
        struct Case {
            name: &'static str,
            pods: Vec<Pod>,
            min_ready: i32,
            expected: Option<Duration>,
        }

        let unready = || pod("p");
        let cases = [
            Case { name: "no pods", pods: vec![], min_ready: 0, expected: None },
            Case { name: "unready pods", pods: vec![unready(), unready()], min_ready: 0, expected: None },
            Case {
                name: "ready pods with no minReadySeconds",
                pods: vec![since(0), since(0)],
                min_ready: 0,
                expected: None,
            },
            Case {
                name: "unready and ready pods should find min next availability check",
                pods: vec![unready(), since(2), since(0), since(4), unready()],
                min_ready: 10,
                expected: Some(Duration::from_secs(6)),
            },
            Case {
                name: "unready and available pods do not require min next availability check",
                pods: vec![unready(), since(15), since(11), since(10), unready()],
                min_ready: 10,
                expected: None,
            },
        ];
        for Case { name, pods, min_ready, expected } in cases {
            assert_eq!(min_next_pod_availability(&pods, min_ready, now(), now()), expected, "{name}");
        }
    }

    /// Upstream: TestFindMinNextPodAvailability, its two cases, where time passes while the status is written.
    #[test]
    fn test_find_min_next_pod_availability() {
        struct Case {
            name: &'static str,
            seconds_passed: i64,
            expected: Duration,
        }

        let pods = [pod("p"), since(2), since(0), since(4), pod("p")];
        let cases = [
            Case {
                name: "considering status evaluation/update delay",
                seconds_passed: 2,
                expected: Duration::from_secs(4),
            },
            Case {
                name: "the status evaluation delay is longer than what is left",
                seconds_passed: 7,
                expected: Duration::ZERO,
            },
            // Not upstream's.
            Case { name: "no delay", seconds_passed: 0, expected: Duration::from_secs(6) },
            Case {
                name: "a clock that was set back makes it no later than it was",
                seconds_passed: -5,
                expected: Duration::from_secs(6),
            },
        ];
        for Case { name, seconds_passed, expected } in cases {
            let later = now() + SignedDuration::from_secs(seconds_passed);
            assert_eq!(min_next_pod_availability(&pods, 10, now(), later), Some(expected), "{name}");
        }
    }
}
