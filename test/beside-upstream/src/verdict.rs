//! Comparison of the two managers.

use crate::{
    catalogue::Bounds,
    measure::{Measurement, Who},
    probe,
};

/// Quantity of a measurement. Less is better.
#[derive(Debug)]
pub(crate) struct Quantity {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Smallest difference that counts.
    pub(crate) floor: f64,
    /// Part of upstream's value that the difference must exceed.
    pub(crate) share: f64,
    /// `true` if a manager that has not converged has a lower value because it has done less.
    pub(crate) grows_with_work: bool,
    pub(crate) of: fn(&Measurement) -> f64,
}

/// Quantity with the values that most quantities have.
pub(crate) const DEFAULT: Quantity =
    Quantity { name: "", unit: "", floor: 0.0, share: 0.1, grows_with_work: false, of: |_| 0.0 };

/// All quantities, in the order of the columns.
pub(crate) const QUANTITIES: [Quantity; 7] = [
    Quantity { name: "Without a leader", unit: "s", floor: 2.0, of: |run| run.without_leader, ..DEFAULT },
    Quantity { name: "Convergence", unit: "s", floor: 2.0, of: |run| run.convergence, ..DEFAULT },
    Quantity {
        name: "Excess pods",
        floor: 2.0,
        grows_with_work: true,
        of: |run| run.excess as f64,
        ..DEFAULT
    },
    Quantity { name: "Below minimum", unit: "pod·s", floor: 25.0, of: |run| run.below_minimum, ..DEFAULT },
    Quantity {
        name: "Requests",
        floor: 50.0,
        grows_with_work: true,
        of: |run| run.requests as f64,
        ..DEFAULT
    },
    Quantity { name: "Peak memory", unit: "MiB", floor: 4.0, of: |run| run.memory, ..DEFAULT },
    Quantity { name: "Exits", floor: 0.5, share: 0.0, of: |run| run.exits.len() as f64, ..DEFAULT },
];

/// Comparison of a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Comparison {
    /// The difference is noise.
    Equal,
    /// This manager's value is lower by this difference.
    Better(f64),
    /// This manager's value is higher by this difference.
    Worse(f64),
}

/// Median of the values. `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Difference between the largest and the smallest value.
fn spread(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    (largest - smallest).max(0.0)
}

impl Quantity {
    /// Compares the medians of the rounds. A difference is noise unless it exceeds the spread of the rounds of either
    /// manager, the floor, and the share of upstream's median.
    pub(crate) fn compare(&self, ours: &[f64], theirs: &[f64]) -> Comparison {
        let (Some(our_median), Some(their_median)) = (median(ours), median(theirs)) else {
            return Comparison::Equal;
        };
        let noise = spread(ours).max(spread(theirs)).max(self.floor).max(self.share * their_median.abs());
        let difference = our_median - their_median;
        if difference.abs() <= noise {
            Comparison::Equal
        } else if difference > 0.0 {
            Comparison::Worse(difference)
        } else {
            Comparison::Better(-difference)
        }
    }
}

/// Seconds by which the slowest round of this manager may converge later than upstream's slowest, and share of upstream's.
pub(crate) const SLOWEST: (f64, f64) = (10.0, 0.25);

/// Returns the seconds by which the slowest round of this manager converges later than upstream's, if they exceed
/// [`SLOWEST`]. The medians do not contain a round that stalls, and the spread hides it.
pub(crate) fn stalled(ours: &[f64], theirs: &[f64]) -> Option<f64> {
    let largest = |values: &[f64]| values.iter().copied().max_by(f64::total_cmp);
    let (ours, theirs) = (largest(ours)?, largest(theirs)?);
    let (floor, share) = SLOWEST;
    Some(ours - theirs).filter(|difference| *difference > floor.max(share * theirs.abs()))
}

/// Values of a quantity in the rounds of a manager.
pub(crate) fn values(runs: &[&Measurement], who: Who, quantity: &Quantity) -> Vec<f64> {
    runs.iter().filter(|run| run.manager == who).map(|run| (quantity.of)(run)).collect()
}

/// Number of rounds of a manager, and of those that have converged.
pub(crate) fn converged(runs: &[&Measurement], who: Who) -> (usize, usize) {
    let own = runs.iter().filter(|run| run.manager == who);
    (own.clone().count(), own.filter(|run| run.converged).count())
}

/// Names of the bounds that a run exceeds.
pub(crate) fn exceeded(run: &Measurement, bounds: &Bounds) -> Vec<&'static str> {
    let checks = [
        (run.without_leader > bounds.without_leader + 0.5, "without a leader"),
        (!run.converged || run.convergence > bounds.convergence, "convergence"),
        (run.excess > bounds.excess, "excess pods"),
        (run.exits.len() as u64 > bounds.exits, "exits"),
        (!run.lives, "no running process"),
    ];
    let exceeded = checks.into_iter().filter(|(exceeds, _)| *exceeds).map(|(_, name)| name);
    exceeded.chain(probe::exceeded(run)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowest_round_is_compared() {
        assert_eq!(stalled(&[5.0, 5.0, 149.0], &[5.0, 5.0, 6.0]), Some(143.0));
        assert_eq!(stalled(&[5.0, 5.0, 15.0], &[5.0, 5.0, 6.0]), None);
        assert_eq!(stalled(&[5.0, 5.0, 69.0], &[5.0, 5.0, 60.0]), None);
        assert_eq!(stalled(&[5.0], &[]), None);
    }

    #[test]
    fn difference_within_spread_floor_or_share_is_noise() {
        struct Case {
            name: &'static str,
            ours: &'static [f64],
            theirs: &'static [f64],
            expected: Comparison,
        }
        let convergence = &QUANTITIES[1];
        let cases = [
            Case { name: "floor", ours: &[5.0], theirs: &[3.5], expected: Comparison::Equal },
            Case { name: "share", ours: &[53.0], theirs: &[50.0], expected: Comparison::Equal },
            Case {
                name: "spread",
                ours: &[4.0, 9.0, 12.0],
                theirs: &[3.0, 3.0, 3.0],
                expected: Comparison::Equal,
            },
            Case {
                name: "worse",
                ours: &[9.0, 9.5, 10.0],
                theirs: &[3.0, 3.0, 3.0],
                expected: Comparison::Worse(6.5),
            },
            Case { name: "better", ours: &[1.0], theirs: &[7.0], expected: Comparison::Better(6.0) },
            Case { name: "not measured", ours: &[1.0], theirs: &[], expected: Comparison::Equal },
        ];
        for case in cases {
            assert_eq!(convergence.compare(case.ours, case.theirs), case.expected, "{}", case.name);
        }
    }
}
