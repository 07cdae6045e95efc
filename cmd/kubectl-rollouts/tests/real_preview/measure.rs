//! Numbers of pods over time, and their comparison with a preview.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde_json::Value;

/// Time during which something holds, such as the existence of a pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval {
    pub(crate) from: Duration,
    /// `None` if it still holds.
    pub(crate) to: Option<Duration>,
}

/// Extreme number, with those of the possible interleavings: events within the tolerance may have another order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extreme {
    observed: i64,
    least: i64,
    most: i64,
}

/// Largest or smallest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Largest,
    Smallest,
}

impl Extreme {
    /// Largest number of intervals at a time since `start`.
    pub(crate) fn largest(intervals: &[Interval], start: Duration, tolerance: Duration) -> Self {
        Self::of(intervals, start, tolerance, Bound::Largest)
    }

    /// Smallest number of intervals at a time since `start`.
    pub(crate) fn smallest(intervals: &[Interval], start: Duration, tolerance: Duration) -> Self {
        Self::of(intervals, start, tolerance, Bound::Smallest)
    }

    fn of(intervals: &[Interval], start: Duration, tolerance: Duration, bound: Bound) -> Self {
        let later = |gains: Duration, losses: Duration| extreme(intervals, start, gains, losses, bound);
        let none = Duration::ZERO;
        let (observed, early, late) = (later(none, none), later(none, tolerance), later(tolerance, none));
        Self { observed, least: late.min(observed), most: early.max(observed) }
    }

    /// `true` if `predicted` is the number of a possible interleaving.
    pub(crate) fn permits(self, predicted: i64) -> bool {
        (self.least..=self.most).contains(&predicted)
    }

    pub(crate) fn is(self, predicted: i64) -> bool {
        self.observed == predicted
    }
}

impl fmt::Display for Extreme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { observed, least, most } = self;
        match least == most {
            true => write!(formatter, "{observed}"),
            false => write!(formatter, "{observed} ({least} to {most})"),
        }
    }
}

/// Extreme number of intervals if those that begin after `start` begin later by `gains`, and all end later by `losses`.
fn extreme(intervals: &[Interval], start: Duration, gains: Duration, losses: Duration, bound: Bound) -> i64 {
    let mut number: i64 = 0;
    let mut changes: Vec<(Duration, i64)> = Vec::new();
    for Interval { from, to } in intervals {
        if to.is_some_and(|to| to <= start) {
            continue;
        }
        let to = to.map(|to| to + losses);
        if *from <= start {
            number += 1;
        } else if to.is_none_or(|to| *from + gains < to) {
            changes.push((*from + gains, 1));
        } else {
            continue;
        }
        changes.extend(to.map(|to| (to, -1)));
    }
    changes.sort_unstable();
    let mut result = number;
    for (_, change) in changes {
        number += change;
        result = match bound {
            Bound::Largest => result.max(number),
            Bound::Smallest => result.min(number),
        };
    }
    result
}

/// End of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Paused,
    Stuck,
}

/// Numbers of a ReplicaSet at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetNumbers {
    pub(crate) desired: i64,
    pub(crate) pods: i64,
    pub(crate) available: i64,
}

/// Course that was made.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) most_pods: Extreme,
    pub(crate) most_with_terminating: Extreme,
    pub(crate) fewest_available: Extreme,
    pub(crate) created: u64,
    pub(crate) deleted: u64,
    pub(crate) end: End,
    /// Seconds until completion.
    pub(crate) duration: Option<f64>,
    /// ReplicaSets with replicas or pods.
    pub(crate) sets: BTreeMap<String, SetNumbers>,
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// `true` if the rollout was not over in time, so that the numbers could not be compared.
    pub(crate) is_unfinished: bool,
    /// Wrong numbers.
    pub(crate) wrong: Vec<String>,
    /// Numbers of another interleaving.
    pub(crate) interleaved: Vec<String>,
    /// Time that is neither close nor in a permitted range.
    pub(crate) wrong_time: Option<String>,
    /// `true` if the time is not within 20 %, but in a range whose end is at most twice its start.
    pub(crate) is_in_range: bool,
    pub(crate) times: String,
}

/// Part of the observed time by which a prediction may differ.
const CLOSE: f64 = 0.2;
/// Resolution of the observation and of the times in objects, in seconds.
const RESOLUTION: f64 = 1.0;

impl Comparison {
    /// Compares `made` with `preview`. `renamed` is the observed name of the new ReplicaSet, if the preview cannot contain it.
    pub(crate) fn of(preview: &Value, made: &Made, renamed: Option<&str>) -> Self {
        let outcome = &preview["outcome"];
        let mut comparison = Self::default();
        let extremes = [
            ("mostPods", made.most_pods),
            ("mostPodsWithTerminating", made.most_with_terminating),
            ("fewestAvailable", made.fewest_available),
        ];
        for (name, extreme) in extremes {
            let predicted = outcome[name]["pods"].as_i64().unwrap();
            let text = || format!("{name} {predicted}, made {extreme}");
            match (extreme.is(predicted), extreme.permits(predicted)) {
                (true, _) => {}
                (false, true) => comparison.interleaved.push(text()),
                (false, false) => comparison.wrong.push(text()),
            }
        }
        for (name, made) in [("podsCreated", made.created), ("podsDeleted", made.deleted)] {
            let predicted = outcome[name].as_u64().unwrap();
            if predicted != made {
                comparison.wrong.push(format!("{name} {predicted}, made {made}"));
            }
        }
        let end = match outcome["end"].as_str().unwrap() {
            "complete" => Some(End::Complete),
            "paused" => Some(End::Paused),
            "stuck" => Some(End::Stuck),
            _ => None,
        };
        if end != Some(made.end) {
            comparison.wrong.push(format!("end {end:?}, made {:?}", made.end));
        }
        let sets = predicted_sets(preview, renamed);
        if sets != made.sets {
            comparison.wrong.push(format!("ReplicaSets {sets:?}, made {:?}", made.sets));
        }
        comparison.compare_times(outcome, made.duration);
        comparison
    }

    /// Result of a rollout that was not over after `limit`.
    pub(crate) fn unfinished(preview: &Value, limit: Duration) -> Self {
        let mut comparison = Self { is_unfinished: true, ..Self::default() };
        comparison.compare_times(&preview["outcome"], None);
        comparison.wrong_time = Some(format!("not over after {limit:?}, time {}", comparison.times));
        comparison
    }

    fn compare_times(&mut self, outcome: &Value, made: Option<f64>) {
        let number = |value: &Value| value.as_f64();
        let predicted = number(&outcome["durationSeconds"]);
        let range = &outcome["durationRange"];
        let range = number(&range["minSeconds"]).zip(number(&range["maxSeconds"]));
        self.times = format!("{predicted:.1?} {range:.1?}, made {made:.1?}");
        let is_right = match (predicted, made) {
            (None, None) => true,
            // Nothing happens.
            (None, Some(made)) => outcome["end"] == "complete" && made <= RESOLUTION,
            (Some(predicted), Some(made)) => {
                let is_close = (predicted - made).abs() <= CLOSE * made + RESOLUTION;
                let is_in_range = |(min, max): (f64, f64)| {
                    max <= 2.0 * min && (min - RESOLUTION..=max + RESOLUTION).contains(&made)
                };
                self.is_in_range = !is_close && range.is_some_and(is_in_range);
                is_close || self.is_in_range
            }
            _ => false,
        };
        self.wrong_time = (!is_right).then(|| format!("time {}", self.times));
    }
}

fn predicted_sets(preview: &Value, renamed: Option<&str>) -> BTreeMap<String, SetNumbers> {
    let sets = preview["steps"].as_array().unwrap().last().unwrap()["replicaSets"].as_array().unwrap();
    let numbers = |set: &Value| {
        let number = |field: &str| set[field].as_i64().unwrap();
        let numbers =
            SetNumbers { desired: number("desired"), pods: number("pods"), available: number("available") };
        let name = renamed.filter(|_| set["isNew"] == true);
        (name.unwrap_or_else(|| set["name"].as_str().unwrap()).to_owned(), numbers)
    };
    sets.iter().map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from: u64, to: Option<u64>) -> Interval {
        let time = Duration::from_millis;
        Interval { from: time(from), to: to.map(time) }
    }

    #[test]
    fn interleavings() {
        let (start, tolerance) = (Duration::from_millis(1000), Duration::from_millis(500));
        // A pod is replaced. The new one was created 100 ms before or after the end of the old one.
        for (created, observed) in [(1900, 2), (2100, 1)] {
            let intervals = [interval(0, Some(2000)), interval(created, None)];
            let largest = Extreme::largest(&intervals, start, tolerance);
            assert_eq!(largest, Extreme { observed, least: 1, most: 2 });
        }
        let intervals = [interval(0, Some(2000)), interval(2600, None)];
        let largest = Extreme::largest(&intervals, start, tolerance);
        assert_eq!(largest, Extreme { observed: 1, least: 1, most: 1 });
        let smallest = Extreme::smallest(&intervals, start, tolerance);
        assert_eq!(smallest, Extreme { observed: 0, least: 0, most: 0 });
    }
}
