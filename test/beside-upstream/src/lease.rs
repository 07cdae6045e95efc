//! Time without a leader.

use std::time::Duration;

/// Duration of the Lease, the default of both managers.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Observed state of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Renewal {
    /// Time at which the state was first observed.
    pub(crate) at: Duration,
    /// Holder. Empty after a release.
    pub(crate) holder: String,
    /// Time of the renewal, as the holder wrote it.
    pub(crate) renew_time: String,
}

/// Returns the time between `start` and `end` in which no process held the Lease.
///
/// A renewal counts for the duration of the Lease, until the next observation, or until the holder exits. `exits` are the
/// times of the exits of processes, each of which ends the term of the holder at that time.
pub(crate) fn without_leader(
    renewals: &[Renewal],
    exits: &[Duration],
    start: Duration,
    end: Duration,
) -> Duration {
    let mut held = Duration::ZERO;
    for (index, Renewal { at, holder, .. }) in renewals.iter().enumerate() {
        let next = renewals.get(index + 1).map_or(end, |next| next.at);
        // Renewals that are observed late were made before the exit.
        let first = renewals.iter().find(|renewal| renewal.holder == *holder).map_or(*at, |first| first.at);
        let exit = exits.iter().copied().find(|exit| *exit >= first).unwrap_or(end);
        if holder.is_empty() {
            continue;
        }
        let until = (*at + LEASE_DURATION).min(next).min(exit).min(end);
        held += until.saturating_sub((*at).max(start));
    }
    end.saturating_sub(start).saturating_sub(held)
}

/// Returns the number of times that another holder took the Lease between `start` and `end`.
pub(crate) fn changes(renewals: &[Renewal], start: Duration, end: Duration) -> u64 {
    let held = renewals.iter().filter(|renewal| !renewal.holder.is_empty());
    let pairs = held.clone().zip(held.skip(1));
    pairs.filter(|(from, to)| from.holder != to.holder && (start..=end).contains(&to.at)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renewals(times: &[(u64, &str)]) -> Vec<Renewal> {
        let renewal = |(at, holder): &(u64, &str)| Renewal {
            at: Duration::from_secs(*at),
            holder: (*holder).to_owned(),
            renew_time: at.to_string(),
        };
        times.iter().map(renewal).collect()
    }

    #[test]
    fn without_leader_counts_gaps_releases_and_exits() {
        struct Case {
            name: &'static str,
            renewals: &'static [(u64, &'static str)],
            exits: &'static [u64],
            seconds: u64,
            changes: u64,
        }
        let cases = [
            Case {
                name: "kept",
                renewals: &[(0, "a"), (2, "a"), (12, "a")],
                exits: &[],
                seconds: 0,
                changes: 0,
            },
            Case { name: "gap", renewals: &[(0, "a"), (18, "a")], exits: &[], seconds: 3, changes: 0 },
            Case {
                name: "release",
                renewals: &[(0, "a"), (5, ""), (7, "b")],
                exits: &[5],
                seconds: 2,
                changes: 1,
            },
            Case { name: "exit", renewals: &[(0, "a"), (17, "b")], exits: &[2], seconds: 15, changes: 1 },
            Case {
                name: "standby exits",
                renewals: &[(3, "a"), (14, "a")],
                exits: &[1],
                seconds: 3,
                changes: 0,
            },
        ];
        for case in cases {
            let renewals = renewals(case.renewals);
            let exits: Vec<_> = case.exits.iter().copied().map(Duration::from_secs).collect();
            let end = Duration::from_secs(20);
            let without = without_leader(&renewals, &exits, Duration::ZERO, end);
            assert_eq!(without, Duration::from_secs(case.seconds), "{}", case.name);
            assert_eq!(changes(&renewals, Duration::ZERO, end), case.changes, "{}", case.name);
        }
    }
}
