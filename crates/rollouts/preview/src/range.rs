//! Range of the duration of a rollout that waits for quotas or for a back-off.

use std::time::Duration;

use kcm_clock::Timestamp;

use crate::{
    PreviewError,
    cluster::MAX_BACK_OFF,
    history::History,
    refusal::Refusal,
    report::{DurationRange, DurationReason},
};

/// Times until upstream's quota controller has updated the usage after the removal of a pod. A retry that comes earlier is
/// refused, and the next back-off is twice as long.
const QUOTA_DELAYS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(3)];
/// Part of the longest time that is added to it: the times of pods vary.
const MARGIN: f64 = 0.1;

/// Returns the range of the duration of `expected`. `simulate` repeats it with a delay of the quota controller, which matters
/// if the namespace has quotas: a pod may be refused until the resources of a removed one are released.
///
/// `None` if the duration is not uncertain, or the rollout does not complete.
pub(crate) fn duration_range(
    expected: &History,
    refusals: &[Refusal],
    has_quotas: bool,
    now: Timestamp,
    simulate: impl Fn(Duration) -> Result<History, PreviewError>,
) -> Result<Option<DurationRange>, PreviewError> {
    let Some(duration) = expected.completed_at else { return Ok(None) };
    let (mut min, mut max) = (duration, duration);
    let mut reasons = Vec::new();
    if has_quotas && expected.pods_created > 0 && expected.pods_deleted > 0 {
        let mut is_refused = refuses_pods(expected);
        for delay in QUOTA_DELAYS {
            let delayed = simulate(delay)?;
            is_refused |= refuses_pods(&delayed);
            if let Some(duration) = delayed.completed_at {
                (min, max) = (min.min(duration), max.max(duration));
            }
        }
        if is_refused {
            reasons.push(DurationReason::Quota);
            max += max * MARGIN;
        }
    }
    // The controller retries at once if the ReplicaSet is written. Otherwise it waits for its back-off, which doubles, so
    // that it is at most as long as the time since the first refusal.
    let is_written = |refusal: &&Refusal| {
        expected.writes.iter().any(|group| group.resource == "replicasets" && group.name == refusal.object)
    };
    let waits = refusals.iter().filter(|refusal| refusal.is_quota && !is_written(refusal));
    let waited = waits.filter_map(|refusal| Some(now.duration_since(refusal.since?).as_secs_f64()));
    if let Some(waited) = waited.max_by(f64::total_cmp) {
        reasons.push(DurationReason::BackOff);
        max += waited.clamp(0.0, MAX_BACK_OFF.as_secs_f64());
    }
    let range = DurationRange { min_seconds: min, max_seconds: max, reasons };
    Ok((!range.reasons.is_empty()).then_some(range))
}

/// `true` if a quota refuses pods.
fn refuses_pods(history: &History) -> bool {
    history.write_totals.iter().any(|total| total.resource == "pods" && total.refused > 0)
}
